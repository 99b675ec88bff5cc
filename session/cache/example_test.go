package cache_test

import (
	"context"
	"fmt"
	"log"

	"github.com/krait-ml/krait"
)

// A prompt with a cached prefix resumes from its snapshot.
func Example() {
	m, err := krait.Embedded(krait.Options{PrefixCache: 1 << 20}) // bytes
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	ctx := context.Background()
	first, err := m.Generate(ctx, "And the LORD spake unto Moses", krait.Generate{MaxTokens: 10})
	if err != nil {
		log.Fatal(err)
	}
	next, err := m.Generate(ctx, "And the LORD spake unto Moses"+first.Text+" and", krait.Generate{MaxTokens: 10})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(next.CachedTokens, "of", next.PromptTokens, "tokens were there;", m.Session().PrefixCache().Hits, "hit")
	// Output:
	// 38 of 43 tokens were there; 1 hit
}

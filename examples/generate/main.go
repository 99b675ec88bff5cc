// Generate continues a prompt, then steps the same model token by token.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/krait-ml/krait"
)

func main() {
	ctx := context.Background()
	m, err := krait.Embedded(krait.Options{}) // or krait.Open("path/to/a/Hugging-Face-folder", krait.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()

	// A text, as it comes.
	stream := func(text string) { fmt.Fprint(os.Stdout, text) }
	if _, err := m.Generate(ctx, "In the beginning", krait.Generate{MaxTokens: 60, OnText: stream}); err != nil {
		log.Fatal(err)
	}

	// The same model, token by token.
	s, err := m.NewSequence()
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	logits, err := s.Step(ctx, 'A', 'm', 'e')
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("\nafter \"Ame\", the logit of 'n' is %.2f\n", logits['n'])
}

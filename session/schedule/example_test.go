package schedule_test

import (
	"context"
	"fmt"
	"log"
	"sync"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/session/schedule"
)

// Two requests share the steps of a model, and each gets what it would get alone.
func Example() {
	m, err := krait.Embedded(krait.Options{Slots: 2})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	texts := make([]string, 2)
	var both sync.WaitGroup
	for i, prompt := range []string{"Moses", "Aaron"} {
		both.Go(func() {
			var ids []int
			for _, b := range []byte(prompt) {
				ids = append(ids, int(b))
			}
			greedy := func([]int) exec.Choice { return exec.Choice{} }
			goOn := func(int) (last bool) { return false }
			for token, err := range m.Session().Scheduler().Stream(context.Background(), schedule.Request{Prompt: ids, MaxTokens: 8, Choose: greedy, Accept: goOn}) {
				if err != nil {
					log.Fatal(err)
				}
				texts[i] += string(byte(token.ID))
			}
		})
	}
	both.Wait()
	fmt.Printf("%q\n", texts)
	// Output:
	// [" shall b" " and the"]
}

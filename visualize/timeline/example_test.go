package timeline_test

import (
	"context"
	"log"
	"os"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/visualize/timeline"
)

// What two ranks did when is recorded, and written for Perfetto.
func Example() {
	events := timeline.Log{Run: timeline.Run{Name: "measured on cpu"}, Most: 10_000}
	m, err := krait.Embedded(krait.Options{Sharding: krait.Sharding{Ranks: 2}, Record: events.Record, Batches: events.Batch})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	if _, err := m.Generate(context.Background(), "In the", krait.Generate{MaxTokens: 4}); err != nil {
		log.Fatal(err)
	}
	if err := timeline.Trace(os.Stderr, []timeline.Run{events.Run}); err != nil {
		log.Fatal(err)
	}
}

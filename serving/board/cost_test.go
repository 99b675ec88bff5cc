package board_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/serving/board"
	"github.com/krait-ml/krait/visualize"
)

// BenchmarkGenerate is 4 texts of 100 tokens without a board, with one that is not
// watched, and with one that is.
func BenchmarkGenerate(bench *testing.B) {
	for _, how := range []string{"none", "idle", "watched"} {
		for _, ranks := range []int{1, 2} {
			bench.Run(fmt.Sprintf("board=%s/ranks=%d", how, ranks), func(bench *testing.B) {
				b := board.New(board.Options{Work: visualize.Work})
				o := krait.Options{Slots: 4, Sharding: krait.Sharding{Ranks: ranks}}
				if how != "none" {
					o.Batches, o.Record, o.Recording = b.Batch, b.Record, b.Watched
				}
				m, err := krait.Embedded(o)
				if err != nil {
					bench.Fatal(err)
				}
				defer m.Close()
				last := time.Time{}
				for bench.Loop() {
					if how == "watched" && time.Since(last) > 500*time.Millisecond {
						b.JSON(func(*board.State) {}, nil)
						last = time.Now()
					}
					if _, err := m.GenerateBatch(context.Background(), []string{"a", "b", "c", "d"}, krait.Generate{MaxTokens: 100, IgnoreEOS: true}); err != nil {
						bench.Fatal(err)
					}
				}
			})
		}
	}
}

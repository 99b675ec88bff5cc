package cuda

import (
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/choices"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/kernels/reference"
)

// chooseCase draws rows of logits with ties, excluded tokens and broken ones.
func chooseCase(d *draw) func() kernels.Call {
	return func() kernels.Call {
		rows, n := d.pick("rows", 1, 1, 1, 2), d.size("vocabulary", 31, 32, 33, 65, 1025)
		logits, choice := d.tensor(graph.F32, rows, n), d.tensor(graph.F32, rows, graph.ChoiceType().Dims[1].Len())
		seen := d.tensor(graph.I32, rows, graph.SeenWords(n))
		for i := range rows {
			c := choices.Draw(d.rng, n)
			copy(logits.Row(i), c.Logits)
			c.Put(choice.Row(i))
			for _, id := range c.Seen {
				kernels.SetSeen(seen.RowOfInts(i), id)
			}
		}
		return call(nil, one(d.packed(graph.I32, rows)), logits, choice, seen)
	}
}

// mayChoose holds tokens against the definition: each token's weight is exact to
// 2^-20 of the best one's, and sums of them to as much per token.
func mayChoose(t fataler, c *kernels.Call, ids []int32) {
	t.Helper()
	logits := &c.Args[0]
	for i, id := range ids {
		choice, ok := kernels.ChoiceOf(&c.Args[1], i, logits.Cols)
		if !ok && id == graph.BadChoice {
			continue
		}
		if !ok || !reference.MayChoose(logits.Row(i), choice, c.Args[2].RowOfInts(i), id, 0x1p-20*float64(logits.Cols)) {
			t.Fatalf("row %d of %d tokens, by %+v: chose %d, want %d", i, logits.Cols, choice, id, c.Results[0].I32[i])
		}
	}
}

func tokensOn(t *testing.T, cases ...choices.Case) []int32 {
	t.Helper()
	dev, op, c := newDevice(t), findOp(t, "choose"), choices.Call(cases...)
	on := dev.deviceCall(op, &c, nil, func() int { return 0 })
	dev.compute(op, on, 0)
	dev.download(on.Results[0], &c.Results[0])
	return c.Results[0].I32
}

// TestChooseGolden: cases that can be worked out by hand, those of a few tokens in
// one batch.
func TestChooseGolden(t *testing.T) {
	var few []choices.Case
	for _, c := range choices.Golden {
		if len(c.Logits) < 100 {
			few = append(few, c)
		} else if got := tokensOn(t, c)[0]; got != c.Want {
			t.Errorf("%s: chose %d, want %d", c.Name, got, c.Want)
		}
	}
	for i, got := range tokensOn(t, few...) {
		if c := few[i]; got != c.Want {
			t.Errorf("%s: chose %d, want %d", c.Name, got, c.Want)
		}
	}
}

// TestChooseShares: every token's range of random numbers begins and ends where its
// probability says.
func TestChooseShares(t *testing.T) {
	var cases []choices.Case
	for _, s := range choices.Shares {
		cases = append(cases, s.Borders(1e-5)...)
	}
	for i, got := range tokensOn(t, cases...) {
		if c := cases[i]; got != c.Want {
			t.Errorf("%s: %v draws %d, want %d", c.Name, c.Uniform, got, c.Want)
		}
	}
}

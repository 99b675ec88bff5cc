package cuda

import (
	"slices"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/kernels/reference"
	"pgregory.net/rapid"
)

// TestInPlace runs what may be in place over every operand that it may be over, and
// over two where there are two results: the bits are those of its own memory. The
// interpreter sees what is read through a cache that does not see the writes.
func TestInPlace(t *testing.T) {
	for _, op := range graph.Ops() {
		if op.InPlace != nil {
			t.Run(op.Name, func(t *testing.T) {
				t.Parallel()
				checkAgain(t, op.Name, func(t *rapid.T) { checkInPlace(t, op) })
			})
		}
	}
}

func checkInPlace(t *rapid.T, op *graph.Op) {
	d, dev := newDraw(t), newDevice(t)
	c := cases[op.Name](d)()
	over := rapid.Permutation(op.InPlace).Draw(t, "operands")
	over = over[:min(len(over), len(c.Results))]
	for i, k := range over { // rows lie alike
		c.Results[i] = clone(&c.Args[k])
	}
	offset := d.offset()
	at := func() int { return offset }
	apart, within := dev.deviceCall(op, &c, map[int]Tensor{}, at), dev.deviceCall(op, &c, map[int]Tensor{}, at)
	for i, k := range over {
		within.Results[i].Ptr = within.Args[k].Ptr
	}
	dev.compute(op, apart, d.rng.Uint64())
	dev.compute(op, within, d.rng.Uint64())
	got, want := downloaded(dev, within, &c), downloaded(dev, apart, &c)
	for i := range c.Results {
		same(t, "result in place", &got[i], &want[i], 0)
	}
	plain := kernels.Call{Attrs: c.Attrs}
	for i := range c.Args {
		plain.Args = append(plain.Args, clone(&c.Args[i]))
	}
	plain.Results = slices.Clone(c.Results)
	for i, k := range over { // the float64 kernel, in place too
		plain.Results[i] = plain.Args[k]
	}
	k := reference.Kernels[op.Name]
	k.Run(&plain, 0, 1)
	for i := range over {
		same(t, "result", &got[i], &plain.Results[i], 1e-5)
	}
}

// downloaded are the results of a call.
func downloaded(dev *device, on *Call, c *kernels.Call) []kernels.Tensor {
	out := make([]kernels.Tensor, len(c.Results))
	for i := range out {
		out[i] = clone(&c.Results[i])
		dev.download(on.Results[i], &out[i])
	}
	return out
}

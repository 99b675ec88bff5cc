package cuda

import (
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/kernels/reference"
	"pgregory.net/rapid"
)

// TestAttentionOnCores: attention on tensor cores is that of f32 but for the last bits of two bf16:
// of tokens around the sizes of its tiles, heads of all sizes, caches of all formats, ranks with
// some heads of a group.
func TestAttentionOnCores(t *testing.T) {
	lens := []int{1, 15, 63, 64, 65, 80}
	test := func(t *rapid.T) {
		d, dev := newDraw(t), newDevice(t)
		d.decode, d.blank = false, planOnly != nil
		next := attentionCase(d)
		d.lens, d.most = lens, min(d.most, 2)
		c := next()
		on := dev.deviceCall(findOp(t, "attention"), &c, map[int]Tensor{}, d.offset)
		on.Options.Math = BF16
		launches := dev.compute(findOp(t, "attention"), on, d.rng.Uint64())
		cores := slices.ContainsFunc(launches, func(l Launch) bool { return strings.HasPrefix(l.Function, "attention_mma") })
		if q := &c.Args[0]; planOnly == nil && cores != (q.Unit <= flashSize && q.Cols > 0 && q.Rows() > c.Args[5].Rows()) {
			t.Fatalf("heads of %d channels, %d tokens of %d sequences: on tensor cores %v", q.Unit, q.Rows(), c.Args[5].Rows(), cores)
		}
		if !cores {
			return
		}
		got, k := clone(&c.Results[0]), reference.Kernels["attention"]
		dev.download(on.Results[0], &got)
		k.Run(&c, 0, 1)
		same(t, "result", &got, &c.Results[0], 0x1p-14)
	}
	check(t, "attention", test)
	lens = []int{2, 17} // of what is drawn rarely
	for _, format := range []string{"f32", "f16", "bf16", "e4m3"} {
		until(t, test, "attention_mma_"+format+".attention_mma_64", "attention_mma_"+format+".attention_mma_128", "attention_mma_"+format+".attention_mma_256")
	}
}

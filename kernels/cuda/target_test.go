package cuda_test

import (
	"fmt"
	"testing"

	"github.com/krait-ml/krait/graph"
	kernels "github.com/krait-ml/krait/kernels/cuda"
)

// TestTargetAligned: a product takes a field in bf16 where its rows begin at multiples of 16 bytes,
// in the rows of what it is a field of; on two ranks, where those of both do.
func TestTargetAligned(t *testing.T) {
	for _, c := range []struct {
		fields, name string // of x
		ranks        int
		want         bool
	}{
		{"a:8|b:8", "a", 1, true},
		{"a:8|b:8", "b", 1, true},
		{"a:4|b:16|c:4", "b", 1, false}, // begins at byte 8
		{"a:8|b:4", "a", 1, false},      // rows are 24 bytes apart
		{"a:8|b:16", "b", 1, true},
		{"a:8/1|b:8/1", "b", 2, false}, // 4 columns each
		{"a:16/1|b:16/1", "b", 2, true},
		{"a:12/4|b:8/8", "a", 2, false}, // 4 columns on one rank, and 8 on the other
	} {
		d, err := graph.ParseType(fmt.Sprintf("f32[t %s]", c.fields))
		if err != nil {
			t.Fatal(err)
		}
		n := d.Dims[1].Fields[0].Size
		if c.name == "b" {
			n = d.Dims[1].Fields[1].Size
		}
		layout, split, unit := "", "", ""
		if c.ranks > 1 {
			layout, split, unit = " shard(0: a=split b=split)", " shard(1: split)", fmt.Sprint("/", d.Dims[1].Fields[0].Unit) // of b it does not matter
		}
		g, err := graph.Parse(fmt.Sprintf(`graph "g" stage=fused ranks=%d
input %%h : f32[t 8]
param @w : bf16[%s 8]%s
param @v : bf16[8 %d%s]%s
%%ab = matmul %%h @w
%%x = field %%ab {name=%s}
%%y = matmul %%x @v
`, c.ranks, c.fields, layout, n, unit, split, c.name))
		if err != nil {
			t.Fatal(err)
		}
		y, _ := g.Value("y")
		accepted := (&kernels.Target{Math: kernels.BF16}).Accepts(y.Def, c.ranks, func(v *graph.Value) bool { return v.Name != "y" }, true)
		if accepted[0] != c.want || accepted[1] {
			t.Errorf("%s of %s on %d ranks: accepted %v, want %v", c.name, c.fields, c.ranks, accepted, c.want)
		}
	}
}

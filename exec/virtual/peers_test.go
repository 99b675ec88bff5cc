package virtual

import (
	"math"
	"strings"
	"testing"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
)

// TestPeerNorms: an add_rmsnorm that an all_reduce in one shot does as well saves its launch; by a
// ring, or without the mark, it does not.
func TestPeerNorms(t *testing.T) {
	const text = `graph "g" stage=fused ranks=2
input %h : f32[t 4/1]
param @g : f32[4/1]
param @w : f32[4/1 4/1] shard(1: split)
param @up : f32[4/1 4/1] shard(0: split)
%u = matmul %h @up
%o = matmul %u @w
%sum = all_reduce %o {then=add_rmsnorm}
%r %n = add_rmsnorm %h %sum @g {eps=1e-05}
output r = %r
output n = %n
`
	const launch = 1 << 20
	took := func(text, algorithm string) float64 {
		g, err := graph.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		list, err := lowering.Lower(g)
		if err != nil {
			t.Fatal(err)
		}
		p := plain(1)
		p.Overhead.Launch.Value, p.Link.Algorithms[0].Name = launch, algorithm
		m, err := (&Device{Profile: p}).open(list, exec.Setup{Slots: 1})
		if err != nil {
			t.Fatal(err)
		}
		m.clock.batch(graph.Sizes{Tokens: 2, Seqs: 1, Rows: 1}, false)
		end, err := m.clock.run(0, func([]int, int) bool { return true })
		if err != nil {
			t.Fatal(err)
		}
		return end
	}
	apart := strings.Replace(text, " {then=add_rmsnorm}", "", 1)
	for algorithm, want := range map[string]float64{"one_shot": launch, "ring": 0} {
		if got := took(apart, algorithm) - took(text, algorithm); math.Abs(got-want) > 1e-6*launch {
			t.Errorf("by %s, the mark saves %g seconds, want %g", algorithm, got, want)
		}
	}
}

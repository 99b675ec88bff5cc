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
		m.clock.batch(0, graph.Sizes{Tokens: 2, Seqs: 1, Rows: 1}, false)
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

// TestNarrow: a value in bf16 takes half of the time that its bytes take, in batches with many
// rows, with prompts if it is so in prompts only.
func TestNarrow(t *testing.T) {
	bytes := func(z graph.Sizes) (all int64) {
		g, err := graph.Parse(`graph "g" stage=fused ranks=1
input %h : f32[t 4]
param @w : bf16[8 4]
param @v : bf16[4 8]
%n = gelu %h : f32[t 4] as bf16
%a = matmul %n @w : f32[t 8] as bf16 in prompts
%b = matmul %a @v
output b = %b
`)
		if err != nil {
			t.Fatal(err)
		}
		list, err := lowering.Lower(g)
		if err != nil {
			t.Fatal(err)
		}
		m, err := (&Device{Profile: plain(1)}).open(list, exec.Setup{Slots: 1})
		if err != nil {
			t.Fatal(err)
		}
		m.clock.record = func(e exec.Event) { all += e.Bytes }
		m.clock.batch(0, z, false)
		if _, err := m.clock.run(0, func([]int, int) bool { return true }); err != nil {
			t.Fatal(err)
		}
		return all
	}
	const weights = 2 * 2 * 8 * 4
	for _, c := range []struct {
		z   graph.Sizes
		row int64 // bytes: h and b once, n and a twice
	}{
		{graph.Sizes{Tokens: 32, Seqs: 1}, 4 * (4 + 2*4 + 2*8 + 4)},
		{graph.Sizes{Tokens: 64, Seqs: 64}, 4 * (4 + 4 + 2*8 + 4)},
		{graph.Sizes{Tokens: 64, Seqs: 1}, 4 * (4 + 4 + 8 + 4)},
	} {
		if got, want := bytes(c.z), c.z.Tokens*c.row+weights; got != want {
			t.Errorf("%+v: %d bytes are moved, want %d", c.z, got, want)
		}
	}
}

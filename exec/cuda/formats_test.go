package cuda

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/cuda/sim"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/comm"
	"github.com/krait-ml/krait/exec/internal/operand"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/covering"
	"github.com/krait-ml/krait/internal/goldens"
	kernels "github.com/krait-ml/krait/kernels/cuda"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/passes"
)

// mostFormats is the largest set of buffers that all calls of a program accept in bf16, or in
// pieces: what the pass formats is to find without knowing the sizes of the batch.
func (r *rank) mostFormats(key programKey) []bool {
	in := make([]bool, len(r.s.Buffers))
	for i := range r.s.Buffers {
		b := &r.s.Buffers[i]
		in[i] = operand.InArena(b) && b.Type.DType == graph.F32
	}
	for i := range r.outputs {
		in[r.outputs[i].Buffer] = false
	}
	r.narrow = in
	for again := true; again; {
		again = false
		_ = r.eachAsIs(key, func(c *call) error {
			operands := slices.Concat(c.args, c.results)
			accepted := make([]bool, len(operands))
			if c.step.Kind == lowering.Launch {
				accepted = c.kernel().Accepts(&c.on)
			}
			for i, ok := range accepted {
				b := operands[i].Buffer
				if part := c.rows != nil && !r.s.Buffers[b].Space.OfPiece(); in[b] && (!ok || part && r.machine.device.Math == kernels.F32) {
					in[b], again = false, true
				}
			}
			return nil
		})
	}
	return in
}

// TestFormats: in batches with many rows of all that has rows, activations are in bf16 exactly
// where all kernels accept that, for all families, one rank and several; in others at most there,
// and none without cuBLAS. So are they in pieces with math of f32.
func TestFormats(t *testing.T) {
	t.Run("bf16", func(t *testing.T) {
		checkFormats(t, kernels.BF16, 32, []graph.Sizes{{Tokens: 33, Seqs: 1, Rows: 33}, {Tokens: 40, Seqs: 40, Rows: 40}, {Tokens: 300, Seqs: 3, Rows: 2}, {Tokens: 60, Seqs: 50, Rows: 50},
			{Tokens: 32, Seqs: 1, Rows: 32}, {Tokens: 1, Seqs: 1, Rows: 1}, {Tokens: 9, Seqs: 9, Rows: 9}})
	})
	t.Run("pieces", func(t *testing.T) {
		checkFormats(t, kernels.F32, 128, []graph.Sizes{{Tokens: 129, Seqs: 1, Rows: 129}, {Tokens: 300, Seqs: 3, Rows: 2}, {Tokens: 180, Seqs: 50, Rows: 50},
			{Tokens: 128, Seqs: 1, Rows: 128}, {Tokens: 9, Seqs: 9, Rows: 9}})
	})
}

func checkFormats(t *testing.T, math kernels.Math, few int64, sizes []graph.Sizes) {
	some := false
	for i, dir := range append(covering.Drawn(t, goldens.Folders(t, "../..")), "../../testdata/golden/mamba-a") {
		d := &Device{Driver: sim.New(sim.Options{Capability: [2]int{8 + i%2, 0}}), Math: math}
		for _, ranks := range []int{1, 2 + i%2} {
			m := openFormats(t, dir, d, ranks)
			all := strings.Repeat("\x01", len(m.ranks[0].s.Outputs))
			for _, r := range m.ranks {
				for _, z := range sizes {
					z.Largest = z.Tokens - z.Seqs + 1
					key := programKey{z: z, wanted: all}
					r.applyFormats(key)
					got := r.narrow
					most := r.mostFormats(key)
					if got == nil {
						t.Errorf("%s on %d ranks, %+v: the kernels refuse what the pass decided", dir, ranks, z)
						continue
					}
					exactly := z.Tokens > few && (ranks == 1 || math == kernels.BF16) // a rank may have too few columns for pieces
					for b, is := range got {
						if some = some || is; is && !most[b] || most[b] && !is && exactly {
							t.Errorf("%s on %d ranks, %+v: %s is so: %v, accepted: %v", filepath.Base(dir), ranks, z, r.s.Buffers[b].Name, is, most[b])
						}
					}
				}
				blas := r.gemm.GEMM
				r.gemm.GEMM = nil
				if r.applyFormats(programKey{z: graph.Sizes{Tokens: 170, Seqs: 1, Rows: 170}, wanted: all}); slices.Contains(r.narrow, true) {
					t.Errorf("%s: without cuBLAS activations are not in f32", dir)
				}
				r.gemm.GEMM = blas
			}
			m.Close()
		}
	}
	if !some {
		t.Error("everything is in f32")
	}
}

// openFormats opens a golden with weights in bf16, which are zeros.
func openFormats(t *testing.T, dir string, d *Device, ranks int) *machine {
	t.Helper()
	c, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	rounded := map[string]bool{}
	for _, n := range c.Graph.Nodes {
		for i, v := range n.Args {
			if v.Def.Op.Name == "param" && n.Op.Operands[i] == 'w' {
				v.Type.DType = graph.BF16
				for _, p := range v.Def.Storage.Pieces {
					rounded[p.Tensor] = true
				}
			}
		}
	}
	g, err := passes.Compile(c.Graph, passes.Options{Ranks: ranks, Fuse: passes.ForLaunches, Target: d.Target()})
	if err != nil {
		t.Fatal(dir, err)
	}
	s, err := lowering.Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	m, err := d.Open(s, comm.Local(ranks), exec.Setup{Slots: 50, Context: 400, PageTokens: 16, Tensor: func(name string) (graph.Array, error) {
		a, err := c.Tensor(name)
		if err == nil && rounded[name] {
			n := len(a.Data) / a.DType.Bytes()
			a.DType, a.Data = graph.BF16, make([]byte, 2*n)
		}
		return a, err
	}})
	if err != nil {
		t.Fatal(fmt.Errorf("%s: %w", dir, err))
	}
	return m.(*machine)
}

package cost

import (
	"math"
	"strings"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/lowering"
)

// Short ends the keys of products of fewer than [kernels.ShortDepth] terms, which CPUs take in
// float64: they are several times as slow.
const Short = "/short"

// Work is what a launch or a copy takes on a rank, for any batch.
type Work struct {
	FLOPs, Bytes, Rows graph.Poly
	// Share is the rank's part of the FLOPs and bytes, which are those of all ranks
	// then: where the shares of the operands are not those of a whole operation. Else 1.
	Share float64
	// Key and Op are the names under which a profile may have rates that were measured: the first one
	// says the number format of the weights, if any, and where sums are [Short].
	Key, Op string
	product bool // by weights, which have a rate by number format
	// pieces is how many products of bf16 a GPU takes for each one of prompts, on tensor cores, with
	// products in bf16; 0: it takes none.
	pieces float64
	// By [graph.Narrow]: the numbers of activations that are so in some batches.
	narrow [graph.PiecesAlways + 1]graph.Poly
}

// WorkOf is the work of a step on the schedule's rank.
func WorkOf(s *lowering.Schedule, st *lowering.Step) Work {
	args, results := locals(s, st.Args), locals(s, st.Results)
	w := Work{Share: 1, Key: st.Op.Name, Op: st.Op.Name, Rows: graph.Const(1)}
	if d := results[0].Dims; len(d) > 0 {
		w.Rows = d[0].Poly()
	}
	for i, k := range st.Op.Operands {
		if k == 'w' {
			w.product = true
			w.Key = st.Op.Name + "/" + args[i].DType.String()
			if st.Op.Name == "matmul" && graph.RowElems(args[i].Dims) < kernels.ShortDepth && !args[i].DType.InBlocks() {
				w.Key += Short
			}
		}
	}
	if st.Op.Name == "attention" {
		w.pieces = attentionPieces(args)
	}
	if st.Kind == lowering.Relayout {
		for _, t := range results {
			w.Bytes = w.Bytes.Plus(t.Bytes().Times(graph.Const(2)))
		}
		return w
	}
	c, err := graph.CostOf(st.Op, st.Attrs, args, results)
	if err != nil {
		c, w.Share = st.Cost, share(st, s)
	}
	w.FLOPs, w.Bytes = c.FLOPs, c.Read.Plus(c.Write)
	for _, refs := range [...][]lowering.Ref{st.Args, st.Results} {
		for _, r := range refs {
			t := r.Type
			if w.Share == 1 {
				t = s.Local(t)
			}
			if n := s.Buffers[r.Buffer].Narrow; n != graph.NarrowNever {
				w.narrow[n] = w.narrow[n].Plus(t.Elems())
			}
		}
	}
	return w
}

// attentionPieces counts the products of bf16 for one of attention, as Krait's kernel for heads of
// up to 256 channels takes them: queries and weights are sums of two bf16, and so are keys and
// values but in caches of bf16 and 8 bits. The product of the two least pieces is left out.
func attentionPieces(args []graph.Type) float64 {
	heads := args[0].Dims[1].Fields
	switch cache := args[3].DType; {
	case len(heads) > 0 && heads[0].Unit > 256:
		return 0
	case cache == graph.BF16 || cache == graph.F8:
		return 2
	}
	return 3
}

func locals(s *lowering.Schedule, refs []lowering.Ref) []graph.Type {
	out := make([]graph.Type, len(refs))
	for i := range refs {
		out[i] = s.Local(refs[i].Type)
	}
	return out
}

// share is the rank's part of a step whose operands are cut: that of the operand of
// which it has least, as groups that several ranks need are with each.
func share(st *lowering.Step, s *lowering.Schedule) float64 {
	least := 1.0
	for _, refs := range [][]lowering.Ref{st.Args, st.Results} {
		for _, r := range refs {
			if whole := elems(r.Type.Dims); whole > 0 {
				least = min(least, elems(s.Local(r.Type).Dims)/whole)
			}
		}
	}
	return least
}

func elems(dims []graph.Dim) float64 {
	n := 1.0
	for _, d := range dims {
		if d.Sym == 0 {
			n *= float64(d.Len())
		}
	}
	return n
}

// Rater says how long work takes on one of some ranks.
type Rater struct {
	p     *Profile
	ranks int
	share float64 // of the device, that a rank has
	math  Compute
	tiles float64 // operations per second of Krait's tiles in bf16; 0: they are not used
}

// TileShare is the share of tensor cores' peak that Krait's tiles (mma.sync) reach: an assumption
// about GPUs of compute capability 8.0 to 9.0, not measured. On 9.0 at most 0.62 is possible
// without wgmma; the tiles have few stages, and a barrier per step.
const TileShare = 0.45

// Rater is for products in a number format, of [Profile.Formats]; empty is f32.
func (p *Profile) Rater(ranks int, format string) (*Rater, error) {
	c, err := p.format(format)
	r := &Rater{p: p, ranks: ranks, share: 1, math: c}
	if p.Shared {
		r.share = 1 / float64(ranks)
	} else if format == "bf16" {
		r.tiles = c.Peak.Value * TileShare
	}
	return r, err
}

// Time is how long a launch takes for a batch, overhead included; graphs says that it is
// one of a captured graph. An operation's measured time counts as measured; otherwise it is
// the longer of its operations and its bytes.
func (r *Rater) Time(w *Work, z graph.Sizes, graphs bool) float64 {
	overhead := r.Launch(graphs)
	flops := w.FLOPs.Float(z) * w.Share
	if rate := r.measured(w, z); rate > 0 && flops > 0 {
		return flops/rate + overhead
	}
	return max(flops/r.rate(w, z), w.Moved(z)/(r.share*r.p.Memory.Bandwidth.Value*r.p.Memory.Achieved.Value)) + overhead
}

// Launch is the overhead of a launch; graphs says that it is one of a captured graph.
func (r *Rater) Launch(graphs bool) float64 {
	if graphs {
		return r.p.Overhead.GraphLaunch.Value
	}
	return r.p.Overhead.Launch.Value
}

// Moved is the bytes that work reads and writes for a batch.
func (w *Work) Moved(z graph.Sizes) float64 {
	bytes, rows := w.Bytes.Float(z), int64(w.Rows.Float(z))
	for n := graph.NarrowPrompts; n <= graph.PiecesAlways; n++ {
		if n.In(rows, z) {
			bytes += float64(n.Bytes()-graph.F32.Bytes()) * w.narrow[n].Float(z)
		}
	}
	return bytes * w.Share
}

// measured is the rate that was measured of some work, its bytes included; 0: none was.
func (r *Rater) measured(w *Work, z graph.Sizes) float64 {
	for _, name := range [...]string{w.Key, strings.TrimSuffix(w.Key, Short), w.Op} {
		if m, ok := r.p.Operations[name]; ok {
			if rate := m.rate(r.ranks, w.Rows.Float(z)); rate > 0 {
				return rate
			}
		}
	}
	return 0
}

// rate is the operations per second of other work.
func (r *Rater) rate(w *Work, z graph.Sizes) float64 {
	c := r.p.Compute["f32"]
	switch prompts := z.Tokens > z.Seqs; {
	case w.pieces > 0 && r.tiles > 0 && prompts:
		return r.tiles / w.pieces
	case w.product:
		c = r.math
	}
	return r.share * c.Peak.Value * c.Achieved.Value
}

// between is the rate at some rows by those of two measurements, on a line where both
// are logarithms; beyond them it is that of the nearer one.
func between(a, b *Point, rows float64) float64 {
	if a.Rows == b.Rows || rows <= float64(a.Rows) {
		return a.Rate
	}
	at := math.Log(rows/float64(a.Rows)) / math.Log(float64(b.Rows)/float64(a.Rows))
	return a.Rate * math.Pow(b.Rate/a.Rate, min(1, at))
}

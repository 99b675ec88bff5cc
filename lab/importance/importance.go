// Package importance measures how large the inputs of a model's matrices are on a text: the
// importance matrix that quantizers weigh errors by.
package importance

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/checkpoint/imatrix"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// Options say what is measured.
type Options struct {
	Window   int // tokens that begin from an empty state
	Progress func(done, total int)
}

// stepTokens is how many tokens' activations are in memory at a time.
const stepTokens = 64

// Run feeds the tokens to the model in dir, which open opens with values kept as outputs, and sums
// the squares of the inputs of each matrix, under the tensor's name in a GGUF file. Experts have
// sums of their own, of the tokens that chose them. Matrices whose inputs are no value of the graph
// have no entry: down projections of experts, and those of single heads.
func Run(ctx context.Context, dir string, open func(dir string, keep []string) (*krait.Model, error), ids []int, o Options) (*imatrix.Matrix, error) {
	if len(ids) == 0 || o.Window < 1 {
		return nil, fmt.Errorf("%d tokens in windows of %d; at least one is needed", len(ids), o.Window)
	}
	c, err := checkpoint.Open(dir)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	g, err := c.GGUF("", checkpoint.Mixtures["f32"])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	s := &sums{tensors: map[string]*imatrix.Entry{}}
	for _, n := range c.Graph.Nodes {
		s.find(n)
	}
	m, err := open(dir, s.keep)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	out := &imatrix.Matrix{ChunkTokens: o.Window, Entries: map[string]*imatrix.Entry{}}
	if err := s.feed(ctx, m, ids, o); err != nil {
		return nil, err
	}
	out.Chunks = (len(ids) + o.Window - 1) / o.Window
	for _, t := range g.Tensors {
		if e := s.entry(t.From); e != nil && strings.HasSuffix(t.Tensor.Name, ".weight") {
			out.Entries[t.Tensor.Name] = e
		}
	}
	return out, nil
}

// sums are the sums of squares of a model's activations.
type sums struct {
	uses    []use
	keep    []string
	tensors map[string]*imatrix.Entry
}

// use is an activation that a tensor is multiplied with.
type use struct {
	x, weights string // weights are those of the experts, empty without
	tensor     string
	expert     int // -1: the tensor has all
}

// find notes what a node multiplies.
func (s *sums) find(n *graph.Node) {
	last := map[string]int{"matmul": 1, "experts": 3, "ungated_experts": 2}[n.Op.Name]
	first := min(last, 2)
	if last == 0 {
		return
	}
	x := n.Args[0]
	for _, w := range n.Args[first : last+1] {
		for w.Def.Op.Name == "field" && w.Def.Attrs.Int("axis") != len(w.Type.Dims)-1 {
			w = w.Def.Args[0]
		}
		if w.Def.Storage == nil || w.Def.Storage.Perm != nil {
			continue
		}
		experts := 1
		u := use{x: x.Name, expert: -1}
		if first == 2 {
			u.weights, experts = n.Args[1].Name, w.Type.Dims[0].Len()
		}
		for i, piece := range w.Def.Storage.Pieces {
			u.tensor = piece.Tensor
			matrices := experts
			if count := len(w.Def.Storage.Pieces); first == 2 && count > 1 && count%experts == 0 {
				u.expert, matrices = i/(count/experts), 1
			}
			s.add(u, matrices, graph.RowElems(x.Type.Dims))
		}
	}
}

func (s *sums) add(u use, matrices, cols int) {
	if slices.Contains(s.uses, u) {
		return
	}
	s.uses = append(s.uses, u)
	for _, name := range []string{u.x, u.weights} {
		if name != "" && !slices.Contains(s.keep, name) {
			s.keep = append(s.keep, name)
		}
	}
	if s.tensors[u.tensor] == nil {
		s.tensors[u.tensor] = &imatrix.Entry{Sums: make([]float32, matrices*cols), Counts: make([]float32, matrices)}
	}
}

// entry is that of a tensor of a file, made of some; nil if one of them has none.
func (s *sums) entry(from []string) *imatrix.Entry {
	out := &imatrix.Entry{}
	for _, name := range from {
		e := s.tensors[name]
		if e == nil {
			return nil
		}
		out.Sums, out.Counts = append(out.Sums, e.Sums...), append(out.Counts, e.Counts...)
	}
	if len(out.Counts) == 0 {
		return nil
	}
	return out
}

// feed runs the model over windows of the text.
func (s *sums) feed(ctx context.Context, m *krait.Model, ids []int, o Options) error {
	slot, err := m.Engine().Alloc()
	if err != nil {
		return err
	}
	defer m.Engine().Free(slot)
	done := 0
	for window := range slices.Chunk(ids, o.Window) {
		if err := m.Engine().Reset(slot); err != nil {
			return err
		}
		for tokens := range slices.Chunk(window, stepTokens) {
			q := exec.Sequence{Slot: slot, Tokens: tokens}
			for j := range tokens {
				q.Rows = append(q.Rows, j)
			}
			r, err := m.Engine().Step(ctx, &exec.Batch{Sequences: []exec.Sequence{q}})
			if err != nil {
				return err
			}
			if err := s.count(&r); err != nil {
				return err
			}
			if done += len(tokens); o.Progress != nil {
				o.Progress(done, len(ids))
			}
		}
	}
	return nil
}

// count adds what a step computed.
func (s *sums) count(r *exec.Results) error {
	for _, u := range s.uses {
		x, err := r.Output(u.x)
		if err != nil {
			return err
		}
		var chosen kernels.Tensor
		if u.weights != "" {
			if chosen, err = r.Output(u.weights); err != nil {
				return err
			}
		}
		e := s.tensors[u.tensor]
		for i := range x.Rows() {
			for k := range e.Counts {
				if expert := max(k, u.expert); u.weights == "" || chosen.Row(i)[expert] != 0 {
					e.Add(k, x.Row(i))
				}
			}
		}
	}
	return nil
}

package lowering

import (
	"fmt"

	"github.com/krait-ml/krait/graph"
)

// Lower makes the schedule of a graph for one rank. A graph that does not check,
// or that is for more ranks, is an error.
func Lower(g *graph.Graph) (*Schedule, error) {
	if err := graph.Check(g); err != nil {
		return nil, err
	}
	if g.Ranks != 1 {
		return nil, fmt.Errorf("the graph is for %d ranks; schedules are made for one rank", g.Ranks)
	}
	l := &lowerer{
		s:     &Schedule{Name: g.Name, Ranks: g.Ranks},
		ref:   make([]Ref, g.Len()),
		alive: lastUses(g),
	}
	for i, n := range g.Nodes {
		if err := l.node(n); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", n.Name(), n.Op.Name, err)
		}
		l.release(i)
	}
	for _, o := range g.Outputs {
		l.s.Outputs = append(l.s.Outputs, Output{o.Name, l.ref[o.Value.ID]})
	}
	for i, a := range l.arena {
		l.s.Bytes[i] += a.peak
	}
	return l.s, nil
}

type lowerer struct {
	s     *Schedule
	ref   []Ref // by value id
	arena [len(spaceNames)]arena
	alive []int // by value id: the node after which its buffer is free
	ends  map[int][]int
}

// lastUses finds for every value the last node that needs its bytes: a view
// keeps what it looks at alive, an output is needed to the end.
func lastUses(g *graph.Graph) []int {
	last := make([]int, g.Len())
	base := make([]int, g.Len())
	for i, n := range g.Nodes {
		for j, v := range n.Results {
			base[v.ID] = v.ID
			if n.Op.Class == graph.View || n.Op.Class == graph.Collective || n.Op.Class == graph.Relayout {
				base[v.ID] = base[n.Args[j].ID]
			}
			last[base[v.ID]] = i
		}
		for _, v := range n.Args {
			last[base[v.ID]] = i
		}
	}
	for _, o := range g.Outputs {
		last[base[o.Value.ID]] = len(g.Nodes)
	}
	return last
}

func (l *lowerer) node(n *graph.Node) error {
	switch n.Op.Class {
	case graph.Leaf:
		return l.leaf(n)
	case graph.View:
		return l.view(n)
	case graph.Collective, graph.Relayout:
		// On one rank every layout is the same bytes.
		for i, v := range n.Results {
			l.ref[v.ID] = l.ref[n.Args[i].ID]
		}
		return nil
	}
	return l.launch(n)
}

func (l *lowerer) leaf(n *graph.Node) error {
	v := n.Results[0]
	space := map[string]Space{"param": Param, "state": State, "input": Input}[n.Op.Name]
	bytes := int64(rowElems(v.Type.Dims) * v.Type.DType.Bytes())
	if space == Param && len(v.Type.Dims) > 0 {
		bytes *= int64(v.Type.Dims[0].Len())
	}
	l.buffer(v, space, l.s.Bytes[space], bytes)
	l.s.Bytes[space] += bytes
	return nil
}

func (l *lowerer) buffer(v *graph.Value, space Space, offset, bytes int64) {
	l.ref[v.ID] = Ref{Buffer: len(l.s.Buffers), Stride: rowElems(v.Type.Dims), Dims: v.Type.Dims}
	l.s.Buffers = append(l.s.Buffers, Buffer{v, space, offset, bytes})
}

// view makes no step: kernels read strides.
func (l *lowerer) view(n *graph.Node) error {
	of, v := n.Args[0], n.Results[0]
	r := l.ref[of.ID]
	axis := n.Attrs.Int("axis")
	_, _, start, _ := of.Type.Dims[axis].Field(n.Attrs.Text("name"))
	switch {
	case axis == 0:
		r.Offset += start * r.Stride
	case axis == 1 && len(of.Type.Dims) == 2:
		r.Offset += start
	default:
		return fmt.Errorf("a field of axis %d of %s: only the first axis, or the second of two, can be viewed", axis, of.Type)
	}
	r.Dims = v.Type.Dims
	l.ref[v.ID] = r
	return nil
}

func (l *lowerer) launch(n *graph.Node) error {
	st := Step{Name: n.Name(), Op: n.Op, Attrs: n.Attrs, Cost: n.Cost()}
	constant := len(n.Args) > 0
	for _, v := range n.Args {
		r := l.ref[v.ID]
		st.Args = append(st.Args, r)
		if s := l.s.Buffers[r.Buffer].Space; s != Param && s != Constant {
			constant = false
		}
	}
	for _, p := range n.Op.States {
		l.ref[n.Results[p.Result].ID] = st.Args[p.Operand] // in place
	}
	for _, v := range n.Results {
		if l.ref[v.ID].Dims == nil {
			if err := l.result(v, constant); err != nil {
				return err
			}
		}
		st.Results = append(st.Results, l.ref[v.ID])
	}
	if constant {
		l.s.Init = append(l.s.Init, st)
	} else {
		l.s.Steps = append(l.s.Steps, st)
	}
	return nil
}

// result finds memory for a result: where depends on the symbol in its shape.
func (l *lowerer) result(v *graph.Value, constant bool) error {
	space := Fixed
	bytes := int64(v.Type.DType.Bytes())
	for i, d := range v.Type.Dims {
		switch {
		case d.Sym == 0:
			bytes *= int64(d.Len())
		case i > 0:
			return fmt.Errorf("%s: only the first axis of a result may be a symbol", v.Type)
		case d.Sym == graph.Tokens:
			space = PerToken
		case d.Sym == graph.Seqs:
			space = PerSeq
		case d.Sym == graph.Rows:
			space = PerRow
		default:
			return fmt.Errorf("%s: a result cannot be as long as %s", v.Type, d)
		}
	}
	if constant {
		space = Constant
	}
	l.buffer(v, space, l.arena[space].take(bytes), bytes)
	if space != Constant {
		if l.ends == nil {
			l.ends = map[int][]int{}
		}
		l.ends[l.alive[v.ID]] = append(l.ends[l.alive[v.ID]], l.ref[v.ID].Buffer)
	}
	return nil
}

// release gives back the buffers whose last use was node i.
func (l *lowerer) release(i int) {
	for _, id := range l.ends[i] {
		b := l.s.Buffers[id]
		l.arena[b.Space].give(b.Offset, b.Bytes)
	}
}

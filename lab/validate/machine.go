package validate

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/kernels/reference"
)

// machine runs nodes of one graph, on all its ranks, by the types that the graph
// has written. Its results stay until the section is done.
type machine struct {
	*runner
	ranks  int
	over   graph.Mesh // of the ranks, by which values lie
	rounds bool       // payloads, as quantize says
	params map[*graph.Value][]kernels.Tensor
	values map[*graph.Value][]kernels.Tensor // by rank
	beyond string                            // the first value that left the range of its payload's format
}

func (r *runner) machine(g *graph.Graph) *machine {
	return &machine{runner: r, ranks: g.Ranks, over: over(g), params: map[*graph.Value][]kernels.Tensor{}, values: map[*graph.Value][]kernels.Tensor{}}
}

// rounding is a machine with the same parameters that rounds payloads.
func (m *machine) rounding() *machine {
	other := m.machine(m.partition)
	other.params, other.rounds = m.params, true
	return other
}

// valueError says at which value a run ended.
type valueError struct {
	v   *graph.Value
	err error
}

func (e *valueError) Error() string { return e.v.Name + ": " + e.err.Error() }
func (e *valueError) Unwrap() error { return e.err }

// skip is why something cannot be executed, which does not mean that it is wrong.
type skip string

func (s skip) Error() string { return string(s) }

// run computes a section. Results before an error stay.
func (m *machine) run(ctx context.Context, h *half) error {
	for _, v := range slices.Concat(h.leaves, h.given) {
		if err := m.guard(v, func() error { return m.give(v) }); err != nil {
			return err
		}
	}
	for _, n := range h.nodes {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := m.guard(n.Results[0], func() error { return m.node(n) }); err != nil {
			return err
		}
	}
	return nil
}

// guard turns a panic, which comes of shapes that do not fit, into an error.
func (m *machine) guard(v *graph.Value, f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
		if err != nil {
			err = &valueError{v, err}
		}
	}()
	return f()
}

// each runs f for every rank, some at a time, and returns the error of the first rank that has one.
func (m *machine) each(f func(rank int) error) error {
	errs := make([]error, m.ranks)
	var done sync.WaitGroup
	for rank := range m.ranks {
		m.workers <- struct{}{}
		done.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					errs[rank] = fmt.Errorf("%v", p)
				}
				<-m.workers
			}()
			errs[rank] = f(rank)
		})
	}
	done.Wait()
	for rank, err := range errs {
		if err != nil && m.ranks > 1 {
			return fmt.Errorf("rank %d: %w", rank, err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// give makes what the section does not compute.
func (m *machine) give(v *graph.Value) error {
	if v.Def.Op.Name == "param" {
		return m.param(v)
	}
	o, ok := m.origin(v)
	switch {
	case !ok && v.Def.Op.Class == graph.Leaf:
		return fmt.Errorf("the source has no such %s", v.Def.Op.Name)
	case !ok:
		return skip(fmt.Sprintf("%s comes from elsewhere, and the source has no such value", v.Name))
	case !sameShape(o.typ(), v.Type):
		return fmt.Errorf("is %s, and in the source %s", v.Type, o.typ())
	}
	whole, err := m.whole(o)
	if err != nil {
		return err
	}
	parts, err := m.empty(v)
	if err != nil {
		return err
	}
	switch {
	case m.over.Along(graph.CP) > 1 && whole.DType != graph.I32:
		return m.giveOn(v, &whole)
	case whole.DType == graph.I32:
		if v.Type.Lies() || v.Type.DType != graph.I32 {
			return fmt.Errorf("is %s; integers are whole on every rank", v.Type)
		}
		for r := range parts {
			parts[r].I32 = whole.I32
		}
	case v.Type.Layout.Kind == graph.Partial:
		summands(&whole, parts, newStream(m.seed, "summands "+v.Name))
	default:
		for r := range parts {
			cut(m.lot, &parts[r], &whole, v.Type, m.ranks, r)
		}
	}
	m.values[v] = parts
	return nil
}

// whole makes the contents of a value, or of a field of one.
func (r *runner) whole(o origin) (kernels.Tensor, error) {
	x, err := r.contents(o.value)
	if err != nil || o.field == "" {
		return x, err
	}
	if x, err = floats(x); err != nil {
		return x, err
	}
	to, err := describe(r.lot, o.value, o.typ(), 1, 0)
	if err != nil {
		return x, err
	}
	allocate(&to, o.typ())
	return to, takeField(r.lot, &to, &x, graph.TypeOf(o.value.Type.DType, o.value.Type.Dims...), o.axis, o.field, 1, 0)
}

// contents makes the contents of a value of the source once. They are not changed.
func (r *runner) contents(v *graph.Value) (kernels.Tensor, error) {
	r.mu.Lock()
	get := r.known[v]
	if r.known == nil {
		r.known = map[*graph.Value]func() (kernels.Tensor, error){}
	}
	if get == nil {
		get = sync.OnceValues(func() (kernels.Tensor, error) { return r.newContents(v) })
		r.known[v] = get
	}
	r.mu.Unlock()
	return get()
}

// newContents are those of the batch; values put side by side in another section have what each
// of them has there, since others may take these by their own names.
func (r *runner) newContents(v *graph.Value) (kernels.Tensor, error) {
	x, err := r.batch.contents(v)
	if err != nil || v.Def.Op.Name != "concat" || x.F64 == nil {
		return x, err
	}
	at := 0
	for _, part := range v.Def.Args {
		p, err := r.contents(same(part))
		if err != nil {
			return x, err
		}
		for i := range x.Rows() {
			copy(x.F64[i*x.Stride+at:][:p.Cols], p.F64[i*p.Stride:])
		}
		at += p.Cols
	}
	return x, nil
}

func (m *machine) param(v *graph.Value) error {
	if v.Type.Layout.Kind == graph.Partial {
		return fmt.Errorf("is %s; what is read from a file is no sum over ranks", v.Type)
	}
	if m.params[v] == nil {
		parts := make([]kernels.Tensor, m.ranks)
		err := m.each(func(rank int) (err error) {
			_, ranks, at := m.over.Share(v.Type, graph.TP, rank)
			parts[rank], err = m.checkpoint.load(v, ranks, at)
			return err
		})
		if err != nil {
			return err
		}
		m.params[v] = parts
	}
	m.values[v] = m.params[v]
	return nil
}

// empty describes what the ranks will hold of a value, zeros for now.
func (m *machine) empty(v *graph.Value) ([]kernels.Tensor, error) {
	parts := make([]kernels.Tensor, m.ranks)
	for r := range parts {
		x, err := describeOn(m.lot, v, m.over, r)
		if err != nil {
			return nil, err
		}
		if x.DType == graph.F64 {
			allocate(&x, v.Type)
		} else if v.Def.Op.Class != graph.Leaf {
			x.I32 = make([]int32, lines(&x, v.Type)*x.Cols)
		}
		parts[r] = x
	}
	return parts, nil
}

func (m *machine) node(n *graph.Node) error {
	for _, v := range n.Args {
		if m.values[v] == nil {
			return fmt.Errorf("%s takes %s, which is not there yet", n.Op.Name, v.Name)
		}
	}
	for _, v := range n.Results {
		parts, err := m.empty(v)
		if err != nil {
			return err
		}
		m.values[v] = parts
	}
	err := m.do(n)
	for _, v := range n.Results {
		if err != nil {
			delete(m.values, v)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", n.Op.Name, err)
	}
	return nil
}

func (m *machine) do(n *graph.Node) error {
	switch {
	case n.Op.Name == "field":
		x, y := n.Args[0], n.Results[0]
		return m.each(func(r int) error {
			from, err := floats(m.values[x][r])
			if err != nil {
				return err
			}
			share, ranks, at := m.over.Share(x.Type, graph.TP, r)
			return takeField(m.lot, &m.values[y][r], &from, share, n.Attrs.Int("axis"), n.Attrs.Text("name"), ranks, at)
		})
	case n.Op.Class == graph.Collective || n.Op.Class == graph.Relayout:
		return m.exchange(n)
	}
	if err := m.compute(n); err != nil {
		return err
	}
	if n.Op.Name == "quantize" && m.rounds {
		for _, x := range m.values[n.Results[0]] {
			m.round(n.Results[0], &x)
		}
	}
	return nil
}

// compute runs the reference kernel. A new state is the memory of the old one.
func (m *machine) compute(n *graph.Node) error {
	kernel, ok := reference.Kernels[n.Op.Name]
	if !ok {
		return skip("there is no reference kernel for " + n.Op.Name)
	}
	for i, v := range n.Args {
		if v.Type.DType == graph.I32 && v.Def.Op.Class != graph.Leaf && !counted(v) {
			return skip(fmt.Sprintf("operand %d (%s) is integers that are computed", i, v.Name))
		}
	}
	for _, p := range n.Op.States {
		for r, old := range m.values[n.Args[p.Operand]] {
			y := &m.values[n.Results[p.Result]][r]
			if len(y.F64) != len(old.F64) {
				return fmt.Errorf("rank %d: %s has %d elements, and %s, which replaces it, %d",
					r, n.Args[p.Operand].Name, len(old.F64), n.Results[p.Result].Name, len(y.F64))
			}
			if y.F64 = old.F64; !isState(n.Args[p.Operand]) { // of parts, which are compared as they were
				y.F64 = slices.Clone(old.F64)
			}
		}
	}
	return m.each(func(rank int) error {
		c := &kernels.Call{Attrs: n.Attrs}
		for _, v := range n.Args {
			c.Args = append(c.Args, m.values[v][rank])
		}
		for _, v := range n.Results {
			c.Results = append(c.Results, m.values[v][rank])
		}
		for _, p := range n.Op.States {
			c.Args[p.Operand].F64 = c.Results[p.Result].F64
		}
		if n.Op.Name == "matmul" {
			multiplied, ok := m.checkpoint.multiply(c)
			if m.multiplied.Add(multiplied); ok {
				return nil
			}
			m.multiplied.Add(int64(c.Args[0].Rows()) * int64(c.Args[1].Rows()) * int64(c.Args[1].Cols))
		}
		kernel.Run(c, 0, kernel.Units(c))
		return nil
	})
}

// round rounds what travels as v to the format of its type.
func (m *machine) round(v *graph.Value, t *kernels.Tensor) {
	row := make([]float32, max(1, t.Cols))
	for x := t.F64; len(x) > 0; x = x[len(row):] {
		for i := range row {
			row[i] = float32(x[i])
		}
		kernels.Round(v.Type.DType, row)
		for i, f := range row {
			if x[i] = float64(f); f-f != 0 && m.beyond == "" {
				m.beyond = v.Name
			}
		}
	}
}

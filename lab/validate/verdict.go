package validate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// infinite says which value of the source is no number: then there is nothing to compare with.
func (m *machine) infinite(h *half) string {
	for _, v := range h.results() {
		for _, x := range m.values[v][0].F64 {
			if math.IsNaN(x) || math.IsInf(x, 0) {
				return fmt.Sprintf("%s has %g in the source", v.Name, x)
			}
		}
	}
	return ""
}

// compareAll compares values of the partitioned graph, as far as it has come, and
// says which is the first that differs.
func (r *runner) compareAll(values []*graph.Value, source, partition *machine, p *Part) error {
	var first error
	for _, v := range values {
		d, ok, err := r.compareValue(v, source, partition)
		if ok && err == nil {
			p.Values++
			if d.far > p.Difference {
				p.Difference, p.Worst = d.far, v.Name
			}
			if d.far > tolerance || d.wrong != "" {
				err = errors.New(d.text(partition.ranks))
			}
		}
		if err != nil && first == nil {
			first = fmt.Errorf("%s: %w", v.Name, err)
		}
	}
	p.Difference = min(p.Difference, math.MaxFloat64)
	return first
}

// compareValue compares one value, if the source has it.
func (r *runner) compareValue(v *graph.Value, source, partition *machine) (d difference, ok bool, err error) {
	o, ok := r.origin(v)
	parts := partition.values[v]
	if !ok || parts == nil || counted(v) { // ranks count rows among what they hold
		return d, false, nil
	}
	if !sameShape(o.typ(), v.Type) {
		if transparent(v.Def) || r.leaves[o.value] {
			return d, false, fmt.Errorf("is %s, and in the source %s", v.Type, o.typ())
		}
		return d, false, nil
	}
	want, err := r.reference(o, v, source)
	if err != nil {
		return d, false, err
	}
	err = partition.guard(v, func() error {
		if partition.over.Along(graph.CP) > 1 {
			d, err = compareOn(r.lot, v, partition.over, parts, &want)
			return err
		}
		d = compare(r.lot, v.Type, partition.ranks, parts, &want)
		return nil
	})
	return d, true, err
}

// reference is what the source has of a value: computed in the section, or given.
func (r *runner) reference(o origin, v *graph.Value, source *machine) (kernels.Tensor, error) {
	if source.values[o.value] == nil {
		if !transparent(v.Def) && o.value.Def.Op.Class != graph.Leaf {
			return kernels.Tensor{}, fmt.Errorf("the source computes it in %s", Part{Blocks: []string{o.value.Def.Block()}}.where())
		}
		if o.value.Def.Op.Name != "param" {
			return r.whole(o)
		}
		if err := source.param(o.value); err != nil {
			return kernels.Tensor{}, err
		}
	}
	x, err := floats(source.values[o.value][0])
	if err != nil || o.field == "" {
		return x, err
	}
	to, err := describe(r.lot, o.value, o.typ(), 1, 0)
	if err != nil {
		return to, err
	}
	allocate(&to, o.typ())
	return to, takeField(r.lot, &to, &x, o.value.Type, o.axis, o.field, 1, 0)
}

// complete checks that everything that leaves the section was compared, that no
// state was forgotten, and that states of slots that are not used are as before.
func (r *runner) complete(s *section, source, partition *machine) error {
	have := map[string]bool{} // what was compared
	for _, v := range slices.Concat(s.partition.results(), s.partition.states()) {
		if o, ok := r.origin(v); ok {
			have[o.String()] = true
		}
	}
	for _, v := range s.source.results() {
		if r.leaves[v] && !have[v.Name] && !hasFields(v, have) {
			if err := r.absent(v); err != nil {
				return err
			}
		}
	}
	for _, v := range s.source.states() {
		if !have[v.Name] && !hasFields(v, have) {
			return fmt.Errorf("%s: the partitioned graph does not keep this state", v.Name)
		}
	}
	for _, v := range s.source.states() {
		if err := source.untouched(v); err != nil {
			return err
		}
	}
	for _, v := range s.partition.states() {
		if err := partition.untouched(v); err != nil {
			return err
		}
	}
	return nil
}

// absent is what it means that a value that leaves the section was not compared.
func (r *runner) absent(v *graph.Value) error {
	if other, ok := r.partition.Value(v.Name); ok {
		return fmt.Errorf("%s: the partitioned graph computes it in %s", v.Name, Part{Blocks: []string{other.Def.Block()}}.where())
	}
	if v.Def.Op.Name == "concat" && !slices.ContainsFunc(v.Def.Args, func(part *graph.Value) bool { _, ok := r.partition.Value(same(part).Name); return !ok }) {
		return nil // those who take it take what was put side by side, by its own names
	}
	return skip(v.Name + " leaves it in the source, and the partitioned graph has no value of that name")
}

// hasFields reports whether some axis of v is there field by field.
func hasFields(v *graph.Value, have map[string]bool) bool {
	return slices.ContainsFunc(v.Type.Dims, func(d graph.Dim) bool {
		return len(d.Fields) > 1 && !slices.ContainsFunc(d.Fields, func(f graph.Field) bool { return !have[v.Name+"."+f.Name] })
	})
}

// untouched checks the slot of a state that no sequence has.
func (m *machine) untouched(v *graph.Value) error {
	o, _ := m.origin(v)
	whole, err := m.whole(o)
	if err != nil {
		return err
	}
	before := slotOf(&whole)
	for r := range m.values[v] {
		after := slotOf(&m.values[v][r])
		want := after
		want.F64 = make([]float64, len(after.F64))
		share, ranks, at := m.over.Share(v.Type, graph.TP, r)
		if err := lay(m.lot, &want, &before, v, share, ranks, at); err != nil {
			return err
		}
		if !slices.Equal(after.F64, want.F64) {
			return fmt.Errorf("%s: rank %d has changed the state of a slot that no sequence of the batch has", v.Name, r)
		}
	}
	return nil
}

// slotOf is the slot of a state that no sequence has.
func slotOf(x *kernels.Tensor) kernels.Tensor {
	one, n := *x, len(x.F64)/slots
	one.Dims[0], one.F64 = 1, x.F64[unused*n:(unused+1)*n]
	return one
}

// rounded runs the partitioned graph again as it will run, and compares what leaves the section.
func (r *runner) rounded(ctx context.Context, s *section, source, m *machine, p *Part) error {
	if err := m.run(ctx, &s.partition); err != nil {
		return fmt.Errorf("with payloads rounded: %w", err)
	}
	if p.Overflow = m.beyond; m.beyond != "" {
		return nil
	}
	for _, v := range s.partition.results() {
		if o, ok := r.origin(v); !ok || !r.leaves[o.value] {
			continue
		}
		d, ok, err := r.compareValue(v, source, m)
		if err != nil {
			return fmt.Errorf("%s: with payloads rounded: %w", v.Name, err)
		}
		if ok {
			p.Rounded = max(p.Rounded, d.far)
		}
	}
	p.Rounded = min(p.Rounded, math.MaxFloat64)
	return nil
}

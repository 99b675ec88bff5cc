package graph

import (
	"fmt"
	"slices"
	"strings"
)

// derive says how the results lie over the ranks, given how the operands do.
// It refuses every combination that the rule does not make right.
func (b *binding) derive(in []Type, op *Op, ranks int) ([]Layout, error) {
	if b.ofParts() {
		return b.deriveParts(in, ranks)
	}
	out := make([]Layout, len(b.rule.out))
	index, err := b.cutIndex(in, ranks)
	if err != nil {
		return nil, err
	}
	partial, err := sumOf(in, op.Linear)
	switch {
	case err != nil:
		return nil, err
	case partial && index != "":
		return nil, fmt.Errorf("an operand is a partial sum and another is split on %c: reduce or gather one first", index[0])
	case partial:
		for i := range out {
			out[i].Kind = Partial
		}
		return out, nil
	case index == "":
		return out, nil
	}
	if b.symbolic(index[0]) {
		return b.deriveRows(in, op, index)
	}
	if n, _ := b.product(index); n == 0 {
		return nil, fmt.Errorf("split on (%s), which is empty", index)
	}
	own, err := b.owners(in, index, ranks)
	if err != nil {
		return nil, err
	}
	for i := range in {
		if err := b.needs(i, in[i], index, own, ranks); err != nil {
			return nil, err
		}
	}
	if err := b.alike(in, op.States, index, ranks); err != nil {
		return nil, err
	}
	for i, axes := range b.rule.out {
		if out[i], err = b.placeResult(b.resultType(axes), axes, index, own, ranks); err != nil {
			return nil, err
		}
	}
	return out, b.keepStates(in, out, op.States, index, ranks)
}

// keepStates lets a state of groups stay as it lies: each rank makes the groups
// that it holds anew, from operands that must have them.
func (b *binding) keepStates(in []Type, out []Layout, states []StatePair, index string, ranks int) error {
	for _, p := range states {
		for _, a := range b.rule.in[p.Operand] {
			if lead := a.lead(); lead == "" || lead[0] != index[0] || lead == index {
				continue
			}
			for i := range in {
				if err := b.carries(i, in[i], p.Operand, in[p.Operand], a, ranks); err != nil {
					return err
				}
			}
			out[p.Result] = in[p.Operand].Layout
		}
	}
	return nil
}

// carries checks that operand i, if it has the groups of a, has all those that the state holds.
func (b *binding) carries(i int, t Type, state int, s Type, a axis, ranks int) error {
	j := slices.IndexFunc(b.rule.in[i], func(x axis) bool { return x.letters == a.letters })
	if j < 0 || t.Layout.Kind == Replicated {
		return nil
	}
	if s.Layout.Kind == Replicated {
		return fmt.Errorf("operand %d is whole on every rank, and operand %d has only some of its %s", state, i, a)
	}
	for r := range ranks {
		has, wants := t.Extents(nil, ranks, r)[0], s.Extents(nil, ranks, r)[0]
		if wants.Len > 0 && (has.Start > wants.Start || has.End() < wants.End()) {
			return fmt.Errorf("operand %d holds %v of %s on rank %d, and operand %d has %v", state, wants, a, r, i, has)
		}
	}
	return nil
}

// sumOf reports whether the operands make the results partial: all operands of
// one linear group are partial sums and no other operand is.
func sumOf(in []Type, linear [][]int) (bool, error) {
	var parts []int
	for i, t := range in {
		if t.Layout.Kind == Partial {
			parts = append(parts, i)
		}
	}
	if len(parts) == 0 {
		return false, nil
	}
	for _, g := range linear {
		if !slices.Contains(g, parts[0]) {
			continue
		}
		for _, i := range g {
			if !slices.Contains(parts, i) {
				return false, fmt.Errorf("operand %d is a partial sum and operand %d is not; all_reduce the first, or make a term of the second", parts[0], i)
			}
		}
		for _, i := range parts {
			if !slices.Contains(g, i) {
				return false, fmt.Errorf("operands %d and %d are partial sums and are multiplied; all_reduce one first", parts[0], i)
			}
		}
		return true, nil
	}
	return false, fmt.Errorf("operand %d is a partial sum; all_reduce it first", parts[0])
}

// cutIndex finds the one index of the rule that the operands are split on.
func (b *binding) cutIndex(in []Type, ranks int) (string, error) {
	index := ""
	for i, t := range in {
		if t.Layout.Kind != Sharded {
			continue
		}
		a := b.rule.in[i][t.Layout.Axis]
		lead := a.lead()
		if lead == "" {
			return "", fmt.Errorf("operand %d is split on %s, which this operation cannot split", i, a)
		}
		switch x := b.rule.index(lead[0]); {
		case index != "" && index != x:
			return "", b.clash(i, x[0], index[0], ranks)
		default:
			index = x
		}
	}
	for _, axes := range b.rule.in {
		for _, a := range axes {
			if index != "" && strings.IndexByte(a.letters, index[0]) > 0 {
				return "", fmt.Errorf("an operand is split on %c, which %s walks inside", index[0], a)
			}
		}
	}
	return index, nil
}

// clash says why operands cannot be split on two letters. Where one of them is the rows
// of the batch, what a rank could compute is its rows of its part of the other only.
func (b *binding) clash(i int, x, y byte, ranks int) error {
	err := fmt.Errorf("operand %d is split on %c and another operand on %c: only one may be", i, x, y)
	if b.symbolic(x) == b.symbolic(y) {
		return err
	}
	return fmt.Errorf("%w: the %d ranks would have %d of the %d blocks of the product; all_gather the rows first", err, ranks, ranks, ranks*ranks)
}

// deriveRows says how results lie where the index is the rows of the batch: each rank has
// its rows of all operands that have any, and no two placements agree for every batch. States
// that no such operand goes into are made by all ranks.
func (b *binding) deriveRows(in []Type, op *Op, index string) ([]Layout, error) {
	own, first := Layout{}, -1
	for i, t := range in {
		for j, a := range b.rule.in[i] {
			switch {
			case a.lead() != index:
			case t.Layout.Kind != Sharded || t.Layout.Axis != j:
				return nil, fmt.Errorf("operand %d is whole on %s where another operand is split: shard it first", i, a)
			case first < 0:
				own, first = t.Layout, i
			case t.Layout.Place[0] != own.Place[0]:
				return nil, fmt.Errorf("operands %d and %d are split differently on %s: %s and %s", first, i, a, own.Place[0], t.Layout.Place[0])
			}
		}
	}
	out := make([]Layout, len(b.rule.out))
	for i, axes := range b.rule.out {
		out[i] = Layout{Kind: Partial}
		for j, a := range axes {
			if a.lead() == index {
				out[i] = Layout{Kind: Sharded, Axis: j, Place: own.Place}
			}
		}
	}
	for _, p := range op.States {
		out[p.Result] = in[p.Operand].Layout
	}
	return out, nil
}

// owned is what each rank owns of an index, in units, and the layout that says so.
type owned struct {
	runs   [][]Run
	layout Layout
}

// owners reads the ownership of the index off the operands that carry all of
// it, and checks that they agree.
func (b *binding) owners(in []Type, index string, ranks int) (owned, error) {
	var own owned
	first := -1
	for i, t := range in {
		for j, a := range b.rule.in[i] {
			if a.lead() != index {
				continue
			}
			if t.Layout.Kind != Sharded || t.Layout.Axis != j {
				return own, fmt.Errorf("operand %d is whole on %s where another operand is split: shard it first", i, a)
			}
			runs, err := b.unitRuns(t, a, ranks)
			if err != nil {
				return own, fmt.Errorf("operand %d is %w", i, err)
			}
			if first < 0 {
				own, first = owned{runs, t.Layout}, i
			} else if !sameRuns(runs, own.runs) {
				return own, fmt.Errorf("operands %d and %d are split differently on %s", first, i, a)
			}
		}
	}
	if first < 0 {
		return own, fmt.Errorf("an operand is split on %c and none carries the index (%s) that ranks own", index[0], index)
	}
	if len(index) > 1 && (len(own.layout.Place) > 1 || !own.layout.disjoint()) {
		return own, fmt.Errorf("operand %d: the index (%s) must be one field that ranks own disjointly", first, index)
	}
	return own, nil
}

// unitRuns are the extents of every rank in units of the axis's fixed tail.
func (b *binding) unitRuns(t Type, a axis, ranks int) ([][]Run, error) {
	tail, _ := b.product(a.tail())
	if tail == 0 {
		return nil, fmt.Errorf("split on %s, whose units are empty", a)
	}
	all := make([][]Run, ranks)
	for r := range ranks {
		runs := t.Extents(nil, ranks, r)
		for i, run := range runs {
			if run.Start%tail != 0 || run.Len%tail != 0 {
				return nil, fmt.Errorf("%s over %d ranks: rank %d starts or ends inside a unit of %d of %s", t, ranks, r, tail, a)
			}
			runs[i] = Run{run.Start / tail, run.Len / tail}
		}
		all[r] = runs
	}
	return all, nil
}

// needs checks that operand i holds on each rank the groups that the rank's
// range of the index touches.
func (b *binding) needs(i int, t Type, index string, own owned, ranks int) error {
	for j, a := range b.rule.in[i] {
		lead := a.lead()
		if lead == "" || len(lead) == len(index) || lead[0] != index[0] || t.Layout.Kind != Sharded {
			continue
		}
		held, err := b.unitRuns(t, a, ranks)
		if err != nil {
			return fmt.Errorf("operand %d is %w", i, err)
		}
		group, _ := b.product(index[len(lead):])
		for r := range ranks {
			want := covering(own.runs[r][0], group)
			if t.Layout.Axis != j || len(held[r]) != 1 || want.Len > 0 && (held[r][0].Start > want.Start || held[r][0].End() < want.End()) {
				return fmt.Errorf("operand %d: rank %d holds groups %v of %s and needs %v", i, r, held[r], a, want)
			}
		}
	}
	return nil
}

// alike checks that operands with the same groups, such as B and C of a scan, hold
// the same of them on each rank: kernels then find a head's group in one way.
func (b *binding) alike(in []Type, states []StatePair, index string, ranks int) error {
	first := map[string]int{}
	for i, t := range in {
		if slices.ContainsFunc(states, func(p StatePair) bool { return p.Operand == i }) {
			continue
		}
		for _, a := range b.rule.in[i] {
			if lead := a.lead(); lead == "" || lead[0] != index[0] || lead == index {
				continue
			}
			k, ok := first[a.letters]
			if !ok {
				first[a.letters] = i
				continue
			}
			for r := range ranks {
				if !slices.Equal(t.Extents(nil, ranks, r), in[k].Extents(nil, ranks, r)) {
					return fmt.Errorf("operands %d and %d hold different groups of %s on rank %d", k, i, a, r)
				}
			}
		}
	}
	return nil
}

// placeResult is the layout of a result under the ownership of the index. Where the result has the
// index, or its groups, it is split if a split gives each rank what comes of its range: extents are
// compared, since other axes than those that were split may say what a split of the result is.
func (b *binding) placeResult(result Type, axes []axis, index string, own owned, ranks int) (Layout, error) {
	for j, a := range axes {
		lead := a.lead()
		if lead == "" || lead[0] != index[0] {
			continue
		}
		result.Layout = Layout{Kind: Sharded, Axis: j, Place: own.layout.Place}
		if lead == index {
			if len(result.Dims[j].Fields) != len(own.layout.Place) || !b.liesAs(result, a, own.runs, 1, ranks) {
				return Layout{}, fmt.Errorf("the result %s has no layout that is split on (%s) as the operands are over %d ranks", result, index, ranks)
			}
			return result.Layout, nil
		}
		// The result has only the groups; the rest of the index is summed.
		group, _ := b.product(index[len(lead):])
		result.Layout = SplitOn(j, len(result.Dims[j].Fields))
		if b.liesAs(result, a, own.runs, group, ranks) {
			return result.Layout, nil
		}
		return Layout{Kind: Partial}, nil
	}
	if !own.layout.disjoint() {
		return Layout{}, fmt.Errorf("contracts %s, which has fields that every rank holds: they would be counted once per rank", index)
	}
	return Layout{Kind: Partial}, nil
}

// sameRuns reports whether every rank has the same of both; where an empty run
// begins does not matter.
func sameRuns(a, b [][]Run) bool {
	return slices.EqualFunc(a, b, func(a, b []Run) bool {
		return slices.EqualFunc(a, b, func(a, b Run) bool { return a == b || a.Len == 0 && b.Len == 0 })
	})
}

// liesAs reports whether each rank has of axis a of t, in units of size members,
// the runs of members given.
func (b *binding) liesAs(t Type, a axis, members [][]Run, size, ranks int) bool {
	units, err := b.unitRuns(t, a, ranks)
	for _, runs := range units {
		for i := range runs {
			runs[i] = Run{runs[i].Start * size, runs[i].Len * size}
		}
	}
	return err == nil && sameRuns(units, members)
}

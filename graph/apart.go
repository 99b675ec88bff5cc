package graph

import (
	"fmt"
	"slices"
	"strings"
)

// Apart is what a fused operation stands for: other operations, one after another. Values
// are numbered: first the operands, then the results, then those in between.
type Apart struct {
	Operands, Results int
	Like              []int // by value: the operand or result that has its shape
	Steps             []ApartStep
}

// ApartStep is one of the operations, with the numbers of its operands and results.
type ApartStep struct {
	Op            *Op
	Args, Results []int
}

// Apart is what a fused operation stands for, nil of one that is not fused.
func (op *Op) Apart() *Apart { return op.apart }

// readApart reads texts such as
//
//	x g w -> y: n(x) = rmsnorm x g; y = matmul n w
//
// where n has the shape of x. All operations on the right must be rows of the table.
func readApart(op *Op) *Apart {
	wrong := func(what string) { panic("BUG: what " + op.Name + " stands for: " + what) }
	head, body, ok := strings.Cut(op.Stands, ": ")
	operands, results, both := strings.Cut(head, " -> ")
	if !ok || !both {
		wrong("no head")
	}
	names := append(strings.Fields(operands), strings.Fields(results)...)
	a := &Apart{Operands: len(strings.Fields(operands)), Results: len(strings.Fields(results))}
	if a.Operands != len(op.Operands) {
		wrong(fmt.Sprint(len(op.Operands), " operands"))
	}
	for i := range names {
		a.Like = append(a.Like, i)
	}
	index := func(name string) int {
		i := slices.Index(names, name)
		if i < 0 {
			wrong("there is no " + name)
		}
		return i
	}
	for _, text := range strings.Split(body, "; ") {
		to, from, _ := strings.Cut(text, " = ")
		words := strings.Fields(from)
		step := ApartStep{Op: byName[words[0]]}
		if step.Op == nil || step.Op == op {
			wrong(words[0])
		}
		for _, name := range words[1:] {
			step.Args = append(step.Args, index(name))
		}
		for _, name := range strings.Fields(to) {
			if between, like, ok := strings.Cut(strings.TrimSuffix(name, ")"), "("); ok {
				a.Like, names, name = append(a.Like, index(like)), append(names, between), between
			}
			step.Results = append(step.Results, index(name))
		}
		a.Steps = append(a.Steps, step)
	}
	return a
}

// Whole is the same with what is fused in it taken apart, too.
func (a *Apart) Whole() *Apart {
	out := &Apart{Operands: a.Operands, Results: a.Results, Like: slices.Clone(a.Like)}
	for _, s := range a.Steps {
		inner := s.Op.apart
		if inner == nil {
			out.Steps = append(out.Steps, s)
			continue
		}
		inner = inner.Whole()
		to := slices.Concat(s.Args, s.Results)
		for _, like := range inner.Like[len(to):] {
			to = append(to, len(out.Like))
			out.Like = append(out.Like, out.Like[to[like]])
		}
		for _, t := range inner.Steps {
			out.Steps = append(out.Steps, ApartStep{t.Op, renumbered(t.Args, to), renumbered(t.Results, to)})
		}
	}
	return out
}

func renumbered(values, to []int) []int {
	out := make([]int, len(values))
	for i, v := range values {
		out[i] = to[v]
	}
	return out
}

// AttrsOf are those attributes of a fused operation that a step of it has.
func (s *ApartStep) AttrsOf(of Attrs) Attrs {
	out := Attrs{}
	for _, a := range s.Op.Attrs {
		if v, ok := of[a.Name]; ok {
			out[a.Name] = v
		}
	}
	return out
}

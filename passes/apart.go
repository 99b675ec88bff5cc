package passes

import (
	"fmt"
	"slices"

	"github.com/krait-ml/krait/graph"
)

// apart reports whether an operand of an all_reduce has summands and sums that travel in
// formats of their own.
func (q *quantizer) apart(n *graph.Node, v *graph.Value) bool {
	return q.payload(n, v).Apart && !q.statistics[v]
}

// sumApart does an all_reduce in two: each rank gets the summands of a share of the rows, decodes
// and adds them in f32, rank 0 first, and sends all what it has. Operands that leave the operation
// in other formats travel along, as many launches as there are kinds of rows.
func (q *quantizer) sumApart(n *graph.Node) error {
	if a, ok := n.Along(); ok {
		return fmt.Errorf("%s: summands and sums in formats of their own share out the tokens of an all_reduce along %s, which ranks along cp have in parts; on a mesh of two axes give fp16 or bf16", n.Args[0].Name, a)
	}
	var kinds []graph.Sym
	for _, v := range n.Args {
		d := v.Type.Dims
		if len(d) == 0 || d[0].Sym == 0 {
			return fmt.Errorf("%s is %s, which has no rows to share out; codecs are for rows of a batch: leave %[1]s out, or say %[1]s=none", v.Name, v.Type)
		}
		if !slices.Contains(kinds, d[0].Sym) {
			kinds = append(kinds, d[0].Sym)
		}
	}
	args := q.args(n)
	for _, kind := range kinds {
		e := exchange{quantizer: q, of: n}
		for i, v := range n.Args {
			if v.Type.Dims[0].Sym == kind {
				e.values, e.args = append(e.values, i), append(e.args, args[i])
			}
		}
		if err := e.run(); err != nil {
			return err
		}
	}
	return nil
}

// exchange is a sum of operands with the same rows, in two collectives.
type exchange struct {
	*quantizer
	of     *graph.Node
	values []int // operands of the node
	args   []*graph.Value
}

func (e *exchange) run() error {
	scattered, err := e.scatter()
	if err != nil {
		return err
	}
	return e.gather(scattered)
}

// formats are those of summand and sum of an operand; NoDType: it stays as it is.
func (e *exchange) formats(i int) (summand, sum graph.DType) {
	v := e.of.Args[i]
	if !e.rounds(e.of, v) && !e.apart(e.of, v) {
		return graph.NoDType, graph.NoDType
	}
	p := e.payload(e.of, v)
	return p.DType, p.Gather
}

// scatter sums each rank's share of the rows.
func (e *exchange) scatter() ([]*graph.Value, error) {
	attrs := graph.CutAttrs(graph.SplitRows(graph.Even))
	attrs["acc"] = "f32"
	args, names := slices.Clone(e.args), []string(nil)
	for k, i := range e.values {
		v := e.of.Args[i]
		names = append(names, v.Name+"_own")
		d, _ := e.formats(i)
		if d == graph.NoDType {
			continue
		}
		if d.Float() {
			names[k] += "_q"
		}
		var err error
		if args[k], err = e.convert("quantize", v.Name+"_q", d, args[k]); err != nil {
			return nil, err
		}
	}
	sum, err := e.node(e.of, "reduce_scatter", attrs, names, nil, args...)
	if err != nil {
		return nil, err
	}
	sum.Note = e.of.Note
	return sum.Results, nil
}

// gather brings the sums to all.
func (e *exchange) gather(own []*graph.Value) error {
	args, names := slices.Clone(own), []string(nil)
	for k, i := range e.values {
		v := e.of.Results[i]
		first, d := e.formats(i)
		names = append(names, v.Name)
		if d == graph.NoDType {
			continue
		}
		names[k] += "_q"
		if first == d && d.Float() {
			continue // it is in the format already
		}
		var err error
		if args[k], err = e.convert("quantize", e.of.Args[i].Name+"_own_q", d, args[k]); err != nil {
			return err
		}
	}
	all, err := e.node(e.of, "all_gather", nil, names, nil, args...)
	if err != nil {
		return err
	}
	for k, i := range e.values {
		v, got := e.of.Results[i], all.Results[k]
		first, d := e.formats(i)
		if d != graph.NoDType {
			if got, err = e.convert("dequantize", v.Name, v.Type.DType, got); err != nil {
				return err
			}
		}
		e.to[v] = got
		if watchable(first) || watchable(d) {
			if err := e.watches(e.of.Args[i], got); err != nil {
				return err
			}
		}
	}
	return nil
}

func (e *exchange) convert(op, name string, to graph.DType, v *graph.Value) (*graph.Value, error) {
	n, err := e.node(e.of, op, graph.Attrs{"to": to.String()}, []string{name}, nil, v)
	if err != nil {
		return nil, err
	}
	return n.Results[0], nil
}

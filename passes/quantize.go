package passes

import (
	"fmt"
	"slices"
	"strings"

	"github.com/krait-ml/krait/graph"
)

// Quantize says in which format all_reduces travel. The zero value leaves all
// as they are.
type Quantize struct {
	// Watch makes an output of each sum that travelled as fp16, which [Watched] finds.
	Watch bool

	text  string // as it was given
	all   Payload
	sites []site
}

// Payload is a format for transport. With Acc32 the summands travel in it and
// are added in f32, instead of in the format itself.
type Payload struct {
	DType graph.DType // NoDType: leave it in f32
	Acc32 bool
}

// site is a rule for the values whose name ends with name.
type site struct {
	name    string
	payload Payload
}

func (s site) names(v *graph.Value) bool {
	return v.Name == s.name || strings.HasSuffix(v.Name, "."+s.name)
}

// ParseQuantize reads "fp16", or a list of sites such as
// "x_proj=none,out_proj=fp16:acc32". Payloads are fp16, bf16 and none. A site is
// the end of the name of a reduced value.
func ParseQuantize(text string) (Quantize, error) {
	q := Quantize{text: text}
	if text == "" {
		return q, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		name, payload, isSite := strings.Cut(part, "=")
		if !isSite {
			payload = name
		}
		p, err := parsePayload(payload)
		if err != nil {
			return q, err
		}
		if !isSite {
			q.all = p
		} else {
			q.sites = append(q.sites, site{name, p})
		}
	}
	return q, nil
}

func parsePayload(text string) (Payload, error) {
	name, acc, has := strings.Cut(text, ":")
	d, ok := map[string]graph.DType{"none": graph.NoDType, "fp16": graph.F16, "bf16": graph.BF16}[name]
	if !ok || has && (acc != "acc32" || d == graph.NoDType) {
		return Payload{}, fmt.Errorf("payload %q: it is fp16, bf16 or none, and fp16:acc32 to add in f32", text)
	}
	return Payload{d, has}, nil
}

// Uses reports whether any payload may be of a format.
func (q *Quantize) Uses(d graph.DType) bool {
	return q.all.DType == d || slices.ContainsFunc(q.sites, func(s site) bool { return s.payload.DType == d })
}

// payload is what a reduced value travels in.
func (q *Quantize) payload(v *graph.Value) Payload {
	for _, s := range q.sites {
		if s.names(v) {
			return s.payload
		}
	}
	return q.all
}

// quantizer rounds the operands of all_reduces for transport.
type quantizer struct {
	*rewriter
	*Quantize
	statistics map[*graph.Value]bool
	watched    []graph.Output
}

func quantize(g *graph.Graph, o *Options) (*graph.Graph, error) {
	q := &quantizer{rewrite(g, graph.PartitionedStage, g.Ranks), &o.Quantize, statisticsOf(g), nil}
	if err := q.checkSites(g); err != nil {
		return nil, err
	}
	for _, n := range g.Nodes {
		if err := q.round(n); err != nil {
			return nil, err
		}
	}
	out, err := q.finish()
	if err != nil {
		return nil, err
	}
	return out, q.watch(out)
}

// sumsWhole reports whether a node is an all_reduce: a sum, of which all ranks have all.
func sumsWhole(n *graph.Node) bool { return n.Op.From == graph.Partial && n.Op.To == graph.Replicated }

// checkSites refuses a site that nothing is called, and one that is to round a
// statistic.
func (q *quantizer) checkSites(g *graph.Graph) error {
	for _, s := range q.sites {
		matched := false
		for _, n := range g.Nodes {
			for _, v := range n.Args {
				if !sumsWhole(n) || !s.names(v) {
					continue
				}
				matched = true
				if q.statistics[v] && s.payload.DType != graph.NoDType {
					return fmt.Errorf("%s is a statistic, and statistics travel in f32: a sum of squares leaves the range of fp16 where 5120 channels have an rms over 3.6, and is a few numbers per token; leave %s out, or say %[2]s=none", v.Name, s.name)
				}
			}
		}
		if !matched {
			return fmt.Errorf("no all_reduce takes a value called %s; there are %s", s.name, strings.Join(reduced(g), ", "))
		}
	}
	return nil
}

func (q *quantizer) round(n *graph.Node) error {
	if !sumsWhole(n) || !slices.ContainsFunc(n.Args, q.rounds) {
		return q.copy(n)
	}
	args := q.args(n)
	results := names(n.Results)
	attrs := graph.Attrs{}
	for i, v := range n.Args {
		if !q.rounds(v) {
			continue
		}
		p := q.payload(v)
		if p.Acc32 {
			attrs["acc"] = "f32"
		}
		m, err := q.node(n, "quantize", graph.Attrs{"to": p.DType.String()}, []string{v.Name + "_q"}, nil, args[i])
		if err != nil {
			return err
		}
		args[i] = m.Results[0]
		results[i] += "_q"
	}
	sum, err := q.node(n, n.Op.Name, attrs, results, n.Results, args...)
	if err != nil {
		return err
	}
	for i, v := range n.Results {
		if results[i] == v.Name {
			continue
		}
		m, err := q.node(n, "dequantize", graph.Attrs{"to": v.Type.DType.String()}, []string{v.Name}, []*graph.Value{v}, sum.Results[i])
		if err != nil {
			return err
		}
		if args[i].Type.DType == graph.F16 {
			q.watched = append(q.watched, graph.Output{Name: watchedPrefix + n.Args[i].Name, Value: m.Results[0]})
		}
	}
	return nil
}

// rounds reports whether a value is to be rounded.
func (q *quantizer) rounds(v *graph.Value) bool {
	d := q.payload(v).DType
	return d != graph.NoDType && d != v.Type.DType && !q.statistics[v]
}

// statisticsOf finds the results of operations whose rows say that they are
// statistics, and what is no more than a sum, a multiple or a part of these.
func statisticsOf(g *graph.Graph) map[*graph.Value]bool {
	found := map[*graph.Value]bool{}
	for _, n := range g.Nodes {
		if !n.Op.Statistic && !(passesOn(n) && slices.ContainsFunc(n.Args, func(v *graph.Value) bool { return found[v] })) {
			continue
		}
		for _, v := range n.Results {
			found[v] = true
		}
	}
	return found
}

// passesOn reports whether a node moves or adds its operands, or multiplies them
// by constants, and no more: linear in all activations together, without a matrix.
func passesOn(n *graph.Node) bool {
	switch n.Op.Class {
	case graph.View, graph.Relayout, graph.Collective:
		return true
	}
	return n.Op.Name == "concat" || !strings.Contains(n.Op.Operands, "w") && slices.ContainsFunc(n.Op.Linear, func(group []int) bool {
		for i := range n.Args {
			if n.Op.Operands[i] == 'a' && !slices.Contains(group, i) {
				return false
			}
		}
		return true
	})
}

// reduced lists the values that all_reduces take, without their blocks.
func reduced(g *graph.Graph) []string {
	var list []string
	for _, n := range g.Nodes {
		if !sumsWhole(n) {
			continue
		}
		for _, v := range n.Args {
			if name := v.Name[strings.LastIndexByte(v.Name, '.')+1:]; !slices.Contains(list, name) {
				list = append(list, name)
			}
		}
	}
	return list
}

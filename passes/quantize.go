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

// ParseQuantize reads "fp16", or a list of sites such as
// "x_proj=none,out_proj=fp16:acc32". Payloads are fp16, bf16 and none. A site is
// the end of the name of a reduced value.
func ParseQuantize(text string) (Quantize, error) {
	var q Quantize
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

// payload is what a reduced value travels in.
func (q *Quantize) payload(v *graph.Value) Payload {
	for _, s := range q.sites {
		if v.Name == s.name || strings.HasSuffix(v.Name, "."+s.name) {
			return s.payload
		}
	}
	return q.all
}

// quantize rounds the operands of all_reduces for transport.
func quantize(g *graph.Graph, o *Options) (*graph.Graph, error) {
	r := rewrite(g, graph.PartitionedStage, g.Ranks)
	matched := map[string]bool{}
	for _, n := range g.Nodes {
		for _, v := range n.Args {
			for _, s := range o.Quantize.sites {
				if n.Op.Name == "all_reduce" && (v.Name == s.name || strings.HasSuffix(v.Name, "."+s.name)) {
					matched[s.name] = true
				}
			}
		}
		if err := quantizeNode(r, n, &o.Quantize); err != nil {
			return nil, err
		}
	}
	for _, s := range o.Quantize.sites {
		if !matched[s.name] {
			return nil, fmt.Errorf("no all_reduce takes a value called %s; there are %s", s.name, strings.Join(reduced(g), ", "))
		}
	}
	return r.finish()
}

func quantizeNode(r *rewriter, n *graph.Node, q *Quantize) error {
	if n.Op.Name != "all_reduce" || !slices.ContainsFunc(n.Args, func(v *graph.Value) bool { return rounds(q.payload(v), v) }) {
		return r.copy(n)
	}
	args := r.args(n)
	results := names(n.Results)
	attrs := graph.Attrs{}
	for i, v := range n.Args {
		p := q.payload(v)
		if p.Acc32 {
			attrs["acc"] = "f32"
		}
		if !rounds(p, v) {
			continue
		}
		m, err := r.node(n, "quantize", graph.Attrs{"to": p.DType.String()}, []string{v.Name + "_q"}, nil, args[i])
		if err != nil {
			return err
		}
		args[i] = m.Results[0]
		results[i] += "_q"
	}
	sum, err := r.node(n, "all_reduce", attrs, results, n.Results, args...)
	if err != nil {
		return err
	}
	for i, v := range n.Results {
		if results[i] == v.Name {
			continue
		}
		if _, err := r.node(n, "dequantize", graph.Attrs{"to": v.Type.DType.String()}, []string{v.Name}, []*graph.Value{v}, sum.Results[i]); err != nil {
			return err
		}
	}
	return nil
}

// rounds reports whether a value is to be rounded. A statistic, one number per
// token, stays as it is: it is small, and a sum of squares leaves the range of f16.
func rounds(p Payload, v *graph.Value) bool {
	return len(v.Type.Dims) > 1 && p.DType != graph.NoDType && p.DType != v.Type.DType
}

// reduced lists the values that all_reduces take, without their blocks.
func reduced(g *graph.Graph) []string {
	var list []string
	for _, n := range g.Nodes {
		if n.Op.Name != "all_reduce" {
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

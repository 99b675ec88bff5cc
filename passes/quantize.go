package passes

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/krait-ml/krait/graph"
)

// Quantize says in which format sums travel, and shares of tokens that are gathered.
// The zero value leaves all as they are.
type Quantize struct {
	// Watch makes an output of each sum that travelled as fp16, which [Watched] finds.
	Watch bool

	text  string // as it was given
	all   Payload
	sites []site
}

// Payload is a format for transport. With Acc32 the summands travel in it and
// are added in f32, instead of in the format itself; in a codec they always are.
type Payload struct {
	DType graph.DType // NoDType: leave it in f32
	Acc32 bool
	// Apart says that an all_reduce is done in two: the summands of a share of the rows go to
	// the rank that adds them up, in DType, and what it gives goes to all, in Gather.
	Apart  bool
	Gather graph.DType
}

// site is a rule for the values whose name ends with name; "": for all.
type site struct {
	text    string // as it was given
	name    string
	way     string // "" for what is summed, rs where a reduce_scatter does it, ag for what is gathered
	payload Payload
}

func newSite(text string, p Payload) site {
	s := site{text: text, name: text, payload: p}
	for _, way := range []string{"rs", "ag"} {
		if name, ok := strings.CutSuffix("."+text, "."+way); ok {
			s.name, s.way = strings.TrimPrefix(name, "."), way
		}
	}
	return s
}

// takes reports whether the site is of the kind of a collective.
func (s *site) takes(n *graph.Node) bool {
	switch s.way {
	case "rs":
		return sums(n) && n.Op.To == graph.Sharded
	case "ag":
		return gathersRows(n)
	}
	return sums(n)
}

// names reports whether the site is about an operand of a collective: by its name, or
// where it is gathered, by that of a parameter that it is gathered for.
func (s *site) names(v *graph.Value, parameters []string) bool {
	return s.name == "" || v.Name == s.name || strings.HasSuffix(v.Name, "."+s.name) ||
		s.way == "ag" && slices.ContainsFunc(parameters, func(p string) bool { return slices.Contains(strings.Split(p, "."), s.name) })
}

// ParseQuantize reads "fp16", or a list of sites such as "x_proj=none,out_proj=fp16:acc32".
// Payloads are fp16, bf16, none, and codecs with the size of their blocks: int8/64, which is int8
// for int8/32. int4:int8 is one for the summands and one for the sum, where none leaves one of them
// in f32. A site is the end of the name of a summed value, with .rs only where a reduce_scatter
// sums it; with .ag it is that of tokens that are gathered, or of a parameter that they are
// gathered for: in_proj.ag. The directions alone, rs and ag, are for all.
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
			q.sites = append(q.sites, newSite(name, p))
		}
	}
	return q, nil
}

func parsePayload(text string) (Payload, error) {
	first, second, has := strings.Cut(text, ":")
	d, err := ParseFormat(first)
	if err != nil {
		return Payload{}, fmt.Errorf("payload %q: %w", text, err)
	}
	p := Payload{DType: d, Apart: d.InBlocks(), Gather: d}
	if p.Acc32 = has && second == "acc32" && d.Float(); p.Acc32 || !has {
		return p, nil
	}
	p.Apart = true
	if p.Gather, err = ParseFormat(second); err != nil {
		return Payload{}, fmt.Errorf("payload %q: %w", text, err)
	}
	switch {
	case d == graph.NoDType && p.Gather == graph.NoDType:
		return Payload{}, fmt.Errorf("payload %q: partial sums and sums both stay in f32; write none", text)
	case d.Float():
		return Payload{}, fmt.Errorf("payload %q: the first of two is for partial sums and must be a codec or none; to add %s in f32 write %s:acc32", text, first, first)
	}
	return p, nil
}

// ParseFormat reads a format for transport: fp16, bf16, a codec, or none, which is NoDType.
func ParseFormat(text string) (graph.DType, error) {
	if d, ok := map[string]graph.DType{"none": graph.NoDType, "fp16": graph.F16, "bf16": graph.BF16}[text]; ok {
		return d, nil
	}
	c, ok, err := graph.NewCodec(text)
	switch {
	case err != nil:
		return graph.NoDType, err
	case !ok:
		return graph.NoDType, fmt.Errorf("it must be fp16, bf16, none, or a codec of %v, with a block size as int8/64; fp16:acc32 adds in f32, int4:int8 is for partial sums and sums", graph.CodecKinds())
	}
	return c.DType(), nil
}

// Overflows reports whether any payload may be one that shows that a sum is not finite: fp16
// ends at 65504, and a codec's block with an infinity is NaN.
func (q *Quantize) Overflows() bool {
	of := func(p Payload) bool {
		return watchable(p.DType) || p.Apart && watchable(p.Gather)
	}
	return of(q.all) || slices.ContainsFunc(q.sites, func(s site) bool { return of(s.payload) })
}

// watchable reports whether what travels in a format is to be watched.
func watchable(d graph.DType) bool { return d == graph.F16 || d.InBlocks() }

// payload is what an operand of a collective travels in; gathers are rounded where they are named.
func (q *quantizer) payload(n *graph.Node, v *graph.Value) Payload {
	for _, s := range q.sites {
		if s.takes(n) && s.names(v, q.parameters(n)) {
			return s.payload
		}
	}
	if sums(n) {
		return q.all
	}
	return Payload{}
}

// parameters are those that what a collective gives is computed with.
func (q *quantizer) parameters(n *graph.Node) []string {
	var list []string
	for _, r := range n.Results {
		for _, m := range q.uses[r] {
			for _, v := range m.Args {
				if v.Def.Op.Name == "param" {
					list = append(list, v.Name)
				}
			}
		}
	}
	return list
}

// quantizer rounds the operands of collectives for transport.
type quantizer struct {
	*rewriter
	*Quantize
	statistics map[*graph.Value]bool
	uses       map[*graph.Value][]*graph.Node
	watched    []graph.Output
}

func quantize(g *graph.Graph, o *Options) (*graph.Graph, error) {
	q := &quantizer{rewrite(g, graph.PartitionedStage, g.Ranks), &o.Quantize, statisticsOf(g), usesOf(g), nil}
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

// sums reports whether a node adds up what ranks have: an all_reduce or a reduce_scatter.
func sums(n *graph.Node) bool { return n.Op.Class == graph.Collective && n.Op.From == graph.Partial }

// gathersRows reports whether a node gathers shares of the tokens.
func gathersRows(n *graph.Node) bool {
	return n.Op.Class == graph.Collective && n.Op.From == graph.Sharded && n.Args[0].Type.Layout.ByBatch()
}

// checkSites refuses a site that nothing is called, and one that is to round a statistic.
func (q *quantizer) checkSites(g *graph.Graph) error {
	for _, s := range q.sites {
		matched := false
		for _, n := range g.Nodes {
			for _, v := range n.Args {
				if !s.takes(n) || !s.names(v, q.parameters(n)) {
					continue
				}
				matched = true
				if s.way != "" && s.payload.Gather != s.payload.DType {
					return fmt.Errorf("%s has one direction and takes one payload; where tokens are split, %s.rs and %[2]s.ag are separate sites", s.text, s.name)
				}
				if q.statistics[v] && s.payload != (Payload{}) {
					return fmt.Errorf("%s is a statistic, which must be sent in f32: a sum of squares leaves the range of fp16 where 5120 channels have an rms over 3.6; leave %s out, or write %[2]s=none", v.Name, s.text)
				}
			}
		}
		if !matched {
			return fmt.Errorf("no %s takes a value named %s; the values are %s", s.kind(), s.name, strings.Join(operands(g, &s), ", "))
		}
	}
	return nil
}

func (q *quantizer) round(n *graph.Node) error {
	if n.Op.To == graph.Replicated && sums(n) && slices.ContainsFunc(n.Args, func(v *graph.Value) bool { return q.apart(n, v) }) {
		return q.sumApart(n)
	}
	if !slices.ContainsFunc(n.Args, func(v *graph.Value) bool { return q.rounds(n, v) }) {
		return q.copy(n)
	}
	args := q.args(n)
	results := names(n.Results)
	attrs := maps.Clone(n.Attrs)
	var watched []int // sums that are f32 already
	for i, v := range n.Args {
		if !q.rounds(n, v) {
			continue
		}
		p := q.payload(n, v)
		if (p.Acc32 || p.DType.InBlocks()) && sums(n) {
			attrs["acc"] = "f32"
		}
		m, err := q.node(n, "quantize", graph.Attrs{"to": p.DType.String()}, []string{v.Name + "_q"}, nil, args[i])
		if err != nil {
			return err
		}
		args[i] = m.Results[0]
		if p.DType.InBlocks() && sums(n) {
			watched = append(watched, i)
		} else {
			results[i] += "_q"
		}
	}
	sum, err := q.node(n, n.Op.Name, attrs, results, n.Results, args...)
	if err != nil {
		return err
	}
	for _, i := range watched {
		if err := q.watches(n.Args[i], sum.Results[i]); err != nil {
			return err
		}
	}
	for i, v := range n.Results {
		if results[i] == v.Name {
			continue
		}
		m, err := q.node(n, "dequantize", graph.Attrs{"to": v.Type.DType.String()}, []string{v.Name}, []*graph.Value{v}, sum.Results[i])
		if err != nil {
			return err
		}
		if watchable(args[i].Type.DType) {
			if err := q.watches(n.Args[i], m.Results[0]); err != nil {
				return err
			}
		}
	}
	return nil
}

// rounds reports whether a value is to be rounded.
func (q *quantizer) rounds(n *graph.Node, v *graph.Value) bool {
	if !sums(n) && !gathersRows(n) {
		return false
	}
	d := q.payload(n, v).DType
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

// kind is what collectives of the site's kind are called.
func (s *site) kind() string {
	switch s.way {
	case "rs":
		return "reduce_scatter"
	case "ag":
		return "all_gather of tokens"
	}
	return "all_reduce"
}

// operands lists what collectives of a site's kind take, without their blocks.
func operands(g *graph.Graph, s *site) []string {
	var list []string
	for _, n := range g.Nodes {
		if !s.takes(n) {
			continue
		}
		for _, v := range n.Args {
			if name := v.Name[strings.LastIndexByte(v.Name, '.')+1:]; !slices.Contains(list, name) {
				list = append(list, name)
			}
		}
	}
	if list == nil {
		return []string{"none"}
	}
	return list
}

// Site is a name that a quantize may have, and what goes by it.
type Site struct {
	Name   string   // out_proj, x_proj.rs, in_proj.ag
	Values []string // the operands of its collectives, in all blocks
	Ways   []string // what payloads there are: for the summands and the sum, or for one of them
}

// Sites lists the sites of a partitioned graph in their order, without statistics.
func Sites(g *graph.Graph) []Site {
	var list []Site
	statistics := statisticsOf(g)
	for _, n := range g.Nodes {
		if !sums(n) && !gathersRows(n) {
			continue
		}
		for _, v := range n.Args {
			if statistics[v] || len(v.Type.Dims) < 2 {
				continue
			}
			s := Site{Name: v.Name[strings.LastIndexByte(v.Name, '.')+1:], Ways: []string{"summands", "sum"}}
			switch {
			case gathersRows(n):
				s.Name, s.Ways = s.Name+".ag", s.Ways[1:]
			case n.Op.To == graph.Sharded:
				s.Name, s.Ways = s.Name+".rs", s.Ways[:1]
			}
			i := slices.IndexFunc(list, func(t Site) bool { return t.Name == s.Name })
			if i < 0 {
				i, list = len(list), append(list, s)
			}
			list[i].Values = append(list[i].Values, v.Name)
		}
	}
	return list
}

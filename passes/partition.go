package passes

import (
	"fmt"
	"slices"
	"strings"

	"github.com/krait-ml/krait/graph"
)

// partition chooses a layout for every value and puts collectives between them:
// within what the strategy allows, the fewest, then the fewest bytes sent per
// rank, then the fewest bytes of weights per rank. What a block takes and gives
// is whole, so blocks are searched one by one, and equal ones once.
func partition(g *graph.Graph, o *Options) (*graph.Graph, error) {
	p := &partitioner{
		rewriter: rewrite(g, graph.PartitionedStage, o.Ranks),
		o:        o,
		uses:     usesOf(g),
		covers:   coversOf(g),
		placed:   map[*graph.Value]graph.Layout{},
		solved:   map[string][]*decision{},
		as:       map[layoutOf]*graph.Value{},
	}
	for start := 0; start < len(g.Nodes); {
		end := start
		for end < len(g.Nodes) && g.Nodes[end].Block() == g.Nodes[start].Block() {
			end++
		}
		if err := p.segment(g.Nodes[start:end]); err != nil {
			return nil, err
		}
		start = end
	}
	return p.finish()
}

type partitioner struct {
	*rewriter
	o      *Options
	uses   map[*graph.Value][]*graph.Node
	covers map[*graph.Value]groupings
	placed map[*graph.Value]graph.Layout // parameters and states
	solved map[string][]*decision        // by the text of a block and its choices
	as     map[layoutOf]*graph.Value     // new values by old value and layout
}

type layoutOf struct {
	v      *graph.Value
	layout string
}

func (p *partitioner) segment(nodes []*graph.Node) error {
	s, err := p.describe(nodes)
	if err != nil {
		return err
	}
	key := s.key(p.from)
	decisions, ok := p.solved[key]
	if !ok {
		if decisions, err = s.solve(p.o.Ranks); err != nil {
			return err
		}
		p.solved[key] = decisions
	}
	return p.emit(s, decisions)
}

// describe collects what a segment takes and gives, and what is allowed.
func (p *partitioner) describe(nodes []*graph.Node) (*segment, error) {
	s := &segment{nodes: nodes, index: map[*graph.Value]int{}}
	inside := map[*graph.Node]bool{}
	for _, n := range nodes {
		inside[n] = true
	}
	for i, n := range nodes {
		for _, v := range slices.Concat(n.Args, n.Results) {
			if _, ok := s.index[v]; ok {
				continue
			}
			if err := p.add(s, v, inside); err != nil {
				return nil, err
			}
		}
		for _, v := range n.Args {
			s.last[s.index[v]] = i
		}
	}
	return s, nil
}

// add takes a value into a segment.
func (p *partitioner) add(s *segment, v *graph.Value, inside map[*graph.Node]bool) error {
	choices := []graph.Layout{{}} // on one rank everything is whole
	if p.o.Ranks > 1 {
		var err error
		if choices, err = p.o.Strategy.layouts(v, p.uses[v], p.covers[v]); err != nil {
			return err
		}
	}
	leaf := isPlaced(v)
	needed := !leaf && slices.ContainsFunc(p.from.Outputs, func(o graph.Output) bool { return o.Value == v })
	for _, n := range p.uses[v] {
		needed = needed || !leaf && inside[v.Def] && !inside[n]
	}
	given := !inside[v.Def]
	switch l, ok := p.placed[v]; {
	case given && ok:
		choices = []graph.Layout{l}
	case given && leaf:
		return fmt.Errorf("%s is used in another block before it is placed", v.Name)
	case given, v.Def.Op.Name == "input":
		choices = append([]graph.Layout{{}}, slices.DeleteFunc(choices, graph.Layout{}.Equal)...)
	case needed && !slices.ContainsFunc(choices, graph.Layout{}.Equal):
		choices = append(choices, graph.Layout{})
	}
	if len(choices) > 8 {
		return fmt.Errorf("%s: %d possible layouts; at most 8 are searched", v.Name, len(choices))
	}
	s.index[v] = len(s.values)
	s.values = append(s.values, v)
	s.choices = append(s.choices, choices)
	s.given = append(s.given, given)
	s.needed = append(s.needed, needed)
	s.last = append(s.last, -1)
	return nil
}

// isPlaced reports whether a value lies where it is first used, and stays there.
func isPlaced(v *graph.Value) bool {
	return v.Def.Op.Name == "param" || v.Def.Op.Name == "state"
}

// key is the same for segments that have the same solution.
func (s *segment) key(g *graph.Graph) string {
	var b strings.Builder
	block := s.nodes[0].Block()
	if block == "" {
		block = "start " + s.nodes[0].Name()
		b.WriteString(block)
	} else {
		b.WriteString(graph.BlockKey(g, block))
	}
	for i, v := range s.values {
		fmt.Fprintf(&b, "%v %v", s.given[i], s.needed[i])
		for _, l := range s.choices[i] {
			b.WriteString(" " + layoutText(v, l))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// emit writes a segment's nodes with their layouts. A conversion goes right
// after what it converts, so that it can run beside what does not wait for it.
func (p *partitioner) emit(s *segment, decisions []*decision) error {
	after := make([][]planned, len(s.values))
	for _, d := range decisions {
		for _, c := range d.before {
			after[c.value] = append(after[c.value], planned{c, s.takers(c, decisions)})
		}
	}
	p.place(s, decisions)
	for i, v := range s.values {
		if s.given[i] {
			if err := p.convertAll(s, i, v, after[i]); err != nil {
				return err
			}
		}
	}
	for i, n := range s.nodes {
		if err := p.node(s, n, decisions[i]); err != nil {
			return err
		}
		for _, v := range n.Results {
			k := s.index[v]
			if err := p.convertAll(s, k, v, after[k]); err != nil {
				return err
			}
		}
	}
	return nil
}

// planned is a conversion, and the nodes that wait for it.
type planned struct {
	conversion
	takers []string
}

// takers names the nodes that take a value in the layout that c makes.
func (s *segment) takers(c conversion, decisions []*decision) []string {
	var list []string
	for i, n := range s.nodes {
		for j, v := range n.Args {
			name := strings.TrimPrefix(n.Name(), n.Block()+".")
			if s.index[v] == c.value && decisions[i].operands[j] == c.to && !slices.Contains(list, name) {
				list = append(list, name)
			}
		}
	}
	return list
}

// place remembers where the segment's parameters and states lie.
func (p *partitioner) place(s *segment, decisions []*decision) {
	for i, n := range s.nodes {
		if n.Op.Class == graph.Leaf {
			v := n.Results[0]
			if _, ok := p.placed[v]; !ok {
				p.placed[v] = s.choices[s.index[v]][0]
			}
		}
		for j, v := range n.Args {
			if k := s.index[v]; isPlaced(v) && !s.given[k] {
				p.placed[v] = s.choices[s.index[v]][decisions[i].operands[j]]
			}
		}
	}
}

func (p *partitioner) node(s *segment, n *graph.Node, d *decision) error {
	if n.Op.Class == graph.Leaf {
		v := n.Results[0]
		t := graph.Type{DType: v.Type.DType, Dims: v.Type.Dims, Layout: p.placed[v]}
		if err := p.leaf(n, v.Name, t, n.Storage, v); err != nil {
			return err
		}
		p.have(v, p.to[v])
		return nil
	}
	args := make([]*graph.Value, len(n.Args))
	for i, v := range n.Args {
		l := s.choices[s.index[v]][d.operands[i]]
		if args[i] = p.as[layoutOf{v, layoutText(v, l)}]; args[i] == nil {
			panic(fmt.Sprintf("%s is not there as %s for %s", v.Name, layoutText(v, l), n.Name()))
		}
	}
	if _, err := p.rewriter.node(n, n.Op.Name, n.Attrs, names(n.Results), n.Results, args...); err != nil {
		return err
	}
	for _, v := range n.Results {
		p.have(v, p.to[v])
	}
	return nil
}

func (p *partitioner) have(old, v *graph.Value) {
	p.as[layoutOf{old, layoutText(v, v.Type.Layout)}] = v
}

// suffixes name the results of conversions.
var suffixes = map[string]string{"all_reduce": "_sum", "all_gather": "_all", "reduce_scatter": "_part", "shard": "_part", "term": "_term"}

func (p *partitioner) convertAll(s *segment, k int, v *graph.Value, list []planned) error {
	for _, c := range list {
		from, to := s.choices[k][c.from], s.choices[k][c.to]
		if p.as[layoutOf{v, layoutText(v, to)}] != nil {
			continue
		}
		op, _, _ := convert(v, from, to, p.o.Ranks)
		attrs := graph.Attrs{}
		if op == "shard" || op == "reduce_scatter" {
			attrs["axis"] = to.Axis
		}
		name := v.Name + suffixes[op]
		for p.exists(name) {
			name += "_"
		}
		n, err := p.out.Add(op, attrs, []string{name}, p.as[layoutOf{v, layoutText(v, from)}])
		if err != nil {
			return fmt.Errorf("%s: %s: %w", v.Name, op, err)
		}
		n.Note = reason(op, v, c.takers)
		p.have(v, n.Results[0])
		if to.Kind == graph.Replicated {
			p.to[v] = n.Results[0]
		}
	}
	return nil
}

func (p *partitioner) exists(name string) bool {
	_, old := p.from.Value(name)
	_, made := p.out.Value(name)
	return old || made
}

// reason says why a conversion is there: what made the value what it is, and
// who needs it otherwise.
func reason(op string, v *graph.Value, takers []string) string {
	name := strings.TrimPrefix(v.Name, graph.BlockOf(v.Name)+".")
	switch op {
	case "shard", "term":
		return ""
	case "all_gather":
		name += " is split over ranks"
	default:
		name += " adds up what ranks own"
	}
	switch len(takers) {
	case 0:
		if graph.BlockOf(v.Name) == "" {
			return name + "; blocks or outputs need it whole"
		}
		return name + "; what is after the block needs it whole"
	case 1:
		return name + "; " + takers[0] + " needs it whole"
	}
	return name + "; " + strings.Join(takers, ", ") + " need it whole"
}

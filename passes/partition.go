package passes

import (
	"fmt"
	"slices"
	"strings"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/passes/class"
)

// partition chooses a layout for every value and puts collectives between them:
// within what the strategy allows, the fewest, then the fewest bytes sent per
// rank, then the fewest bytes of weights per rank. What a section takes and gives
// is whole, so sections are searched one by one, and equal ones once; what several
// of them use is placed for all together.
func partition(g *graph.Graph, o *Options) (*graph.Graph, error) {
	limit, err := o.limits(g)
	if err != nil {
		return nil, err
	}
	c := &chooser{g: g, options: class.Options{Ranks: o.Ranks, Limit: limit}, merges: o.merges(), solved: map[string]*solution{}, failed: map[string]error{}}
	if err := c.choose(); err != nil {
		return nil, err
	}
	p := &partitioner{rewriter: rewrite(g, graph.PartitionedStage, o.Ranks), placed: c.placements()}
	return p.write(c.best)
}

// maxShared bounds the ways to place what several sections use.
const maxShared = 1 << 12

// chooser searches the sections under every placement of what they share.
type chooser struct {
	g       *graph.Graph
	options class.Options
	merges  bool
	solved  map[string]*solution // by the key of a section
	failed  map[string]error

	best []plan
	cost cost
	err  error // why the last placement was not possible
}

// plan is a section and how it is computed.
type plan struct {
	*class.Section
	*solution
}

func (c *chooser) choose() error {
	shared, choices := class.Shared(c.g, c.options)
	once := map[*graph.Value]bool{}
	for i, v := range shared {
		once[v] = true
		if len(choices[i]) == 0 {
			return fmt.Errorf("%s: several blocks use it, and the strategy has no placement for it", v.Name)
		}
	}
	for !class.EachPlacement(shared, choices, maxShared, func(placed map[*graph.Value]graph.Layout) { c.try(placed, once) }) {
		most := 0 // too many ways: where there are most, take the first
		for i := range choices {
			if len(choices[i]) > len(choices[most]) {
				most = i
			}
		}
		choices[most] = choices[most][:1]
	}
	if c.best == nil && len(c.sections(nil)) > 0 {
		return c.err
	}
	return nil
}

func (c *chooser) sections(placed map[*graph.Value]graph.Layout) []*class.Section {
	o := c.options
	o.Placed = placed
	return class.Sections(c.g, o)
}

// try solves all sections with the shared leaves placed.
func (c *chooser) try(placed map[*graph.Value]graph.Layout, shared map[*graph.Value]bool) {
	var all []plan
	var sum cost
	for v, l := range placed {
		if v.Def.Op.Name == "param" {
			sum.weights += class.WeightBytes(v.Type, l, c.options.Ranks)
		}
	}
	for _, section := range c.sections(placed) {
		found, err := c.solve(section, shared)
		if err != nil {
			c.err = err
			return
		}
		all = append(all, plan{section, found})
		sum = sum.plus(found.cost)
	}
	if c.best == nil || sum.compare(c.cost) < 0 {
		c.best, c.cost = all, sum
	}
}

// solve searches a section, unless an equal one was.
func (c *chooser) solve(section *class.Section, shared map[*graph.Value]bool) (*solution, error) {
	key := section.Key()
	if c.solved[key] == nil && c.failed[key] == nil {
		s := &search{Space: class.Explore(section), merges: c.merges, shared: shared}
		c.solved[key], c.failed[key] = s.solve()
	}
	return c.solved[key], c.failed[key]
}

// placements says where parameters and states lie; what nobody uses lies first.
func (c *chooser) placements() map[*graph.Value]graph.Layout {
	placed := map[*graph.Value]graph.Layout{}
	for _, p := range c.best {
		for i, d := range p.decisions {
			for j, v := range p.Nodes[i].Args {
				if l := p.layouts[d.In[j]]; p.Stays(p.ID[v]) && l.Kind != graph.Partial { // else a term of a whole one
					placed[v] = l
				}
			}
		}
	}
	return placed
}

// partitioner writes the graph with its layouts.
type partitioner struct {
	*rewriter
	placed map[*graph.Value]graph.Layout
	as     map[layoutOf]*graph.Value // in the present section: new values by old value and layout
}

type layoutOf struct {
	v      *graph.Value
	layout string
}

// write takes the nodes in their order. A conversion goes right after what it
// converts, so that it can run beside what does not wait for it; of what comes
// from outside of the section, right before its first use.
func (p *partitioner) write(plans []plan) (*graph.Graph, error) {
	at, left := -1, 0 // section, and its nodes to come
	var e *emission
	for _, n := range p.from.Nodes {
		if n.Op.Class == graph.Leaf {
			v := n.Results[0]
			t := graph.Type{DType: v.Type.DType, Dims: v.Type.Dims, Layout: p.placed[v]}
			if err := p.leaf(n, v.Name, t, n.Storage, v); err != nil {
				return nil, err
			}
			continue
		}
		if left == 0 {
			at++
			left = len(plans[at].Nodes)
			e = p.emission(plans[at])
		}
		left--
		if err := e.node(n); err != nil {
			return nil, err
		}
	}
	return p.finish()
}

// emission writes a section.
type emission struct {
	*partitioner
	plan
	decided map[*graph.Node]*decision
	after   [][]conversion // by value
}

func (p *partitioner) emission(s plan) *emission {
	e := &emission{p, s, map[*graph.Node]*decision{}, make([][]conversion, len(s.Values))}
	p.as = map[layoutOf]*graph.Value{}
	for i, n := range s.Nodes {
		d := s.decisions[i]
		e.decided[n] = d
		for _, c := range d.conversions {
			e.after[c.value] = append(e.after[c.value], c)
		}
	}
	return e
}

func (e *emission) node(n *graph.Node) error {
	args := make([]*graph.Value, len(n.Args))
	for i, v := range n.Args {
		l, k := e.layouts[e.decided[n].In[i]], e.ID[v]
		if e.Start[k] != nil { // from outside of the section
			e.have(v, e.to[v])
			if err := e.convertAll(k, v); err != nil {
				return err
			}
		}
		if args[i] = e.as[layoutOf{v, layoutText(v, l)}]; args[i] == nil {
			panic(fmt.Sprintf("%s is not there as %s for %s", v.Name, layoutText(v, l), n.Name()))
		}
	}
	if _, err := e.rewriter.node(n, n.Op.Name, n.Attrs, names(n.Results), n.Results, args...); err != nil {
		return err
	}
	for _, v := range n.Results {
		e.have(v, e.to[v])
		if err := e.convertAll(e.ID[v], v); err != nil {
			return err
		}
	}
	return nil
}

func (p *partitioner) have(old, v *graph.Value) {
	p.as[layoutOf{old, layoutText(old, v.Type.Layout)}] = v
}

// convertAll makes the copies of v that the section needs. They are of its block.
func (e *emission) convertAll(k int, v *graph.Value) error {
	for _, c := range e.after[k] {
		from, to := e.layouts[c.from], e.layouts[c.to]
		if e.as[layoutOf{v, layoutText(v, to)}] != nil {
			continue
		}
		op, ok := graph.Between(from.Kind, to.Kind)
		if !ok {
			panic(fmt.Sprintf("BUG: nothing takes %s from (%s) to (%s)", v.Name, layoutText(v, from), layoutText(v, to)))
		}
		attrs := graph.Attrs{}
		if op.To == graph.Sharded {
			attrs["axis"] = to.Axis
		}
		n, err := e.out.Add(op.Name, attrs, []string{e.newName(v, suffix(op))}, e.as[layoutOf{v, layoutText(v, from)}])
		if err != nil {
			return fmt.Errorf("%s: %s: %w", v.Name, op.Name, err)
		}
		n.Note = reason(op, v, e.takers(v, c.to))
		e.have(v, n.Results[0])
		if to.Kind == graph.Replicated {
			e.to[v] = n.Results[0]
		}
	}
	return nil
}

// suffix is what the name of a conversion's result ends with.
func suffix(op *graph.Op) string {
	switch {
	case op.To == graph.Sharded:
		return "_part"
	case op.To == graph.Partial:
		return "_term"
	case op.From == graph.Partial:
		return "_sum"
	}
	return "_all"
}

// newName is a name for a copy of v in the section's block.
func (e *emission) newName(v *graph.Value, suffix string) string {
	name := v.Name
	if block := graph.BlockOf(name); block != e.Block {
		name = strings.TrimPrefix(e.Block+"."+strings.TrimPrefix(name, block+"."), ".")
	}
	for name += suffix; e.exists(name); {
		name += "_"
	}
	return name
}

// takers names the nodes that take a value in a layout.
func (e *emission) takers(v *graph.Value, layout int) []string {
	var list []string
	for _, n := range e.Written {
		if e.decided[n] == nil {
			continue // a leaf
		}
		name := strings.TrimPrefix(n.Name(), n.Block()+".")
		for j, w := range n.Args {
			if w == v && e.decided[n].In[j] == layout && !slices.Contains(list, name) {
				list = append(list, name)
			}
		}
	}
	return list
}

func (p *partitioner) exists(name string) bool {
	_, old := p.from.Value(name)
	_, made := p.out.Value(name)
	return old || made
}

// reason says why a conversion is there: what made the value what it is, and
// who needs it otherwise.
func reason(op *graph.Op, v *graph.Value, takers []string) string {
	name := strings.TrimPrefix(v.Name, graph.BlockOf(v.Name)+".")
	switch {
	case op.Class == graph.Relayout:
		return ""
	case op.From == graph.Sharded:
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

func layoutText(v *graph.Value, l graph.Layout) string {
	if l.Kind == graph.Replicated {
		return "whole"
	}
	t := v.Type
	t.Layout = l
	return t.LayoutString()
}

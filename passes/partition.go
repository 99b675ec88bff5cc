package passes

import (
	"fmt"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/passes/class"
)

// partition chooses a layout for every value and puts collectives between them:
// within what the strategy allows, the fewest, then the fewest bytes sent per
// rank, then the fewest bytes of weights per rank. What a section takes and gives
// lies in one way, so sections are searched one by one, and equal ones once; what several
// of them use is placed for all together.
func partition(g *graph.Graph, o *Options) (*graph.Graph, error) {
	limit, err := o.limits(g)
	if err != nil {
		return nil, err
	}
	c := &chooser{g: g, options: class.Options{Ranks: o.Ranks, Border: o.border(), Limit: limit}, merges: o.merges(), found: map[string]*solution{}, failed: map[string]error{}}
	if err := c.choose(); err != nil {
		return nil, err
	}
	return c.write()
}

// maxShared bounds the ways to place what several sections use.
const maxShared = 1 << 12

// chooser searches the sections under every placement of what they share.
type chooser struct {
	g       *graph.Graph
	options class.Options
	merges  bool
	found   map[string]*solution // by the key of a section
	failed  map[string]error

	best []solved
	cost cost
	err  error // why the last placement was not possible
}

// solved is a section and how it is computed.
type solved struct {
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
	var all []solved
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
		all = append(all, solved{section, found})
		sum = sum.plus(found.cost)
	}
	if c.best == nil || sum.compare(c.cost) < 0 {
		c.best, c.cost = all, sum
	}
}

// solve searches a section, unless an equal one was.
func (c *chooser) solve(section *class.Section, shared map[*graph.Value]bool) (*solution, error) {
	key := section.Key()
	if c.found[key] == nil && c.failed[key] == nil {
		s := &search{Space: class.Explore(section), merges: c.merges, shared: shared}
		c.found[key], c.failed[key] = s.solve()
	}
	return c.found[key], c.failed[key]
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

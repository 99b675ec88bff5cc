package passes

import (
	"fmt"
	"strings"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/passes/class"
)

// partition chooses a layout for every value and puts collectives between them: within what the
// strategy allows, the fewest, then the fewest bytes sent per rank, then the fewest bytes of
// weights per rank. The inputs and outputs of a section lie in one way, so sections are searched
// one by one, and equal ones once; what several of them use is placed for all together.
func partition(g *graph.Graph, o *Options) (*graph.Graph, error) {
	limit, err := o.limits(g)
	if err != nil {
		return nil, err
	}
	c := &chooser{g: g, options: class.Options{Ranks: o.Ranks, Across: o.across(), Border: o.border(), Limit: limit}, merges: o.merges(), found: map[string]*solution{}, failed: map[string]error{}}
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

	sections []*class.Section // where what they share lies nowhere yet
	ways     []map[string]way // of each of them: by where what it shares lies

	best []solved
	cost cost
	err  error // why the last placement was not possible
}

// solved is a section and how it is computed.
type solved struct {
	*class.Section
	*solution
}

// way is a section solved, or why it cannot be.
type way struct {
	solved
	err error
}

func (c *chooser) choose() error {
	shared, choices := class.Shared(c.g, c.options)
	c.sections = class.Sections(c.g, c.options)
	c.ways = make([]map[string]way, len(c.sections))
	once := map[*graph.Value]bool{}
	for i, v := range shared {
		once[v] = true
		if len(choices[i]) == 0 {
			return fmt.Errorf("%s: several blocks use it, and the strategy has no placement for it", v.Name)
		}
	}
	for !class.EachPlacement(shared, choices, maxShared, func(placed map[*graph.Value]graph.Layout) { c.try(shared, placed, once) }) {
		most := 0 // too many ways: of the leaf with most, take the first
		for i := range choices {
			if len(choices[i]) > len(choices[most]) {
				most = i
			}
		}
		choices[most] = choices[most][:1]
	}
	if c.best == nil && len(c.sections) > 0 {
		return c.err
	}
	return nil
}

// try solves all sections with the shared leaves placed, until they cost more than the best.
func (c *chooser) try(leaves []*graph.Value, placed map[*graph.Value]graph.Layout, shared map[*graph.Value]bool) {
	var all []solved
	var sum cost
	for v, l := range placed {
		if v.Def.Op.Name == "param" {
			sum.weights += class.WeightBytes(v.Type, l, c.options.Ranks)
		}
	}
	for i := range c.sections {
		found := c.way(i, leaves, placed, shared)
		if found.err != nil {
			c.err = found.err
			return
		}
		all = append(all, found.solved)
		if sum = sum.plus(found.cost); c.best != nil && sum.compare(c.cost) >= 0 {
			return
		}
	}
	c.best, c.cost = all, sum
}

// way solves a section once for each placement of those shared leaves that it uses.
func (c *chooser) way(i int, leaves []*graph.Value, placed map[*graph.Value]graph.Layout, shared map[*graph.Value]bool) way {
	var at strings.Builder
	for _, v := range leaves {
		if _, used := c.sections[i].ID[v]; used {
			t := v.Type
			t.Layout = placed[v]
			at.WriteString(t.String() + "\n")
		}
	}
	if w, ok := c.ways[i][at.String()]; ok {
		return w
	}
	section := c.sections[i].Placed(placed)
	found, err := c.solve(section, shared)
	if c.ways[i] == nil {
		c.ways[i] = map[string]way{}
	}
	c.ways[i][at.String()] = way{solved{section, found}, err}
	return c.ways[i][at.String()]
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

// placements says where parameters and states lie; unused ones lie in the first way.
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

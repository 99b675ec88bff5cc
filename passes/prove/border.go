package prove

import (
	"fmt"
	"slices"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/passes/class"
)

// notOfClass is why no minimum is stated.
const notOfClass = "outside of the class at its border, so no minimum is stated"

// borders follows values from section to section. The class takes a minimum section by section, so
// that the minimum of a block holds only where values cross its border as the class has them.
type borders struct {
	*sums
	section map[*graph.Node]int // of a node of the source
	owner   map[*graph.Node]int // of a collective: the section that it belongs to
	strays  map[string][]string // of a block: why it is no block of the class
}

// strays says of each block why it is outside of the class at its border.
func strays(source, g *graph.Graph, s *sums) map[string][]string {
	if ranksOf(g) == 1 {
		return nil
	}
	b := &borders{s, map[*graph.Node]int{}, map[*graph.Node]int{}, map[string][]string{}}
	at, block := 0, ""
	for _, n := range source.Nodes {
		if n.Op.Class != graph.Leaf && n.Block() != block {
			at, block = at+1, n.Block()
		}
		b.section[n] = at
	}
	for _, n := range g.Nodes {
		if transparent(n) || n.Op.Class == graph.Leaf {
			continue
		}
		for _, v := range n.Args {
			b.way(v, n)
		}
	}
	for _, o := range g.Outputs {
		b.way(o.Value, nil)
	}
	return b.strays
}

// add notes why blocks are outside of the class.
func (b *borders) add(why string, blocks ...string) {
	for _, block := range blocks {
		if !slices.Contains(b.strays[block], why) {
			b.strays[block] = append(b.strays[block], why)
		}
	}
}

// way follows how v came from the node that computed it to the node that takes it, nil for the
// caller. The class has ways with a value that lies as it must at the border, where collectives
// before that value are in the block that it leaves, and those after it in the block that it
// enters.
func (b *borders) way(v *graph.Value, to *graph.Node) {
	at := v // the value at the border
	var before, after []*graph.Node
	for ; transparent(v.Def); v = passed(v) {
		before = append(before, v.Def)
	}
	from, all := v.Def, before
	if from.Op.Class == graph.Leaf {
		return
	}
	if to == nil {
		to = from
	}
	leaves, enters := b.sectionOf(from), b.sectionOf(to)
	fits := func() bool {
		return (leaves == enters || at.Type.Layout.Equal(class.AtBorder(b.border, b.unrounded(at)))) && in(before, from.Block()) && in(after, to.Block())
	}
	for leaves != enters && !fits() && len(before) > 0 {
		after, before, at = append(after, before[0]), before[1:], passed(at)
	}
	if !fits() {
		b.stray(v, to, all)
		return
	}
	b.own(before, leaves)
	b.own(after, enters)
}

func (b *borders) sectionOf(n *graph.Node) int { return b.section[b.origin[n.Results[0]].Def] }

// stray notes that v does not come to a node as the class has it.
func (b *borders) stray(v *graph.Value, to *graph.Node, way []*graph.Node) {
	blocks := []string{v.Def.Block(), to.Block()}
	why := fmt.Sprintf("%s is not %s where it leaves its block for %s", v.Name, bordering(class.AtBorder(b.border, v.Type)), to.Name())
	for _, n := range way {
		if n.Op.Class == graph.Collective && !slices.Contains(blocks, n.Block()) {
			blocks = append(blocks, n.Block())
			why = fmt.Sprintf("%s comes to %s by %s, which is in the block of neither", v.Name, to.Name(), n.Name())
		}
	}
	b.add(why, blocks...)
}

// own notes to which section collectives belong. The class has no launch for several sections.
func (b *borders) own(list []*graph.Node, section int) {
	for _, n := range list {
		if other, ok := b.owner[n]; ok && other != section && n.Op.Class == graph.Collective {
			b.add(n.Name()+" takes values of several sections in one launch", n.Block())
		}
		b.owner[n] = section
	}
}

// in reports whether all collectives of a list are of a block.
func in(list []*graph.Node, block string) bool {
	return !slices.ContainsFunc(list, func(n *graph.Node) bool { return n.Op.Class == graph.Collective && n.Block() != block })
}

// passed is the value that a transparent node passes on as v.
func passed(v *graph.Value) *graph.Value {
	n := v.Def
	return n.Args[min(slices.Index(n.Results, v), len(n.Args)-1)]
}

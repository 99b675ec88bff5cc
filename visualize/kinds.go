package visualize

import (
	"fmt"
	"strings"

	"github.com/emicklei/dot"
	"github.com/krait-ml/krait/graph"
)

// block is the content of a block, which defines its kind.
type block struct {
	nodes []*graph.Node // without leaves
	key   string
	ops   []string
}

// kind is a set of equal blocks.
type kind struct {
	letter  string
	colour  string
	blocks  []string
	unlike  string // a block of the first kind of its letter; empty: it is the first
	differs string // how it differs from that
}

// kindsOf groups blocks into kinds, in order of appearance, and returns the kind of each block.
func kindsOf(names []string, blocks map[string]*block) (kinds []kind, of map[string]int) {
	of, at := map[string]int{}, map[string]int{}
	for _, name := range names {
		b := blocks[name]
		if b == nil {
			continue // only parameters and states
		}
		i, ok := at[b.key]
		if !ok {
			i = len(kinds)
			at[b.key] = i
			kinds = append(kinds, kind{letter: Letter(b.ops), colour: kindColours[i%len(kindColours)]})
		}
		kinds[i].blocks = append(kinds[i].blocks, name)
		of[name] = i
	}
	first := map[string]string{} // block of a letter
	for i := range kinds {
		k, b := &kinds[i], blocks[kinds[i].blocks[0]]
		if f := first[k.letter]; f == "" {
			first[k.letter] = k.blocks[0]
		} else {
			k.unlike, k.differs = f, difference(blocks[f], b)
		}
	}
	number(kinds)
	return kinds, of
}

// Letter returns M for a block with a recurrent state, A for one with a KV cache, H for both, C for
// one with the state of a convolution only, and B for others.
func Letter(ops []string) string {
	keeps := map[graph.StateKind]bool{}
	for _, name := range ops {
		if op, ok := graph.Lookup(name); ok {
			for _, p := range op.States {
				keeps[p.Kind] = true
			}
		}
	}
	switch scan, attention := keeps[graph.SSMState], keeps[graph.CacheState]; {
	case scan && attention:
		return "H"
	case scan:
		return "M"
	case attention:
		return "A"
	case keeps[graph.ConvState]:
		return "C"
	}
	return "B"
}

// number numbers kinds of one letter.
func number(kinds []kind) {
	count, next := map[string]int{}, map[string]int{}
	for _, k := range kinds {
		count[k.letter]++
	}
	for i := range kinds {
		if l := kinds[i].letter; count[l] > 1 {
			next[l]++
			kinds[i].letter = fmt.Sprint(l, next[l])
			if kinds[i].differs != "" {
				kinds[i].differs = fmt.Sprintf("unlike %s1: %s", l, kinds[i].differs)
			}
		}
	}
}

// who names the blocks of the kind.
func (k *kind) who() string {
	if n := len(k.blocks); n > 1 {
		return fmt.Sprintf("%s and %d more like it", k.blocks[0], n-1)
	}
	return k.blocks[0]
}

const badgeWidth = 36 // of three letters

// badge is the letter in the colour of the kind. All badges have one size.
func (k *kind) badge() string {
	return fmt.Sprintf(`<td bgcolor="%s" border="1" fixedsize="true" width="%d" height="24" cellpadding="0"><font point-size="%d"><b>%s</b></font></td>`, k.colour, badgeWidth, textSize, k.letter)
}

// title is a badge with its explanation.
func (k *kind) title() dot.HTML {
	return dot.HTML(fmt.Sprintf(`<table border="0" cellborder="0" cellspacing="2"><tr>%s<td>%s</td></tr></table>`, k.badge(), k.about().html()))
}

// about names the blocks of the kind, and how they differ from others of its letter.
func (k *kind) about() *label {
	l := oneLine(k.who(), "", headSize, true)
	for _, part := range wrapped(k.differs, 40) {
		l.line(part, grey, noteSize, false)
	}
	return l
}

// graphBlocks returns the blocks of a graph.
func graphBlocks(g *graph.Graph) map[string]*block {
	blocks, keys := map[string]*block{}, map[string]*keyer{}
	for _, n := range g.Nodes {
		name := n.Block()
		if n.Op.Class == graph.Leaf || name == "" {
			continue
		}
		b := blocks[name]
		if b == nil {
			b = &block{}
			blocks[name], keys[name] = b, &keyer{block: name, numbers: map[*graph.Value]int{}}
		}
		b.nodes = append(b.nodes, n)
		b.ops = append(b.ops, n.Op.Name)
		keys[name].node(n)
	}
	for name, b := range blocks {
		b.key = keys[name].String()
	}
	return blocks
}

// keyer writes a key of a block's content. It is coarser than [graph.BlockKey]: it ignores whether
// a parameter is shared, and numbers in names.
type keyer struct {
	strings.Builder
	block   string
	numbers map[*graph.Value]int // of values other than parameters and states
}

func (k *keyer) node(n *graph.Node) {
	fmt.Fprint(k, n.Op.Name, n.Attrs)
	for _, v := range n.Args {
		switch op := v.Def.Op.Name; {
		case op == "param" || op == "state":
			fmt.Fprintf(k, " %s %s", unnumbered(v.Name), v.Type)
		case op == "input" && v.Type.DType == graph.I32:
			fmt.Fprintf(k, " %s", v.Name)
		default:
			fmt.Fprintf(k, " %d %s", k.number(v), v.Type)
		}
	}
	for _, v := range n.Results {
		fmt.Fprintf(k, " = %d %t %s %s", k.number(v), graph.BlockOf(v.Name) == k.block, unnumbered(v.Name), v.Type)
	}
	k.WriteByte('\n')
}

func (k *keyer) number(v *graph.Value) int {
	i, ok := k.numbers[v]
	if !ok {
		i = len(k.numbers)
		k.numbers[v] = i
	}
	return i
}

// unnumbered returns a name in its block, with # for numbers.
func unnumbered(name string) string {
	parts := strings.Split(strings.TrimPrefix(name, graph.BlockOf(name)+"."), ".")
	for i, p := range parts {
		if strings.Trim(p, "0123456789") == "" {
			parts[i] = "#"
		}
	}
	return strings.Join(parts, ".")
}

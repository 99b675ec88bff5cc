package validate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/krait-ml/krait/graph"
)

// A mutant is graph text that a few random edits changed: names are absolute, so that a node's
// block is its name's, and an edit can move it across a border.
type mutant struct {
	*rand.Rand
	ranks    int
	inferred bool // types of results are left out
	nodes    []*mutantNode
	outputs  [][2]string // name and value
}

// mutantNode is a line of the text.
type mutantNode struct {
	op            string
	args, results []string // with their sigils
	types         []string // of results
	attrs         string
	rest          string // of a leaf: where the checkpoint, or the model's state, has it
}

// newMutant is a graph that is not broken yet.
func newMutant(g *graph.Graph, rng *rand.Rand) *mutant {
	m := &mutant{Rand: rng, ranks: g.Ranks, inferred: rng.IntN(2) == 0}
	ref := func(v *graph.Value) string {
		if v.Def.Op.Name == "param" {
			return "@" + v.Name
		}
		return "%" + v.Name
	}
	for _, n := range g.Nodes {
		k := &mutantNode{op: n.Op.Name, attrs: n.AttrText()}
		for _, v := range n.Args {
			k.args = append(k.args, ref(v))
		}
		for _, v := range n.Results {
			k.results, k.types = append(k.results, ref(v)), append(k.types, v.Type.String())
		}
		if n.Storage != nil {
			k.rest = n.Storage.String()
		}
		if n.Part != nil {
			k.rest = n.Part.String()
		}
		m.nodes = append(m.nodes, k)
	}
	for _, o := range g.Outputs {
		m.outputs = append(m.outputs, [2]string{o.Name, ref(o.Value)})
	}
	return m
}

func (n *mutantNode) leaf() bool { return n.op == "input" || n.op == "param" || n.op == "state" }

// text writes the mutant as graph text.
func (m *mutant) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "graph \"mutant\" stage=partitioned ranks=%d\n", m.ranks)
	for _, n := range m.nodes {
		switch types := strings.Join(n.types, ", "); {
		case n.leaf():
			fmt.Fprintf(&b, "%s %s : %s%s\n", n.op, n.results[0], types, n.rest)
		case m.inferred:
			fmt.Fprintf(&b, "%s = %s %s%s\n", strings.Join(n.results, " "), n.op, strings.Join(n.args, " "), n.attrs)
		default:
			fmt.Fprintf(&b, "%s = %s %s%s : %s\n", strings.Join(n.results, " "), n.op, strings.Join(n.args, " "), n.attrs, types)
		}
	}
	for _, o := range m.outputs {
		fmt.Fprintf(&b, "output %s = %s\n", o[0], o[1])
	}
	return b.String()
}

// pick is a node that fits; nil where none does.
func (m *mutant) pick(fits func(*mutantNode) bool) (int, *mutantNode) {
	var list []int
	for i, n := range m.nodes {
		if fits(n) {
			list = append(list, i)
		}
	}
	if list == nil {
		return -1, nil
	}
	i := list[m.IntN(len(list))]
	return i, m.nodes[i]
}

// collective reports whether ranks exchange data in a node.
func collective(n *mutantNode) bool {
	op, ok := graph.Lookup(n.op)
	return ok && op.Class == graph.Collective
}

// exchanges reports whether a node changes layout or format only.
func exchanges(n *mutantNode) bool {
	op, _ := graph.Lookup(n.op)
	return op.Class == graph.Collective || op.Class == graph.Relayout || n.op == "quantize" || n.op == "dequantize"
}

func takesSome(n *mutantNode) bool { return len(n.args) > 0 }

// replace lets all that take old, or those after a node, take another value.
func (m *mutant) replace(after int, old, by string) {
	for _, n := range m.nodes[after+1:] {
		for i := range n.args {
			if n.args[i] == old {
				n.args[i] = by
			}
		}
	}
	for i := range m.outputs {
		if m.outputs[i][1] == old {
			m.outputs[i][1] = by
		}
	}
}

// rename gives a value another name everywhere.
func (m *mutant) rename(old, name string) bool {
	for _, n := range m.nodes {
		if slices.Contains(n.results, name) {
			return false
		}
	}
	for _, n := range m.nodes {
		for i := range n.results {
			if n.results[i] == old {
				n.results[i] = name
			}
		}
	}
	m.replace(-1, old, name)
	return true
}

// renameInto gives a value a name in a block, or outside of blocks.
func (m *mutant) renameInto(block, v string) bool {
	if block != "" {
		block += "."
	}
	return m.rename(v, "%"+block+"moved_"+strings.ReplaceAll(v[1:], ".", "_"))
}

// move puts node i before what is node to.
func (m *mutant) move(i, to int) {
	n := m.nodes[i]
	m.nodes = slices.Delete(m.nodes, i, i+1)
	m.nodes = slices.Insert(m.nodes, min(max(to, 0), len(m.nodes)), n)
}

// edit applies a random edit, and says which.
func (m *mutant) edit() string {
	for {
		e := edits[m.IntN(len(edits))]
		if e.do(m) {
			return e.name
		}
	}
}

// typeOf is what is written for a value.
func (m *mutant) typeOf(name string) string {
	for _, n := range m.nodes {
		if k := slices.Index(n.results, name); k >= 0 && k < len(n.types) {
			return n.types[k]
		}
	}
	return ""
}

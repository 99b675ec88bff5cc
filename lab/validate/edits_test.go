package validate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/krait-ml/krait/graph"
)

// edits are the ways to break a mutant; each reports whether it changed anything.
var edits = []struct {
	name string
	do   func(*mutant) bool
}{
	{"swap operands", swapOperands},
	{"take another operand", takeAnother},
	{"leave an exchange out", leaveExchangeOut},
	{"repeat an exchange", repeatExchange},
	{"another exchange", anotherExchange},
	{"another cut", anotherCut},
	{"another placement", anotherPlacement},
	{"another format", anotherFormat},
	{"another accumulator", anotherAccumulator},
	{"move a node", moveNode},
	{"rename into another block", renameIntoBlock},
	{"gather before", gatherBefore},
	{"swap what two exchanges take", swapExchanged},
	{"join two launches", joinLaunches},
	{"take a launch apart", takeLaunchApart},
	{"another field or number", anotherAttribute},
	{"leave a node out", leaveNodeOut},
	{"another tensor", anotherTensor},
	{"another output", anotherOutput},
	{"other ranks", otherRanks},
}

// swapOperands exchanges two operands of a node.
func swapOperands(m *mutant) bool {
	_, n := m.pick(func(n *mutantNode) bool { return len(n.args) > 1 })
	i, j := m.IntN(len(n.args)), m.IntN(len(n.args))
	n.args[i], n.args[j] = n.args[j], n.args[i]
	return i != j
}

// takeAnother lets a node take another value of the same shape.
func takeAnother(m *mutant) bool {
	i, n := m.pick(takesSome)
	j := m.IntN(len(n.args))
	var same []string // of the same shape
	shape := whole(m.typeOf(n.args[j]))
	for _, o := range m.nodes[:i] {
		for k, v := range o.results {
			if whole(o.types[k]) == shape && v[0] == n.args[j][0] {
				same = append(same, v)
			}
		}
	}
	if len(same) == 0 {
		return false
	}
	was := n.args[j]
	n.args[j] = same[m.IntN(len(same))]
	return n.args[j] != was
}

// leaveExchangeOut lets those who took the results of an exchange take its operands.
func leaveExchangeOut(m *mutant) bool {
	i, n := m.pick(exchanges)
	if n == nil || len(n.args) != len(n.results) {
		return false
	}
	for k, v := range n.results {
		m.replace(i, v, n.args[k])
	}
	m.nodes = slices.Delete(m.nodes, i, i+1)
	return true
}

// repeatExchange does an exchange again, of the same operands or of its own results.
func repeatExchange(m *mutant) bool {
	i, n := m.pick(exchanges)
	if n == nil {
		return false
	}
	again := *n
	again.results, again.args = slices.Clone(n.results), slices.Clone(n.args)
	for k := range again.results {
		again.results[k] += "_again"
	}
	if m.IntN(2) == 0 && len(n.args) == len(n.results) { // of its own result
		again.args = slices.Clone(n.results)
	}
	for k, v := range n.results {
		m.replace(i+m.IntN(len(m.nodes)-i), v, again.results[k])
	}
	m.nodes = slices.Insert(m.nodes, i+1, &again)
	return true
}

// anotherExchange makes another operation of an exchange.
func anotherExchange(m *mutant) bool {
	_, n := m.pick(exchanges)
	if n == nil {
		return false
	}
	was := n.op
	n.op = []string{"all_reduce", "all_gather", "reduce_scatter", "shard", "term", "quantize", "dequantize"}[m.IntN(7)]
	if op, _ := graph.Lookup(n.op); !slices.ContainsFunc(op.Attrs, func(a graph.Attr) bool { return strings.Contains(n.attrs, a.Name+"=") }) {
		n.attrs = ""
	}
	return n.op != was
}

// anotherCut lets a reduce_scatter or a shard cut another axis, or by another rule.
func anotherCut(m *mutant) bool {
	_, n := m.pick(func(n *mutantNode) bool { return n.op == "reduce_scatter" || n.op == "shard" })
	if n == nil {
		return false
	}
	was := n.attrs
	n.attrs = []string{" {axis=0 place=even}", " {axis=0 place=sequence}", "", " {axis=0 acc=f32 place=even}", " {axis=2}", " {axis=0}"}[m.IntN(6)]
	return was != n.attrs
}

// anotherPlacement changes the layout of a result.
func anotherPlacement(m *mutant) bool {
	i, n := m.pick(func(n *mutantNode) bool { return n.leaf() || !m.inferred })
	if n == nil {
		return false
	}
	k := m.IntN(len(n.types))
	was := n.types[k]
	l := []string{"", " partial", " shard(0: split)", " shard(1: split)", " shard(0: even)", " shard(0: sequence)"}[m.IntN(6)]
	n.types[k] = whole(was) + l
	if n.op == "state" && m.IntN(2) == 0 { // and that of its successor
		for _, u := range m.nodes[i:] {
			for j, v := range u.types {
				if v == was {
					u.types[j] = n.types[k]
				}
			}
		}
	}
	return was != n.types[k]
}

// anotherFormat lets a quantize or a dequantize give another format.
func anotherFormat(m *mutant) bool {
	_, n := m.pick(func(n *mutantNode) bool { return n.op == "quantize" || n.op == "dequantize" })
	if n == nil {
		return false
	}
	was, _, _ := strings.Cut(n.types[0], "[")
	to := []string{"f32", "f16", "bf16", "int8/32", "int8/16", "e4m3/32", "e5m2/64", "int4/32", "scaled16/32"}[m.IntN(9)]
	n.attrs = fmt.Sprintf(" {to=%q}", to)
	if m.IntN(2) == 0 {
		m.inferred = true
	}
	n.types[0] = to + strings.TrimPrefix(n.types[0], was)
	return was != to
}

// anotherAccumulator lets a sum be added up in another format.
func anotherAccumulator(m *mutant) bool {
	_, n := m.pick(func(n *mutantNode) bool { return n.op == "reduce_scatter" || n.op == "all_reduce" })
	if n == nil {
		return false
	}
	if strings.Contains(n.attrs, "acc=f32") {
		n.attrs = strings.Replace(strings.Replace(n.attrs, "acc=f32 ", "", 1), " {acc=f32}", "", 1)
	} else if n.attrs == "" {
		n.attrs = " {acc=f32}"
	} else {
		n.attrs = strings.Replace(n.attrs, "{", "{acc=f32 ", 1)
	}
	return true
}

// moveNode moves a node up or down.
func moveNode(m *mutant) bool {
	i, _ := m.pick(func(n *mutantNode) bool { return true })
	to := m.IntN(len(m.nodes))
	if m.IntN(2) == 0 {
		to = i - 3 + m.IntN(7)
	}
	m.move(i, to)
	return i != to
}

// renameIntoBlock gives the results of a node names of another block.
func renameIntoBlock(m *mutant) bool {
	i, n := m.pick(func(n *mutantNode) bool { return !n.leaf() && (exchanges(n) || m.IntN(4) == 0) })
	if n == nil {
		return false
	}
	_, other := m.pick(func(o *mutantNode) bool { return !o.leaf() })
	if m.IntN(2) == 0 {
		other = m.nodes[max(0, i-1-m.IntN(3))]
	}
	block := graph.BlockOf(other.results[0][1:])
	if m.IntN(3) == 0 {
		block = ""
	}
	for _, v := range n.results {
		if !m.renameInto(block, v) {
			return false
		}
	}
	return true
}

// gatherBefore moves a collective before the node whose result it takes, perhaps into another
// block.
func gatherBefore(m *mutant) bool {
	i, n := m.pick(func(n *mutantNode) bool { return collective(n) && len(n.args) == 1 })
	if n == nil {
		return false
	}
	j := slices.IndexFunc(m.nodes, func(o *mutantNode) bool { return slices.Contains(o.results, n.args[0]) })
	if j < 0 || len(m.nodes[j].args) == 0 || len(m.nodes[j].results) != 1 {
		return false
	}
	o := m.nodes[j] // y = op x; z = gather y becomes z = gather x; y = op z
	x, y, z := o.args[0], n.args[0], n.results[0]
	n.types[0], o.types[0] = whole(m.typeOf(x)), whole(o.types[0])
	n.args[0] = x
	m.replace(i, z, y)
	o.args[0] = z
	m.move(i, j)
	switch m.IntN(4) {
	case 0:
		return m.renameInto("", z)
	case 1:
		return m.renameInto(graph.BlockOf(x[1:]), z)
	}
	return true
}

// whole is a type without its layout.
func whole(t string) string {
	shape, _, _ := strings.Cut(t, "]")
	return shape + "]"
}

// swapExchanged lets two exchanges of one kind take operands of each other.
func swapExchanged(m *mutant) bool {
	_, a := m.pick(exchanges)
	if a == nil {
		return false
	}
	_, b := m.pick(func(n *mutantNode) bool { return n != a && n.op == a.op })
	if b == nil {
		return false
	}
	i, j := m.IntN(len(a.args)), m.IntN(len(b.args))
	a.args[i], b.args[j] = b.args[j], a.args[i]
	return true
}

// joinLaunches makes one launch of two.
func joinLaunches(m *mutant) bool {
	i, a := m.pick(collective)
	if a == nil {
		return false
	}
	j, b := m.pick(func(n *mutantNode) bool { return n != a && n.op == a.op && n.attrs == a.attrs })
	if b == nil {
		return false
	}
	if m.IntN(2) == 0 {
		i, j, a, b = j, i, b, a
	}
	a.args, a.results, a.types = slices.Concat(a.args, b.args), slices.Concat(a.results, b.results), slices.Concat(a.types, b.types)
	m.nodes = slices.Delete(m.nodes, j, j+1)
	return true
}

// takeLaunchApart makes two launches of one.
func takeLaunchApart(m *mutant) bool {
	i, n := m.pick(func(n *mutantNode) bool { return collective(n) && len(n.args) > 1 && len(n.args) == len(n.results) })
	if n == nil {
		return false
	}
	o := &mutantNode{op: n.op, attrs: n.attrs, args: n.args[1:], results: n.results[1:], types: n.types[1:]}
	n.args, n.results, n.types = n.args[:1], n.results[:1], n.types[:1]
	m.nodes = slices.Insert(m.nodes, i+1, o)
	return true
}

// anotherAttribute gives a node the attributes of another, or other numbers.
func anotherAttribute(m *mutant) bool {
	_, n := m.pick(func(n *mutantNode) bool { return n.attrs != "" && !exchanges(n) })
	if n == nil {
		return false
	}
	_, o := m.pick(func(o *mutantNode) bool { return o.op == n.op && o.attrs != n.attrs })
	if o != nil {
		n.attrs = o.attrs
		return true
	}
	was := n.attrs
	n.attrs = strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' && m.IntN(3) == 0 {
			return '0' + (r-'0'+1)%10
		}
		return r
	}, n.attrs)
	return was != n.attrs
}

// leaveNodeOut lets those who took the results of a node take its first operand.
func leaveNodeOut(m *mutant) bool {
	i, n := m.pick(takesSome)
	for _, v := range n.results {
		m.replace(i, v, n.args[0])
	}
	m.nodes = slices.Delete(m.nodes, i, i+1)
	return true
}

// anotherTensor lets two leaves change their places in the checkpoint.
func anotherTensor(m *mutant) bool {
	_, n := m.pick(func(n *mutantNode) bool { return n.rest != "" })
	if n == nil {
		return false
	}
	_, o := m.pick(func(o *mutantNode) bool { return o.op == n.op && o.rest != n.rest })
	if o == nil {
		return false
	}
	n.rest, o.rest = o.rest, n.rest
	return true
}

// anotherOutput lets an output be another value.
func anotherOutput(m *mutant) bool {
	i := m.IntN(len(m.outputs))
	_, n := m.pick(takesSome)
	m.outputs[i][1] = n.results[0]
	return true
}

// otherRanks changes the number of ranks.
func otherRanks(m *mutant) bool {
	was := m.ranks
	m.ranks = []int{1, 2, 3, 4, 5, 8}[m.IntN(6)]
	return m.ranks != was
}

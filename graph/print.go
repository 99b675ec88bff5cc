package graph

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Print writes the graph as text. [Parse] reads it back to an equal graph.
//
// Names inside a block are relative to it; a name from elsewhere begins with
// "/". Parameters are written @name, all other values %name.
func Print(g *Graph) string {
	var p printer
	fmt.Fprintf(&p, "graph %q stage=%s ranks=%d", g.Name, g.Stage, g.Ranks)
	if g.Mesh != (Mesh{}) {
		fmt.Fprintf(&p, " mesh=%s", g.Mesh)
	}
	p.WriteByte('\n')
	for _, n := range g.Nodes {
		p.enter(n.Block())
		p.node(n)
	}
	if len(g.Outputs) > 0 {
		p.enter("")
	}
	for _, o := range g.Outputs {
		fmt.Fprintf(&p, "output %s = %s\n", o.Name, p.ref(o.Value))
	}
	return p.String()
}

// BlockKey is the text of a block without its scope and without the places of
// its parameters: two blocks are the same when their keys are.
func BlockKey(g *Graph, block string) string {
	p := printer{block: block, outside: map[*Value]string{}}
	for _, n := range g.Nodes {
		if n.Block() == block {
			p.node(n)
		}
	}
	return p.String()
}

// printer writes nodes relative to the block that it is in.
type printer struct {
	strings.Builder
	block   string
	outside map[*Value]string // in a key: the names that values of other blocks get
}

// enter starts a section when the block changes.
func (p *printer) enter(block string) {
	if block == p.block {
		return
	}
	if p.block = block; block != "" {
		fmt.Fprintf(p, "\nblock %s\n", block)
	} else {
		p.WriteByte('\n')
	}
}

func (p *printer) node(n *Node) {
	if p.block != "" {
		p.WriteString("  ")
	}
	names := make([]string, len(n.Results))
	types := make([]string, len(n.Results))
	for i, v := range n.Results {
		names[i] = p.ref(v)
		if types[i] = v.Type.String(); v.Narrow != NarrowNever {
			types[i] += " as " + v.Narrow.String()
		}
	}
	results := strings.Join(names, " ")
	if n.Op.Class == Leaf {
		fmt.Fprintf(p, "%s %s", n.Op.Name, results)
	} else {
		fmt.Fprintf(p, "%s = %s", results, n.Op.Name)
	}
	for _, v := range n.Args {
		p.WriteString(" " + p.ref(v))
	}
	p.WriteString(n.AttrText() + " : " + strings.Join(types, ", "))
	if n.Storage != nil && p.outside == nil {
		p.WriteString(n.Storage.String())
	}
	if n.Part != nil && p.outside == nil {
		p.WriteString(n.Part.text("%" + p.called(n.Part.State)))
	}
	if n.Note != "" && p.outside == nil {
		p.WriteString("  # " + strings.ReplaceAll(n.Note, "\n", " "))
	}
	p.WriteByte('\n')
}

// ref is how the value is called in the current block.
func (p *printer) ref(v *Value) string {
	sigil := "%"
	if v.Def.Op.Name == "param" {
		sigil = "@"
	}
	if p.outside == nil || BlockOf(v.Name) == p.block {
		return sigil + p.called(v.Name)
	}
	if p.outside[v] == "" {
		p.outside[v] = fmt.Sprintf("%s/%d", sigil, len(p.outside))
	}
	return p.outside[v]
}

// called is a name in the current block.
func (p *printer) called(name string) string {
	switch {
	case p.block == "":
		return name
	case BlockOf(name) == p.block:
		return name[len(p.block)+1:]
	}
	return "/" + name
}

// AttrText writes the attributes that are not at their default, with a space before them.
func (n *Node) AttrText() string {
	var parts []string
	for _, spec := range n.Op.Attrs {
		if v := n.Attrs[spec.Name]; v != nil && !sameAttr(v, spec.Default) {
			parts = append(parts, spec.Name+"="+attrValue(v))
		}
	}
	if parts == nil {
		return ""
	}
	slices.Sort(parts)
	return " {" + strings.Join(parts, " ") + "}"
}

func attrValue(v any) string {
	switch v := v.(type) {
	case float64:
		if math.IsInf(v, 0) || math.IsNaN(v) {
			return strings.ToLower(strconv.FormatFloat(v, 'g', -1, 64))
		}
		return strconv.FormatFloat(v, 'g', -1, 64)
	case string:
		if validPath(v) {
			return v
		}
		return strconv.Quote(v)
	}
	return fmt.Sprint(v)
}

// String writes the storage as graph text does, with a space before it.
func (s *Storage) String() string {
	var b strings.Builder
	b.WriteString(" from")
	for _, p := range s.Pieces {
		fmt.Fprintf(&b, " %q", p.Tensor)
		if p.Count > 0 {
			fmt.Fprintf(&b, "[%d:%d:%d]", p.Start, p.Step, p.Count)
		}
	}
	for _, list := range []struct {
		name string
		ints []int
	}{{"shape", s.Shape}, {"perm", s.Perm}} {
		if list.ints != nil {
			fmt.Fprintf(&b, " %s(%s)", list.name, strings.Trim(fmt.Sprint(list.ints), "[]"))
		}
	}
	return b.String()
}

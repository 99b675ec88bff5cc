package visualize

import (
	"fmt"

	"github.com/emicklei/dot"
	"github.com/krait-ml/krait/graph"
)

// mark frames a box with a node that differs, or that the pattern matches.
func (d *drawing) mark(box dot.Node, nodes []*graph.Node) {
	for _, n := range nodes {
		if d.differ[n] {
			d.met["differs"] = true
			style := "rounded,filled,dashed"
			if n.Op.Class == graph.Collective {
				style = "filled,dashed"
			}
			box.Attr("style", style).Attr("penwidth", "2").Attr("color", black)
		}
		if d.matched[n] {
			d.met["match"] = true
			box.Attr("penwidth", "4").Attr("color", black)
		}
	}
}

// match finds the nodes that the pattern matches: by the name of a result, or by the operation.
func (d *drawing) match(o Options) error {
	if o.Highlight == nil {
		return nil
	}
	for _, n := range d.g.Nodes {
		if n.Op.Class == graph.Leaf {
			continue
		}
		found := o.Highlight.MatchString(n.Op.Name)
		for _, v := range n.Results {
			found = found || o.Highlight.MatchString(v.Name)
		}
		if found {
			d.matched[n] = true
		}
	}
	if len(d.matched) == 0 {
		return fmt.Errorf("no operation and no result's name matches %q", o.Highlight)
	}
	return nil
}

// gather marks a node of a kind's first block if a node in its place in another block is marked.
func (d *drawing) gather(k *kind, blocks map[string]*block) {
	first := blocks[k.blocks[0]].nodes
	for _, b := range k.blocks[1:] {
		for i, n := range blocks[b].nodes {
			if d.matched[n] {
				d.matched[first[i]] = true
			}
		}
	}
}

// differing marks the nodes of a list that another does not have, or has otherwise: as often as
// they occur more.
func (d *drawing) differing(nodes, others []*graph.Node) {
	count := map[string]int{}
	for _, n := range others {
		count[signature(n)]++
	}
	for _, n := range nodes {
		if key := signature(n); count[key] > 0 {
			count[key]--
		} else {
			d.differ[n] = true
		}
	}
}

// signature describes a node: the operation, its attributes, and names and types of results and
// operands, without numbers of blocks.
func signature(n *graph.Node) string {
	key := fmt.Sprint(n.Op.Name, n.Attrs)
	for _, v := range n.Results {
		key += fmt.Sprintf(" %s %s", unnumbered(v.Name), v.Type)
	}
	for _, v := range n.Args {
		key += fmt.Sprintf(" %s", v.Type)
	}
	return key
}

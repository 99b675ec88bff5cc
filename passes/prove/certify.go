package prove

import (
	"fmt"
	"slices"
	"strings"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/versions"
	"github.com/krait-ml/krait/passes/class"
)

// certify writes down what was proved of g, and which blocks stray from the class at their borders.
func certify(g *graph.Graph, s *sums, minima map[string]Minimum, stray map[string][]string) *Certificate {
	c := &Certificate{Version: versions.Certificate.Version, Model: g.Name, Ranks: ranksOf(g), Nodes: len(g.Nodes), Class: class.Text, Exact: true, Outside: []string{}, Minimum: total(minima)}
	if s.border == graph.InParts {
		c.Class = class.PartsText
	} else if s.border != graph.Whole {
		c.Class += fmt.Sprintf(class.RowsText, graph.Placement{Kind: s.border})
	}
	byBlock := map[string][]*graph.Node{}
	for _, n := range g.Nodes {
		byBlock[n.Block()] = append(byBlock[n.Block()], n)
	}
	folded := map[string]int{}
	for _, block := range append(g.Blocks(), "") {
		p := part(g, s, block, byBlock[block], minima[block])
		p.Outside = slices.Insert(p.Outside, 0, stray[block]...)
		c.add(p, block)
		text := fmt.Sprintf("%s%+v", graph.BlockKey(&graph.Graph{Nodes: byBlock[block]}, block), p)
		if i, ok := folded[text]; ok {
			c.Parts[i].Blocks = append(c.Parts[i].Blocks, block)
			continue
		}
		folded[text] = len(c.Parts)
		if p.Blocks = []string{}; block != "" {
			p.Blocks = []string{block}
		}
		c.Parts = append(c.Parts, p)
	}
	c.SentOne = c.Sent.One()
	c.Minimum.SentBytes = ceil(c.Minimum.parts, c.Ranks)
	return c
}

// add counts a part.
func (c *Certificate) add(p Part, block string) {
	c.Collectives += len(p.Collectives)
	c.Sent = c.Sent.plus(p.Sent)
	c.WeightBytes += p.WeightBytes
	c.Exact = c.Exact && len(p.Inexact) == 0
	if len(p.Outside) > 0 {
		c.Outside = append(c.Outside, (Part{Blocks: blockList(block)}).title())
	}
}

func part(g *graph.Graph, s *sums, block string, nodes []*graph.Node, m Minimum) Part {
	p := Part{Minimum: m, Collectives: []Collective{}, Outside: []string{}, Inexact: []string{}, Notes: []string{}, Sent: Volume{ranks: int64(ranksOf(g))}}
	for _, n := range nodes {
		if n.Op.Class == graph.Compute && n.Note != "" {
			p.Notes = append(p.Notes, local(n.Name(), block)+" is "+n.Note)
		}
		switch {
		case n.Op.Class == graph.Collective:
			p.Collectives = append(p.Collectives, s.collective(g, n))
			p.Sent = p.Sent.plus(p.Collectives[len(p.Collectives)-1].Sent)
			p.narrow = p.narrow || s.narrows(n)
		case n.Op.Name == "quantize":
			p.Inexact = append(p.Inexact, fmt.Sprintf("%s travels as %s", local(n.Args[0].Name, block), n.Results[0].Type.DType))
		case n.Op.Name == "param":
			p.WeightBytes += class.WeightBytes(n.Results[0].Type, n.Results[0].Type.Layout, ranksOf(g))
		}
		for _, v := range n.Results {
			if why := outside(s, n, v); why != "" && ranksOf(g) > 1 {
				p.Outside = append(p.Outside, local(v.Name, block)+" "+why)
			}
		}
	}
	p.SentOne, p.Rounded = p.Sent.One(), s.roundings(g, nodes, block)
	return p
}

// outside says why the class does not have a value as it lies; empty if it has.
func outside(s *sums, n *graph.Node, v *graph.Value) string {
	t := s.unrounded(v)
	switch made := transparent(n) || n.Op.Name == "input" || class.OfNothing(n); {
	case class.InRows(s.border, t) || s.border == graph.InParts && class.Lies(s.border, t, made):
		return ""
	case v.Type.Layout.ByBatch() && s.inTransit(v):
		return ""
	case v.Type.Layout.ByBatch():
		return fmt.Sprintf("is split along rows, and the class does not split it so (%s)", v.Type)
	case !class.Spread(s.border, n, v, v.Type.Layout):
		return fmt.Sprintf("is an add of tokens that all ranks do (%s)", v.Type)
	case n.Op.Name == "term" && !class.IsTerm(s.border, t):
		return "has tokens, and is a term"
	case !class.Owned(t, made) && v.Type.Layout.Kind == graph.Replicated:
		return fmt.Sprintf("has units and every rank has all of them (%s)", v.Type)
	case !class.Owned(t, made):
		return fmt.Sprintf("is not split in units (%s)", v.Type)
	case s.termsOnly(v) && n.Op.Name != "term":
		return "is a sum of terms only, which no partial sum joins"
	}
	return ""
}

// bordering says how values leave blocks.
func bordering(l graph.Layout) string {
	if l.Kind == graph.Replicated {
		return "whole"
	}
	return "split along its tokens"
}

// collective describes one launch.
func (s *sums) collective(g *graph.Graph, n *graph.Node) Collective {
	c := Collective{Kind: n.Op.Name, Name: local(n.Name(), n.Block()), to: n.Op.To, Sent: Volume{ranks: int64(ranksOf(g))}}
	for i, v := range n.Args {
		c.Values = append(c.Values, local(v.Name, n.Block()))
		for _, r := range s.reasons(v, n.Block()) {
			if !slices.Contains(c.Reasons, r) {
				c.Reasons = append(c.Reasons, r)
			}
		}
		s.needs(g, n.Results[i], n.Block(), &c.WholeFor)
		c.Elements.Poly = c.Elements.Plus(v.Type.Elems())
		c.Payload.Poly = c.Payload.Plus(v.Type.Bytes())
		c.Sent = c.Sent.plus(sent(n.Op, v.Type, ranksOf(g)))
	}
	c.SentOne = c.Sent.One()
	return c
}

// reasons says what made a value partial or split.
func (s *sums) reasons(v *graph.Value, block string) []string {
	if v.Type.Layout.Kind == graph.Sharded {
		d := v.Type.Dims[v.Type.Layout.Axis]
		return []string{fmt.Sprintf("%s is split over ranks on axis %d (%s)", local(v.Name, block), v.Type.Layout.Axis, d)}
	}
	var out []string
	for _, o := range s.pending[v] {
		name := local(o.node.Name(), block)
		if o.node.Op.Name == "term" {
			out = append(out, fmt.Sprintf("%s joins as a term", local(o.node.Args[0].Name, block)))
		} else {
			out = append(out, fmt.Sprintf("%s contracts split %s", name+o.field, contracted(o.node)))
		}
	}
	return out
}

// contracted names the split axis over which a node sums, as its rule does.
func contracted(n *graph.Node) string {
	for i, v := range n.Args {
		l := v.Type.Layout
		if l.Kind != graph.Sharded {
			continue
		}
		if axes := ruleAxes(n.Op.Rule, i); l.Axis < len(axes) {
			return fmt.Sprintf("%s (%s)", axes[l.Axis], v.Type.Dims[l.Axis])
		}
	}
	return "units"
}

// ruleAxes lists the axes of operand i as the rule writes them.
func ruleAxes(r *graph.Rule, i int) []string {
	if r == nil {
		return nil
	}
	in, _, _ := strings.Cut(r.String(), "->")
	lists := strings.Split(in, ",")
	var axes []string
	open := false
	for _, word := range strings.Fields(lists[min(i, len(lists)-1)]) {
		if open {
			axes[len(axes)-1] += " " + word
		} else {
			axes = append(axes, word)
		}
		open = open && !strings.HasSuffix(word, ")") || strings.HasPrefix(word, "(") && !strings.HasSuffix(word, ")")
	}
	return axes
}

// needs collects who takes a value, through views and relayouts.
func (s *sums) needs(g *graph.Graph, v *graph.Value, block string, out *[]string) {
	add := func(name string) {
		if !slices.Contains(*out, name) {
			*out = append(*out, name)
		}
	}
	for _, n := range s.users[v] {
		if n.Op.Class == graph.View || n.Op.Class == graph.Relayout || rounds(n) {
			for _, r := range n.Results {
				s.needs(g, r, block, out)
			}
		} else {
			add(local(n.Name(), block))
		}
	}
	for _, o := range g.Outputs {
		if o.Value == v {
			add("output " + o.Name)
		}
	}
}

// local is a name relative to a block.
func local(name, block string) string {
	if rest, ok := strings.CutPrefix(name, block+"."); ok && block != "" {
		return rest
	}
	return name
}

func blockList(block string) []string {
	if block == "" {
		return []string{}
	}
	return []string{block}
}

package passes

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/passes/class"
)

// write gives the graph the layouts of the best way. Nodes keep their order. A conversion goes
// right after what it converts, so that it can run beside what does not wait for it; of what comes
// from outside of the section, right before its first use.
func (c *chooser) write() (*graph.Graph, error) {
	ranks := c.options.Ranks
	if c.options.Across {
		ranks = c.g.Ranks
	}
	r := rewrite(c.g, graph.PartitionedStage, ranks)
	placed, writers := c.placements(), map[*graph.Node]*writer{}
	outputs := map[*graph.Value]*graph.Value{}
	for _, s := range c.best {
		w := newWriter(r, s, outputs)
		for _, n := range s.Nodes {
			writers[n] = w
		}
	}
	for _, n := range c.g.Nodes {
		var err error
		if v := n.Results[0]; n.Op.Class == graph.Leaf {
			err = r.leaf(n, v.Name, graph.Type{DType: v.Type.DType, Dims: v.Type.Dims, Layout: placed[v]}, n.Storage, v)
		} else {
			err = writers[n].node(n)
		}
		if err != nil {
			return nil, err
		}
	}
	maps.Copy(r.to, outputs)
	return r.finish()
}

// writer writes the nodes of a section.
type writer struct {
	*rewriter
	solved
	decided map[*graph.Node]*decision
	after   [][]conversion                // by value
	copies  map[copyOf]*graph.Value       // that are written
	outputs map[*graph.Value]*graph.Value // whole copies of what is made here, which outputs are
}

// copyOf is a value in a layout, by their numbers in the section.
type copyOf struct{ value, layout int }

func newWriter(r *rewriter, s solved, outputs map[*graph.Value]*graph.Value) *writer {
	w := &writer{r, s, map[*graph.Node]*decision{}, make([][]conversion, len(s.Values)), map[copyOf]*graph.Value{}, outputs}
	for i, n := range s.Nodes {
		w.decided[n] = s.decisions[i]
		for _, c := range s.decisions[i].conversions {
			w.after[c.value] = append(w.after[c.value], c)
		}
	}
	return w
}

func (w *writer) node(n *graph.Node) error {
	args := make([]*graph.Value, len(n.Args))
	for i, v := range n.Args {
		k, layout := w.ID[v], w.decided[n].In[i]
		if w.Start[k] != nil { // from outside of the section
			if err := w.convert(v); err != nil {
				return err
			}
		}
		if args[i] = w.copies[copyOf{k, layout}]; args[i] == nil {
			panic(fmt.Sprintf("BUG: %s is not there as (%s) for %s", v.Name, layoutText(v, w.layouts[layout]), n.Name()))
		}
	}
	if _, err := w.rewriter.node(n, n.Op.Name, n.Attrs, names(n.Results), n.Results, args...); err != nil {
		return err
	}
	for _, v := range n.Results {
		if err := w.convert(v); err != nil {
			return err
		}
	}
	return nil
}

// convert makes the copies of v, which is written, that the section needs.
func (w *writer) convert(v *graph.Value) error {
	k, as := w.ID[v], w.to[v]
	w.written(v, slices.IndexFunc(w.layouts, as.Type.Layout.Equal), as)
	for _, c := range w.after[k] {
		if w.copies[copyOf{k, c.to}] != nil {
			continue
		}
		made, err := w.conversion(v, c)
		if err != nil {
			return err
		}
		w.written(v, c.to, made)
	}
	return nil
}

// written notes a copy of v: for this section, for those to come, and for outputs.
func (w *writer) written(v *graph.Value, layout int, as *graph.Value) {
	k := w.ID[v]
	w.copies[copyOf{k, layout}] = as
	if w.Start[k] != nil {
		return
	}
	if as.Type.Layout.Equal(class.AtBorder(w.Border, v.Type)) {
		w.to[v] = as
	}
	if layout == class.Whole {
		w.outputs[v] = as
	}
}

// conversion writes a copy of v in another layout, in the section's block.
func (w *writer) conversion(v *graph.Value, c conversion) (*graph.Value, error) {
	from, to := w.layouts[c.from], w.layouts[c.to]
	op, ok := graph.Between(from.Kind, to.Kind)
	if !ok {
		panic(fmt.Sprintf("BUG: nothing takes %s from (%s) to (%s)", v.Name, layoutText(v, from), layoutText(v, to)))
	}
	attrs := graph.Attrs{}
	if op.To == graph.Sharded {
		attrs = graph.CutAttrs(to)
	}
	if w.Across {
		attrs["along"] = graph.TP.String()
	}
	n, err := w.out.Add(op.Name, attrs, []string{w.newName(v, suffix(op))}, w.copies[copyOf{c.value, c.from}])
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", v.Name, op.Name, err)
	}
	n.Note = reason(op, v, w.takers(v, c.to))
	return n.Results[0], nil
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
func (w *writer) newName(v *graph.Value, suffix string) string {
	name := v.Name
	if block := graph.BlockOf(name); block != w.Block {
		name = strings.TrimPrefix(w.Block+"."+strings.TrimPrefix(name, block+"."), ".")
	}
	for name += suffix; w.exists(name); {
		name += "_"
	}
	return name
}

// takers names the nodes that take a value in a layout.
func (w *writer) takers(v *graph.Value, layout int) []string {
	var list []string
	for _, n := range w.Written {
		if w.decided[n] == nil {
			continue // a leaf
		}
		name := strings.TrimPrefix(n.Name(), n.Block()+".")
		for j, arg := range n.Args {
			if arg == v && w.decided[n].In[j] == layout && !slices.Contains(list, name) {
				list = append(list, name)
			}
		}
	}
	return list
}

func (w *writer) exists(name string) bool {
	_, old := w.from.Value(name)
	_, made := w.out.Value(name)
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
	how := "whole"
	if op.To == graph.Sharded {
		how = "split"
	}
	switch len(takers) {
	case 0:
		if graph.BlockOf(v.Name) == "" {
			return name + "; blocks or outputs need it " + how
		}
		return name + "; what is after the block needs it " + how
	case 1:
		return name + "; " + takers[0] + " needs it " + how
	}
	return name + "; " + strings.Join(takers, ", ") + " need it " + how
}

func layoutText(v *graph.Value, l graph.Layout) string {
	if l.Kind == graph.Replicated {
		return "whole"
	}
	t := v.Type
	t.Layout = l
	return t.LayoutString()
}

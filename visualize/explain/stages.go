package explain

import (
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/visualize"
)

// stage is a graph on the page. A section is the nodes before the layers, of a layer, or after
// them. Sections of a kind have equal nodes, except for slots, of which there are a few variants.
type stage struct {
	Pass    string   `json:"pass"`
	Doc     string   `json:"doc"`
	Name    string   `json:"stage"`
	Nodes   int      `json:"nodes"`
	Kinds   []kind   `json:"kinds"`
	Of      [][2]int `json:"of"` // by section: kind and variant
	Outputs []string `json:"outputs"`
	Diff    *diff    `json:"diff,omitempty"` // from the stage before
}

type kind struct {
	Nodes    []node     `json:"nodes"`
	Variants [][]string `json:"variants"`
	Letter   string     `json:"letter"`
}

// node is a node of the page. Numbers in place of names and texts are slots.
type node struct {
	Op      string     `json:"o"`
	Results []result   `json:"r"`
	Args    []any      `json:"a,omitempty"`
	Attrs   string     `json:"x,omitempty"`
	Storage any        `json:"s,omitempty"` // text after the type: where the checkpoint has it
	Note    any        `json:"n,omitempty"`
	Cost    *[3]string `json:"c,omitempty"` // FLOPs, bytes read, bytes written
}

// result is a name (or a slot for one of another layer), a type without its layout, and the layout.
type result struct {
	name              any
	typ, layout, kind string
}

// MarshalJSON writes a list.
func (r result) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{r.name, r.typ, r.layout, r.kind})
}

var layoutNames = map[graph.LayoutKind]string{graph.Replicated: "", graph.Sharded: "split", graph.Partial: "partial"}

// stages returns the graphs, with the changes from one to the next.
func (d *document) stages(list []Stage) {
	d.Sections = []string{"before the layers"}
	names := map[string]int{}
	for i := range list {
		for _, b := range list[i].Blocks() {
			if names[b] == 0 {
				names[b] = len(d.Sections)
				d.Sections = append(d.Sections, b)
			}
		}
	}
	d.Sections = append(d.Sections, "after the layers")
	var last *sections
	for i := range list {
		s := d.sections(list[i].Graph, names)
		st := s.fold(d)
		st.Pass, st.Doc, st.Name, st.Nodes = clean(list[i].Pass), clean(list[i].Doc), list[i].Graph.Stage.String(), len(list[i].Nodes)
		if last != nil {
			st.Diff = compare(last, s)
		}
		d.Stages = append(d.Stages, st)
		last = s
	}
}

// sections has the nodes of a graph by section.
type sections struct {
	g     *graph.Graph
	nodes [][]*graph.Node
	of    [][2]int // as in stage
}

func (d *document) sections(g *graph.Graph, names map[string]int) *sections {
	s := &sections{g: g, nodes: make([][]*graph.Node, len(d.Sections))}
	last := 0 // last node of a layer
	for i, n := range g.Nodes {
		if n.Block() != "" {
			last = i
		}
	}
	for i, n := range g.Nodes {
		at := names[n.Block()]
		if n.Block() == "" && i > last {
			at = len(s.nodes) - 1
		}
		s.nodes[at] = append(s.nodes[at], n)
		if _, ok := d.Ops[n.Op.Name]; !ok {
			d.Ops[n.Op.Name] = infoOf(n.Op)
		}
	}
	return s
}

func infoOf(op *graph.Op) opInfo {
	info := opInfo{Doc: op.Doc, Class: classes[op.Class], Work: visualize.Work(op.Name)}
	if op.Rule != nil {
		info.Rule = op.Rule.String()
	}
	return info
}

// fold stores each kind of section once.
func (s *sections) fold(d *document) stage {
	var out stage
	kinds := map[string]int{}
	for i, nodes := range s.nodes {
		name := ""
		if i > 0 && i < len(s.nodes)-1 {
			name = d.Sections[i]
		}
		w := writer{block: name}
		k := kind{Nodes: []node{}}
		var ops []string
		for _, n := range nodes {
			k.Nodes, ops = append(k.Nodes, w.node(n)), append(ops, n.Op.Name)
		}
		k.Letter = visualize.Letter(ops)
		text, _ := json.Marshal(k.Nodes) // strings and numbers only: it cannot fail
		key := strconv.Itoa(min(i, 1)) + string(text)
		at, ok := kinds[key]
		if !ok {
			at = len(out.Kinds)
			kinds[key] = at
			out.Kinds = append(out.Kinds, k)
		}
		variants := &out.Kinds[at].Variants
		v := slices.IndexFunc(*variants, func(v []string) bool { return slices.Equal(v, w.slots) })
		if v < 0 {
			v = len(*variants)
			*variants = append(*variants, append([]string{}, w.slots...))
		}
		out.Of = append(out.Of, [2]int{at, v})
	}
	for _, o := range s.g.Outputs {
		out.Outputs = append(out.Outputs, o.Name+" = %"+o.Value.Name)
	}
	s.of = out.Of
	return out
}

// writer writes the nodes of a section. Texts that may differ in sections of the kind become slots.
type writer struct {
	block string
	slots []string
}

func (w *writer) node(n *graph.Node) node {
	out := node{Op: n.Op.Name, Attrs: clean(n.AttrText())}
	for _, v := range n.Results {
		layout := v.Type.LayoutString()
		typ := strings.TrimSuffix(strings.TrimSuffix(v.Type.String(), layout), " ")
		name, own := w.own(v.Name)
		if !own {
			name = w.slot(v.Name)
		}
		out.Results = append(out.Results, result{name, typ, layout, layoutNames[v.Type.Layout.Kind]})
	}
	for _, v := range n.Args {
		if name, own := w.own(v.Name); own {
			out.Args = append(out.Args, sigil(v)+name.(string))
		} else {
			out.Args = append(out.Args, w.slot(sigil(v)+v.Name))
		}
	}
	from := ""
	if n.Storage != nil {
		from = n.Storage.String()
	}
	if n.Part != nil {
		from += n.Part.String()
	}
	if from != "" {
		out.Storage = w.slot(from)
	}
	if n.Note != "" {
		out.Note = w.slot(n.Note)
	}
	if n.Op.Class == graph.Compute {
		c := n.Cost()
		out.Cost = &[3]string{c.FLOPs.String(), c.Read.String(), c.Write.String()}
	}
	return out
}

// own returns a name in its section, unless it belongs to another one, or has a number that differs
// in sections of the kind.
func (w *writer) own(name string) (any, bool) {
	if w.block == "" {
		return name, true
	}
	rest, ok := strings.CutPrefix(name, w.block+".")
	return rest, ok && !numbered.MatchString(rest)
}

var numbered = regexp.MustCompile(`(^|\.)\d+(\.|$)`)

func sigil(v *graph.Value) string {
	if v.Def.Op.Name == "param" {
		return "@"
	}
	return "%"
}

// slot stores a text of the section, with layer numbers relative to its own, between two characters
// that no text has.
func (w *writer) slot(text string) int {
	text = clean(text)
	if w.block != "" {
		own, _ := strconv.Atoi(strings.TrimPrefix(w.block, "layers."))
		text = layerNumber.ReplaceAllStringFunc(text, func(m string) string {
			n, err := strconv.Atoi(m[len("layers."):])
			if err != nil {
				return m
			}
			return "layers.\x01" + strconv.Itoa(n-own) + "\x01"
		})
	}
	w.slots = append(w.slots, text)
	return len(w.slots) - 1
}

var layerNumber = regexp.MustCompile(`\blayers\.\d{1,9}\b`)

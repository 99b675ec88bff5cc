package visualize

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/emicklei/dot"
	"github.com/krait-ml/krait/graph"
)

// sheet is a column of a picture: nodes in boxes, and arrows between them.
type sheet struct {
	*drawing
	at    *frame
	kind  *kind // the kind of block; nil: the model
	boxes []box
	in    map[*graph.Value]dot.Node
	drawn map[string]bool // arrows

	shared map[*graph.Value]bool   // equal in all blocks of the kind
	before map[*graph.Value]string // name in the layer before, for values of the layer before in all blocks
}

type box struct {
	dot.Node
	nodes []*graph.Node
}

func (d *drawing) sheet(at *frame, k *kind) *sheet {
	return &sheet{drawing: d, at: at, kind: k, in: map[*graph.Value]dot.Node{}, drawn: map[string]bool{},
		shared: map[*graph.Value]bool{}, before: map[*graph.Value]string{}}
}

// look compares the inputs of the kind's blocks.
func (s *sheet) look(blocks map[string]*block) {
	place := map[string]int{}
	for i, b := range s.g.Blocks() {
		place[b] = i
	}
	first := s.kind.blocks[0]
	for i, n := range blocks[first].nodes {
		for j, v := range n.Args {
			shared, before, name := len(s.kind.blocks) > 1, len(s.kind.blocks) > 1, ""
			for _, b := range s.kind.blocks {
				w := blocks[b].nodes[i].Args[j]
				shared = shared && w == v
				from := w.Def.Block()
				before = before && (from == "" || place[from] == place[b]-1)
				if from != "" {
					name = unnumbered(w.Name)
				}
			}
			if s.shared[v] = shared; before && !shared {
				s.before[v] = name
			}
		}
	}
}

// quiet reports whether an operand is a line in the box of its user rather than a node: parameters,
// states, inputs of the batch, and inputs that accompany a computed value, as those of sampling do.
func (d *drawing) quiet(v *graph.Value, user *graph.Node) bool {
	switch v.Def.Op.Name {
	case "param", "state":
		return true
	case "input":
		return v.Type.DType == graph.I32 && user.Block() != "" || len(d.users[v]) == 1 && !d.isOutput(v) &&
			slices.ContainsFunc(user.Args, func(w *graph.Value) bool { return w.Def.Op.Class != graph.Leaf })
	}
	return false
}

func (d *drawing) isOutput(v *graph.Value) bool {
	return slices.ContainsFunc(d.g.Outputs, func(o graph.Output) bool { return o.Value == v })
}

// scopeOf returns the scope of a node in its block: mixer, attention; "" for none.
func scopeOf(n *graph.Node) string {
	scope := strings.TrimPrefix(strings.TrimPrefix(n.Results[0].Scope(), n.Block()), ".")
	scope, _, _ = strings.Cut(scope, ".")
	return scope
}

// short returns a name relative to its scope.
func short(name string, n *graph.Node) string {
	name = strings.TrimPrefix(name, n.Block()+".")
	if scope := scopeOf(n); scope != "" {
		if rest, ok := strings.CutPrefix(name, scope+"."); ok {
			return rest
		}
	}
	return name
}

// lineMax is about the greatest width of a line, in letters.
const lineMax = 26

// typeText returns a type, with ÷ before the fields of the axis that is split, and the layout of a
// type that this does not say, or of a partial sum. On a rank it is the type of the rank's shard.
func (d *drawing) typeText(t graph.Type) (typ, layout string) {
	if d.local {
		return d.g.Local(t, d.rank).String(), ""
	}
	layout = t.LayoutString()
	typ = strings.TrimSuffix(strings.TrimSuffix(t.String(), layout), " ")
	l := t.Layout
	if l.Kind != graph.Sharded || l.ByBatch() || slices.ContainsFunc(l.Place, func(p graph.Placement) bool { return p.Kind > graph.Split }) {
		return typ, layout
	}
	dims := make([]string, len(t.Dims))
	for i, dim := range t.Dims {
		if dims[i] = dim.String(); i == l.Axis {
			fields := strings.Split(dims[i], "|")
			for j, p := range l.Place {
				if p.Kind == graph.Split {
					fields[j] = "÷" + fields[j]
				}
			}
			dims[i] = strings.Join(fields, "|")
		}
	}
	return t.DType.String() + "[" + strings.Join(dims, " ") + "]", ""
}

// typeLine adds a value, with its type the first time. A type that is long beside the name has its
// own line, and so has its layout.
func (s *sheet) typeLine(l *label, name string, v *graph.Value, size int) {
	lines := []string{name}
	if !s.typed[v] {
		s.typed[v] = true
		typ, layout := s.typeText(v.Type)
		for _, part := range append(folded(typ), layout) {
			if last := lines[len(lines)-1]; len(last)+len(part) < lineMax {
				lines[len(lines)-1] = strings.TrimSpace(last + " " + part)
			} else {
				lines = append(lines, part)
			}
		}
	}
	for _, line := range lines {
		if line != "" {
			l.line(line, s.lineOf(v), size, false)
		}
	}
}

// folded breaks a long type after its fields or axes.
func folded(text string) []string {
	var lines []string
	for utf8.RuneCountInString(text) > lineMax {
		at := strings.LastIndexAny(text[:lineMax], "| ") + 1
		if at == 0 {
			break
		}
		lines, text = append(lines, strings.TrimSuffix(text[:at], " ")), text[at:]
	}
	return append(lines, text)
}

// lineOf returns the colour of a value in text and arrows.
func (s *sheet) lineOf(v *graph.Value) string {
	if s.g.Ranks == 1 {
		return grey
	}
	return s.colour(layoutColours[v.Type.Layout.Kind]).line
}

// add adds a box of nodes, without a label.
func (s *sheet) add(nodes []*graph.Node) box {
	scope := ""
	if s.detail == Ops {
		scope = scopeOf(nodes[0])
	}
	b := box{s.at.add(scope, s.next), nodes}
	s.boxes = append(s.boxes, b)
	for _, n := range nodes {
		for _, v := range n.Results {
			s.in[v] = b.Node
		}
	}
	return b
}

// box draws nodes as one box.
func (s *sheet) box(nodes []*graph.Node) {
	b := s.add(nodes)
	switch n := nodes[0]; {
	case s.part(n) != "":
		s.partLabel(b)
	case n.Op.Class == graph.Collective:
		s.collective(b.Node, n)
	default:
		s.operation(b.Node, n)
	}
	s.mark(b.Node, nodes)
}

// operation labels an operation: its result and its quiet operands.
func (s *sheet) operation(box dot.Node, n *graph.Node) {
	var l label
	l.line(n.Op.Name, "", textSize, Work(n.Op.Name) != "other")
	if name := short(n.Name(), n); name != n.Op.Name {
		l.line(name, "", textSize, false)
	}
	results := n.Results
	for _, p := range n.Op.States {
		results = slices.DeleteFunc(slices.Clone(results), func(v *graph.Value) bool { return v == n.Results[p.Result] })
	}
	for i, v := range results {
		name := ""
		if i > 0 {
			name = short(v.Name, n)
		}
		s.typeLine(&l, name, v, noteSize)
	}
	s.quietLines(&l, n)
	c := s.fill(n)
	box.Attr("label", l.html()).Attr("fillcolor", c.fill).Attr("color", c.line)
}

// quietLines adds a line for each parameter and one for the inputs of the batch, and states below.
func (s *sheet) quietLines(l *label, n *graph.Node) {
	var batch []string
	for _, v := range n.Args {
		if !s.quiet(v, n) {
			continue
		}
		switch name := short(v.Name, n); v.Def.Op.Name {
		case "param":
			name = "@" + strings.TrimPrefix(name, short(n.Name(), n)+".")
			if s.shared[v] {
				name = "shared\u00a0" + name
			}
			s.typeLine(l, name, v, noteSize)
		case "state":
			s.met["state"] = true
			state := oneLine(name, "", noteSize, true)
			s.typeLine(state, "", v, noteSize)
			l.states = append(l.states, state)
		default:
			batch = append(batch, "%"+name)
		}
	}
	if len(batch) > 0 {
		l.line(strings.Join(batch, " "), grey, noteSize, false)
	}
}

// fill returns the colour by layout, or on one rank by the kind of work.
func (s *sheet) fill(n *graph.Node) colour {
	switch {
	case n.Op.Class == graph.Relayout:
		return s.colour("relayout")
	case s.g.Ranks > 1:
		return s.colour(layoutColours[n.Results[0].Type.Layout.Kind])
	}
	return s.colour(Work(n.Op.Name))
}

// collective labels a collective: its payload and its reason.
func (s *sheet) collective(box dot.Node, n *graph.Node) {
	var l label
	l.line(exchangeOf(n), "", headSize, true)
	l.line(payload(n).String()+" bytes", "", textSize, true)
	for _, v := range n.Results {
		s.typeLine(&l, short(v.Name, n), v, noteSize)
	}
	for part := range strings.SplitSeq(n.Note, "; ") {
		for _, line := range wrapped(part, 44) {
			l.line(line, "", noteSize, false)
		}
	}
	c := s.colour("collective")
	box.Attr("label", l.html()).Attr("fillcolor", c.fill).Attr("color", c.line).Attr("penwidth", "2").Attr("style", "filled")
}

// payload returns the payload of a collective, in bytes.
func payload(n *graph.Node) graph.Poly {
	var sum graph.Poly
	for _, v := range n.Args {
		_, bytes := graph.Payload(v.Type)
		sum = sum.Plus(bytes)
	}
	return sum
}

// edges draws an arrow for every value and box that uses it.
func (s *sheet) edges() {
	for _, b := range s.boxes {
		for _, n := range b.nodes {
			for _, v := range n.Args {
				if from, ok := s.in[v]; !s.quiet(v, n) && !(ok && from.ID() == b.ID()) {
					s.edge(v, b)
				}
			}
		}
	}
	for _, o := range s.g.Outputs {
		from, ok := s.in[o.Value]
		if !ok && s.kind == nil && o.Value.Def.Op.Name == "input" {
			from, ok = s.outside(o.Value, o.Value.Def), true
		}
		if ok {
			s.arrow(from, s.frameless(s.at, plain("output "+o.Name)), o.Value)
		}
	}
}

func (s *sheet) edge(v *graph.Value, to box) {
	from, ok := s.in[v]
	if !ok {
		from = s.outside(v, to.nodes[0])
	}
	if key := from.ID() + to.ID() + s.lineOf(v); !s.drawn[key] {
		s.drawn[key] = true
		s.arrow(from, to.Node, v)
	}
}

func (s *sheet) arrow(from, to dot.Node, v *graph.Value) {
	s.at.link(from, to)
	e := s.dot.Edge(from, to).Attr("color", s.lineOf(v))
	if v.Type.Layout.Kind == graph.Partial {
		e.Attr("penwidth", "2")
	}
}

// outside draws inputs of the frame: once, but those that all blocks of a kind share at each user.
func (s *sheet) outside(v *graph.Value, user *graph.Node) dot.Node {
	var l label
	name := v.Name
	if before := s.before[v]; before != "" {
		name = before + " of the layer before"
	}
	l.line(name, "", textSize, false)
	if !s.shared[v] {
		typ, layout := s.typeText(v.Type)
		for _, line := range append(folded(typ), layout) {
			if line != "" {
				l.line(line, s.lineOf(v), noteSize, false)
			}
		}
	}
	n := s.frameless(s.at, l.html())
	if v.Def.Op.Name == "input" && user.Block() == "" {
		c := s.colour("input")
		n.Attr("shape", "box").Attr("style", "rounded,filled").Attr("fillcolor", c.fill).Attr("color", c.line)
	}
	if !s.shared[v] {
		s.in[v] = n
	}
	return n
}

// exits draws arrows for the values that leave the block.
func (s *sheet) exits() {
	for _, b := range s.boxes {
		for _, n := range b.nodes {
			for _, v := range n.Results {
				for _, user := range s.users[v] {
					if user.Block() == n.Block() {
						continue
					}
					to := "to " + user.Name()
					if user.Block() != "" && s.kind.letter != "" {
						to = "to the next layer"
					}
					s.arrow(b.Node, s.frameless(s.at, plain(to)), v)
					break
				}
			}
		}
	}
}

package visualize

import (
	"fmt"
	"io"
	"strings"

	"github.com/emicklei/dot"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
)

// Schedule draws a rank's schedule: kernels and collectives in the order of their streams, with
// dashed arrows for waits between streams. Equal layers are drawn once. With detail [Blocks], the
// kernels between two events are a box.
func Schedule(w io.Writer, s *lowering.Schedule, o Options) error {
	return writeln(w, drawSchedule(s, o))
}

func drawSchedule(s *lowering.Schedule, o Options) string {
	d := &timeline{picture: newPicture(o.Dark), s: s, tasks: tasksOf(s), detail: o.Detail}
	switch {
	case o.Block != "":
		d.column(d.cluster(o.Block, plain(o.Block)), d.boxes(only(o.Block)), nil)
	case o.Unfolded:
		d.column(d.cluster("", plain("the model")), d.boxes(func(*task) string { return "task" }), nil)
	default:
		d.folded()
	}
	return d.text(fmt.Sprintf("%s, what rank %d of %d runs", s.Name, s.Rank, s.Ranks))
}

// timeline is the picture of a schedule.
type timeline struct {
	*picture
	s      *lowering.Schedule
	tasks  []*task
	detail Detail
}

// folded draws the model with its layers as strips, and each kind of layer once.
func (d *timeline) folded() {
	blocks, names := d.blocks()
	kinds, of := kindsOf(names, blocks)
	notes := map[int]*label{}
	if d.detail == Model {
		for i, k := range kinds {
			notes[i] = d.summary(k.blocks[0])
		}
	}
	boxes := d.boxes(func(t *task) string {
		if t.block != "" {
			return "layers"
		}
		return "task"
	})
	d.column(d.cluster("", plain("the model")), boxes, func(b []*task) dot.HTML {
		var run []string
		for _, t := range b {
			if len(run) == 0 || run[len(run)-1] != t.block {
				run = append(run, t.block)
			}
		}
		return strip(run, kinds, of, notes)
	})
	for _, k := range kinds {
		if d.detail != Model {
			c := d.cluster(k.blocks[0], k.title())
			attrs(c.Graph, "color", k.colour, "penwidth", "3")
			d.column(c, d.boxes(only(k.blocks[0])), nil)
		}
	}
	d.stack()
}

// only removes everything outside a block.
func only(block string) func(*task) string {
	return func(t *task) string {
		if t.block == block {
			return "task"
		}
		return ""
	}
}

// column draws boxes and the arrows that order them. strips has the labels of strips.
func (d *timeline) column(at *frame, boxes [][]*task, strip func([]*task) dot.HTML) {
	node := map[*task]dot.Node{}
	for _, b := range boxes {
		n := at.put(at.Node(d.next()))
		for _, t := range b {
			node[t] = n
		}
		if strip != nil && b[0].block != "" {
			n.Attr("label", strip(b)).Attr("style", "solid")
		} else {
			d.label(n, b)
		}
	}
	drawn := map[string]bool{}
	arrow := func(from, to *task) (e dot.Edge, ok bool) {
		a, inside := node[from]
		b := node[to]
		key := a.ID() + " " + b.ID()
		if !inside || a.ID() == b.ID() || drawn[key] {
			return e, false
		}
		drawn[key] = true
		at.link(a, b)
		return d.dot.Edge(a, b), true
	}
	for _, b := range boxes {
		for _, t := range b {
			if e, ok := arrow(t.before, t); ok {
				e.Attr("weight", "10")
			}
			for _, w := range t.waits {
				if e, ok := arrow(w, t); ok {
					e.Attr("style", "dashed").Attr("color", d.colour("event").line)
				}
			}
		}
	}
}

// label returns the label of a task, or of several as a summary.
func (d *timeline) label(n dot.Node, b []*task) {
	t := b[0]
	var l label
	c := d.colour("kernel")
	switch {
	case len(b) > 1:
		l.line(fmt.Sprint(len(b), " kernels"), "", textSize, true)
		for _, line := range wrapped(counted(opsOf(b)), 44) {
			l.line(line, "", noteSize, false)
		}
		l.line(local(t.block, t.Name)+" to "+local(t.block, b[len(b)-1].Name), grey, noteSize, false)
	case t.Kind == lowering.Collective:
		l.line(t.Op.Name, "", headSize, true)
		l.line(exchanged(t)+" bytes", "", textSize, true)
		l.line(local(t.block, t.Name), "", noteSize, false)
		c = d.colour("collective")
		n.Attr("penwidth", "2").Attr("style", "filled")
	default:
		l.line(t.Op.Name, "", textSize, Work(t.Op.Name) != "other")
		if name := local(t.block, t.Name); name != t.Op.Name {
			l.line(name, "", textSize, false)
		}
		for _, r := range t.Results[:1] {
			l.line("here "+d.s.Local(r.Type).String(), grey, noteSize, false)
		}
		if t.Kind == lowering.Relayout {
			c = d.colour("relayout")
		} else if w := Work(t.Op.Name); w != "other" {
			c = d.colour(w)
		}
	}
	n.Attr("label", l.html()).Attr("fillcolor", c.fill).Attr("color", c.line)
}

// local returns a name in its block.
func local(block, name string) string { return strings.TrimPrefix(name, block+".") }

func opsOf(tasks []*task) []string {
	var names []string
	for _, t := range tasks {
		if t.Kind != lowering.Collective {
			names = append(names, t.Op.Name)
		}
	}
	return names
}

// summary summarizes a rank's work for a block.
func (d *timeline) summary(block string) *label {
	var l label
	var all []*task
	for _, t := range d.tasks {
		if t.block == block {
			all = append(all, t)
		}
	}
	ops := opsOf(all)
	l.line(plural(len(ops), "kernel"), "", noteSize, true)
	for _, line := range wrapped(counted(ops), 60) {
		l.line(line, "", noteSize, false)
	}
	for _, t := range all {
		if t.Kind == lowering.Collective {
			l.line(fmt.Sprintf("%s %s: %s bytes", t.Op.Name, local(block, t.Name), exchanged(t)), d.colour("collective").line, noteSize, true)
		}
	}
	return &l
}

// exchanged returns the payload of a collective, in bytes.
func exchanged(t *task) string {
	_, bytes := graph.Payload(t.ArgTypes()...)
	return bytes.String()
}

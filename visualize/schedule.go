package visualize

import (
	"fmt"
	"strings"

	"github.com/emicklei/dot"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
)

// Schedule draws what a rank runs, a column per stream from top to bottom, with
// the events that order the streams as dashed arrows. A block other than "" draws
// the steps of that block only.
func Schedule(s *lowering.Schedule, block string) string {
	g := dot.NewGraph(dot.Directed)
	g.Attr("rankdir", "TB")
	g.Attr("labelloc", "t")
	g.Attr("newrank", "true") // one order from top to bottom for all columns
	g.Attr("fontname", "Helvetica")
	g.Attr("label", fmt.Sprintf("%s, rank %d of %d", s.Name, s.Rank, s.Ranks))
	d := &streams{
		dot:      g,
		columns:  map[lowering.Stream]*dot.Graph{},
		last:     map[lowering.Stream]dot.Node{},
		recorded: map[int]dot.Node{},
		waiting:  map[lowering.Stream][]int{},
	}
	for i, st := range s.Steps {
		d.step(i, st, block)
	}
	return g.String()
}

type streams struct {
	dot      *dot.Graph
	columns  map[lowering.Stream]*dot.Graph
	last     map[lowering.Stream]dot.Node
	recorded map[int]dot.Node          // by event: the step before the record
	waiting  map[lowering.Stream][]int // events that the stream's next step waits for
}

func (d *streams) step(i int, st lowering.Step, block string) {
	switch st.Kind {
	case lowering.Record:
		if n, ok := d.last[st.Stream]; ok {
			d.recorded[st.Event] = n
		}
		return
	case lowering.Wait:
		d.waiting[st.Stream] = append(d.waiting[st.Stream], st.Event)
		return
	}
	if block != "" && graph.BlockOf(st.Name) != block {
		return
	}
	c := d.columns[st.Stream]
	if c == nil {
		c = d.dot.Subgraph(st.Stream.String(), dot.ClusterOption{})
		c.Attr("style", "rounded")
		c.Attr("color", "#999999")
		c.Attr("fontname", "Helvetica")
		d.columns[st.Stream] = c
	}
	label := strings.TrimPrefix(st.Name, block+".") + "\n" + st.Op.Name
	colour := "#ffffff"
	if st.Kind == lowering.Exchange {
		colour = colours[graph.Collective]
		label += "\n" + exchanged(st) + " bytes"
	} else if h := heavy[st.Op.Name]; h != "" {
		colour = h
	}
	n := c.Node(fmt.Sprint("step", i)).Label(label).Attr("shape", "box").Attr("style", "rounded,filled").
		Attr("fillcolor", colour).Attr("fontname", "Helvetica").Attr("fontsize", "11")
	if p, ok := d.last[st.Stream]; ok {
		d.dot.Edge(p, n)
	}
	for _, e := range d.waiting[st.Stream] {
		if from, ok := d.recorded[e]; ok {
			d.dot.Edge(from, n).Attr("style", "dashed").Attr("color", "#c0392b").Attr("constraint", "true")
		}
	}
	d.waiting[st.Stream] = nil
	d.last[st.Stream] = n
}

// exchanged is the payload of a collective.
func exchanged(st lowering.Step) string {
	var bytes graph.Poly
	for _, r := range st.Args {
		bytes = bytes.Plus(r.Type.Bytes())
	}
	return bytes.String()
}

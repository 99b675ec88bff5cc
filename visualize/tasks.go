package visualize

import (
	"fmt"
	"strings"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
)

// task is a step other than a wait, with the tasks that its stream waits for just before.
type task struct {
	lowering.Step
	block  string
	before *task   // on its stream
	waits  []*task // of the other stream
	marked bool    // an event follows
}

// tasksOf attaches events to the steps around them.
func tasksOf(s *lowering.Schedule) []*task {
	last, recorded, waiting := map[lowering.Stream]*task{}, map[int]*task{}, map[lowering.Stream][]*task{}
	var out []*task
	for _, st := range s.Steps {
		switch st.Kind {
		case lowering.Record:
			if t := last[st.Stream]; t != nil {
				recorded[st.Event], t.marked = t, true
			}
		case lowering.Wait:
			if t := recorded[st.Event]; t != nil {
				waiting[st.Stream] = append(waiting[st.Stream], t)
			}
		default:
			t := &task{Step: st, block: graph.BlockOf(st.Name), before: last[st.Stream], waits: waiting[st.Stream]}
			waiting[st.Stream], last[st.Stream] = nil, t
			out = append(out, t)
		}
	}
	return out
}

// blocks returns the tasks of every block.
func (d *timeline) blocks() (map[string]*block, []string) {
	blocks, at := map[string]*block{}, map[*task]string{}
	var names []string
	for _, t := range d.tasks {
		if t.block == "" {
			continue
		}
		b := blocks[t.block]
		if b == nil {
			b = &block{}
			blocks[t.block] = b
			names = append(names, t.block)
		}
		at[t] = fmt.Sprint(len(b.ops))
		b.ops = append(b.ops, t.Op.Name)
		b.key += d.key(t, at)
	}
	return blocks, names
}

// key returns a key of a task's work that does not depend on its block.
func (d *timeline) key(t *task, at map[*task]string) string {
	var k strings.Builder
	fmt.Fprint(&k, t.Stream, t.Op.Name, t.Attrs)
	for _, r := range t.Args {
		name := ""
		if space := d.s.Buffers[r.Buffer].Space; graph.BlockOf(r.Name) == t.block || space <= lowering.Constant {
			name = unnumbered(r.Name)
		}
		fmt.Fprintf(&k, " %s %s", name, r.Type)
	}
	for _, r := range t.Results {
		fmt.Fprintf(&k, " = %t %s %s", graph.BlockOf(r.Name) == t.block, unnumbered(r.Name), r.Type)
	}
	for _, w := range t.waits {
		if w.block == t.block {
			fmt.Fprintf(&k, " after %s", at[w])
		}
	}
	return k.String() + "\n"
}

// boxes groups tasks into boxes: consecutive tasks of a layer, and others alone or, with less
// detail, up to the next event. Tasks with "" are left out. In the schedule's order no box depends
// on its own results through another.
func (d *timeline) boxes(of func(*task) string) [][]*task {
	var out [][]*task
	open := map[lowering.Stream]int{} // box of the stream that may grow, from 1
	layers := 0
	for _, t := range d.tasks {
		switch of(t) {
		case "layers":
			if layers == 0 {
				out = append(out, nil)
				layers = len(out)
			}
			out[layers-1] = append(out[layers-1], t)
			clear(open)
		case "task":
			layers = 0
			i := open[t.Stream]
			if i == 0 || t.waits != nil || d.detail == Ops || t.Stream == lowering.Comm || out[i-1][0].block != t.block {
				out = append(out, nil)
				i = len(out)
			}
			out[i-1] = append(out[i-1], t)
			if open[t.Stream] = i; t.marked {
				open[t.Stream] = 0
			}
		}
	}
	return out
}

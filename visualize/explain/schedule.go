package explain

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
)

// step is a step other than a wait. All ranks have the same steps.
type step struct {
	Name    string   `json:"n"`
	Op      string   `json:"o"`
	Stream  string   `json:"s"`
	Section int      `json:"l"`           // of [document.Sections]
	Type    string   `json:"t"`           // of the first result, on rank 0
	After   []int    `json:"a,omitempty"` // steps of the other stream that it waits for
	FLOPs   string   `json:"f,omitempty"`
	For     []string `json:"w,omitempty"` // outputs that need it; without them it is skipped
}

// run is a batch, with the times of each rank's steps.
type run struct {
	Name  string   `json:"name"`
	About string   `json:"about"`
	Clock string   `json:"clock"`
	Ranks []timing `json:"ranks"` // as predicted, and then as measured
	// MeasuredEnd is when the last measured rank ended, in seconds; 0: none was measured.
	MeasuredEnd float64 `json:"measured,omitempty"`
	MeasuredOn  string  `json:"measured_on,omitempty"`
	// End is when the last rank ended; Exposed is the first rank's time in collectives that its
	// kernels do not hide. Seconds.
	End     float64 `json:"end"`
	Exposed float64 `json:"exposed"`
	Comm    float64 `json:"comm"`   // the first rank's time in collectives
	Counts  []int64 `json:"counts"` // repetitions of each region of the arena
	Links   []Link  `json:"links,omitempty"`
	// Numbers of sequences, and of their tokens in KV caches.
	Sequences int64 `json:"sequences"`
	Cached    int64 `json:"cached"`
	sizes     graph.Sizes
}

// timing is the times of a rank's steps: parallel lists, in nanoseconds.
type timing struct {
	Same  int     `json:"same"` // an earlier rank with equal times; -1: none
	Steps []int   `json:"i,omitempty"`
	Start []int64 `json:"t,omitempty"`
	Took  []int64 `json:"d,omitempty"`
}

// firstOfStages are the schedules of a rank of each pipeline stage.
func firstOfStages(all []*lowering.Schedule) (list []*lowering.Schedule) {
	for _, s := range all {
		if s.Rank == 0 && s.Replica == 0 {
			list = append(list, s)
		}
	}
	return list
}

// steps adds the steps of a rank.
func (d *document) steps(s *lowering.Schedule) {
	section := map[string]int{}
	for i, name := range d.Sections {
		section[name] = i
	}
	last, recorded, waits := map[lowering.Stream]int{}, map[int]int{}, map[lowering.Stream][]int{}
	layers := false
	for _, st := range s.Steps {
		switch st.Kind {
		case lowering.Record:
			if i, ok := last[st.Stream]; ok {
				recorded[st.Event] = i
			}
			continue
		case lowering.Wait:
			if i, ok := recorded[st.Event]; ok {
				waits[st.Stream] = append(waits[st.Stream], i)
			}
			continue
		}
		out := step{Name: st.Name, Op: st.Op.Name, Stream: st.Stream.String(), Section: section[graph.BlockOf(st.Name)], After: waits[st.Stream]}
		if layers = layers || out.Section > 0; layers && out.Section == 0 {
			out.Section = len(d.Sections) - 1
		}
		if len(st.Results) > 0 {
			out.Type = s.Local(st.Results[0].Type).String()
		}
		if st.Kind == lowering.Launch {
			out.FLOPs = st.Cost.FLOPs.String()
		}
		for _, i := range st.For {
			out.For = append(out.For, s.Outputs[i].Name)
		}
		if _, ok := d.Ops[st.Op.Name]; !ok {
			d.Ops[st.Op.Name] = infoOf(st.Op)
		}
		last[st.Stream], waits[st.Stream] = len(d.Steps), nil
		d.Steps = append(d.Steps, out)
	}
}

// run groups the events of a run by rank.
func (d *document) run(schedules []*lowering.Schedule, in *Run) (*run, error) {
	r := &run{Name: clean(in.Name), About: clean(in.About), Clock: clean(in.Clock), Ranks: []timing{},
		Sequences: in.Sizes.Seqs, Cached: in.Sizes.Cached, sizes: in.Sizes}
	for _, l := range in.Links {
		l.Axes, l.Level = clean(l.Axes), clean(l.Level)
		r.Links = append(r.Links, l)
	}
	for space := lowering.PerToken; space <= lowering.Fixed; space++ {
		r.Counts = append(r.Counts, schedules[0].Count(space).At(in.Sizes))
	}
	if len(in.Events) == 0 {
		return r, nil
	}
	var err error
	if r.Ranks, r.End, err = d.timings(in.Name, in.Events, len(schedules)); err != nil {
		return nil, err
	}
	if len(in.Measured) > 0 {
		measured, end, err := d.timings(in.MeasuredOn, in.Measured, len(schedules))
		if err != nil {
			return nil, err
		}
		r.Ranks, r.MeasuredEnd, r.MeasuredOn = append(r.Ranks, measured...), end, clean(in.MeasuredOn)
	}
	r.exposed(in.Events)
	for i := range r.Ranks {
		r.Ranks[i].Same = slices.IndexFunc(r.Ranks[:i], func(t timing) bool { return t.Same < 0 && equalTimes(&t, &r.Ranks[i]) })
	}
	for i := range r.Ranks {
		if same := r.Ranks[i].Same; same >= 0 {
			r.Ranks[i] = timing{Same: same}
		}
	}
	return r, nil
}

// timings groups events by rank, on a clock that begins with the first, and returns when the last
// one ended, in seconds.
func (d *document) timings(name string, events []exec.Event, ranks int) (list []timing, end float64, err error) {
	index := map[string]int{}
	for i := range d.Steps {
		index[d.Steps[i].Name] = i
	}
	begin := math.Inf(1)
	for _, e := range events {
		begin = min(begin, e.Start)
	}
	list = make([]timing, ranks)
	for i, e := range events {
		if e.Kind == lowering.Wait {
			continue
		}
		at, known := index[e.Name]
		if !known || e.Rank < 0 || e.Rank >= ranks || !(e.End >= e.Start) {
			return nil, 0, fmt.Errorf("event %d of run %s belongs to no step of rank %d: %s from %g to %g", i, name, e.Rank, e.Name, e.Start, e.End)
		}
		t := &list[e.Rank]
		t.Steps = append(t.Steps, at)
		start := nanoseconds(e.Start - begin)
		t.Start = append(t.Start, start)
		t.Took = append(t.Took, nanoseconds(e.End-begin)-start)
		end = max(end, e.End-begin)
	}
	return list, end, nil
}

func nanoseconds(s float64) int64 { return int64(math.Round(s * 1e9)) }

func equalTimes(a, b *timing) bool {
	return slices.Equal(a.Steps, b.Steps) && slices.Equal(a.Start, b.Start) && slices.Equal(a.Took, b.Took)
}

// exposed sums the first rank's time in collectives, and the part that kernels do not hide.
func (r *run) exposed(events []exec.Event) {
	kernels := kernelsOf(events)
	for _, e := range events {
		if e.Rank == 0 && e.Kind == lowering.Collective {
			r.Comm += e.End - e.Start
			r.Exposed += e.End - e.Start - hidden(e, kernels)
		}
	}
}

// kernelsOf returns the first rank's events other than collectives.
func kernelsOf(events []exec.Event) (kernels []exec.Event) {
	for _, e := range events {
		if e.Rank == 0 && e.Kind != lowering.Wait && e.Kind != lowering.Collective {
			kernels = append(kernels, e)
		}
	}
	return kernels
}

// hidden returns how long kernels, which do not overlap each other, ran during an event.
func hidden(c exec.Event, kernels []exec.Event) float64 {
	var sum float64
	for _, k := range kernels {
		sum += max(0, min(c.End, k.End)-max(c.Start, k.Start))
	}
	return sum
}

// collective is a collective of a step.
type collective struct {
	Name     string   `json:"n"`
	Kind     string   `json:"k"`
	Section  int      `json:"l"`
	Values   []string `json:"v"`
	Elements string   `json:"e"`
	Payload  string   `json:"b"`
	Reason   string   `json:"r"`
	Bytes    []int64  `json:"p"`           // of the payload, by run
	Sent     []int64  `json:"s"`           // by a rank, in a ring
	Took     []int64  `json:"d,omitempty"` // nanoseconds of the slowest rank, by run; none without events
	Hidden   []int64  `json:"h,omitempty"` // of the first rank's time, hidden by kernels
}

// collectives returns the collectives of a step, with partition's reasons for them.
func (d *document) collectives(in *Input, plan *lowering.Plan) {
	notes := map[string]string{}
	for i := range in.Stages {
		for _, n := range in.Stages[i].Nodes {
			if n.Op.Class == graph.Collective && n.Note != "" {
				notes[n.Name()] = n.Note
			}
		}
	}
	at := map[string]int{}
	for i := range plan.Collectives {
		p := &plan.Collectives[i]
		c := collective{Name: p.Name, Kind: p.Kind, Elements: p.Elems.String(), Payload: p.Bytes.String(), Reason: clean(notes[strings.TrimSuffix(p.Name, "_q")])}
		if c.Reason == "" {
			c.Reason = clean(notes[p.Name])
		}
		for j := range d.Runs {
			c.Bytes = append(c.Bytes, p.Bytes.At(d.Runs[j].sizes))
			c.Sent = append(c.Sent, int64(p.SentPerRank(d.Runs[j].sizes)))
		}
		at[c.Name] = len(d.Collectives)
		d.Collectives = append(d.Collectives, c)
	}
	for _, st := range d.Steps {
		if i, ok := at[st.Name]; ok {
			d.Collectives[i].Section = st.Section
		}
	}
	for _, s := range firstOfStages(in.Schedules) {
		for _, st := range s.Steps {
			if i, ok := at[st.Name]; ok && st.Kind == lowering.Collective {
				for _, ref := range st.Args {
					d.Collectives[i].Values = append(d.Collectives[i].Values, ref.Name)
				}
			}
		}
	}
	if len(in.Runs) > 0 && !slices.ContainsFunc(in.Runs, func(r Run) bool { return len(r.Events) == 0 }) {
		d.times(in, at)
	}
}

// times adds the times of collectives.
func (d *document) times(in *Input, at map[string]int) {
	for i := range d.Collectives {
		d.Collectives[i].Took, d.Collectives[i].Hidden = make([]int64, len(in.Runs)), make([]int64, len(in.Runs))
	}
	for j := range in.Runs {
		kernels := kernelsOf(in.Runs[j].Events)
		took := map[[2]int]float64{} // by rank and collective, which may run in pieces
		for _, e := range in.Runs[j].Events {
			i, ok := at[e.Name]
			if !ok || e.Kind != lowering.Collective {
				continue
			}
			c, key := &d.Collectives[i], [2]int{e.Rank, i}
			took[key] += e.End - e.Start
			c.Took[j] = max(c.Took[j], nanoseconds(took[key]))
			if e.Rank == 0 {
				c.Hidden[j] += nanoseconds(hidden(e, kernels))
			}
		}
	}
}

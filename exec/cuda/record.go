package cuda

import (
	"math"
	"time"

	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/lowering"
)

// recording times a rank's steps on its GPU: an event of the driver before and
// after each, in its stream. While it is on, steps are issued launch by launch.
type recording struct {
	rank  *rank
	base  time.Duration  // when the GPU began the batch, by the host's clock; of its first rank
	made  []driver.Event // of all batches; those of one are its first
	used  int
	marks []mark
}

// mark is a step between two events.
type mark struct {
	step     *lowering.Step
	from, to driver.Event
}

// event records one more event in a stream.
func (r *recording) event(s driver.Stream) (driver.Event, error) {
	if r.used == len(r.made) {
		e, err := r.rank.gpu.ctx.Event(true)
		if err != nil {
			return nil, err
		}
		r.made = append(r.made, e)
	}
	r.used++
	return r.made[r.used-1], s.Record(r.made[r.used-1])
}

// begin and end mark where a step is in its stream.
func (r *recording) begin(st *lowering.Step) error {
	from, err := r.event(r.rank.stream(st.Stream))
	r.marks = append(r.marks, mark{step: st, from: from})
	return err
}

func (r *recording) end(st *lowering.Step) (err error) {
	r.marks[len(r.marks)-1].to, err = r.event(r.rank.stream(st.Stream))
	return err
}

// events returns all events that were created.
func (r *recording) events() []driver.Event {
	if r == nil {
		return nil
	}
	return r.made
}

// beginRecord begins a batch: the first event of the first rank is what others are
// measured from.
func (g *gpu) beginRecord() error {
	first := g.ranks[0].record
	if first == nil {
		return nil
	}
	for _, r := range g.ranks {
		r.record.marks, r.record.used = r.record.marks[:0], 0
	}
	first.base = time.Since(first.rank.machine.opened)
	_, err := first.event(first.rank.compute)
	return first.rank.where(err)
}

// put issues an action, and marks the step that it begins or ends.
func (p *program) put(i int) error {
	a, r := &p.actions[i], p.rank
	if r.record == nil || a.kind != lowering.Launch {
		return r.put(a)
	}
	if i == 0 || p.actions[i-1].step != a.step {
		if err := r.record.begin(a.step); err != nil {
			return err
		}
	}
	if err := r.put(a); err != nil {
		return err
	}
	if i+1 < len(p.actions) && p.actions[i+1].step == a.step {
		return nil
	}
	return r.record.end(a.step)
}

// marked marks a collective on all ranks; next is the action after it.
func (s *step) marked(next []int, mark func(*recording, *lowering.Step) error) error {
	for i, p := range s.programs {
		if p.rank.record == nil {
			return nil
		}
		if err := mark(p.rank.record, p.actions[next[i]-1].step); err != nil {
			return p.rank.where(err)
		}
	}
	return nil
}

// tell passes the events of all ranks to the recorder.
func (m *machine) tell(w *exec.Work) error {
	if m.record == nil {
		return nil
	}
	m.events = m.events[:0]
	for _, r := range m.ranks {
		from := len(m.events)
		err := r.gpu.do(func() error { return r.record.read(w) })
		if err != nil {
			return r.where(err)
		}
		if r.gpu != m.gpus[0] {
			alike(m.events[:from], m.events[from:])
		}
	}
	m.record(m.events)
	return nil
}

// alike shifts the events of a rank on another GPU, which begins a batch at another time,
// so that its first collective ends when that of the first rank does, as far as no rank
// leaves a collective before both have come.
func alike(first, other []exec.Event) {
	least, most, by := math.Inf(-1), math.Inf(1), math.NaN()
	met := map[string]exec.Event{}
	for _, e := range first {
		if e.Rank == first[0].Rank && e.Kind == lowering.Collective {
			met[e.Name] = e
		}
	}
	for _, e := range other {
		if c, ok := met[e.Name]; ok {
			least, most = max(least, c.Start-e.End), min(most, c.End-e.Start)
			if math.IsNaN(by) {
				by = c.End - e.End
			}
		}
	}
	if by = max(least, min(most, by)); math.IsNaN(by) {
		return // no collective is in both
	}
	for k := range other {
		other[k].Start += by
		other[k].End += by
	}
}

// read asks the driver for the times of all marks.
func (r *recording) read(w *exec.Work) error {
	m, base := r.rank.machine, r.rank.gpu.ranks[0].record.made[0]
	at := func(e driver.Event) (float64, error) {
		d, err := e.Elapsed(base)
		return (m.ranks[0].record.base + d).Seconds(), err
	}
	for _, x := range r.marks {
		from, err := at(x.from)
		if err != nil {
			return err
		}
		to, err := at(x.to)
		if err != nil {
			return err
		}
		m.events = append(m.events, exec.Event{Rank: r.rank.s.Rank, Stream: x.step.Stream, Kind: x.step.Kind, Name: x.step.Name, Op: x.step.Op.Name,
			Start: from, End: to, Bytes: exec.BytesOf(x.step, r.rank.s.Ranks, w.Sizes)})
	}
	return nil
}

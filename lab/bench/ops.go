package bench

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/cost"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/quantile"
	"github.com/krait-ml/krait/lowering"
)

// OpRun is the time of a model's operations in its steps, launched one after the other.
type OpRun struct {
	Model    string    `json:"model"`
	Device   string    `json:"device"`
	Math     string    `json:"math,omitempty"`
	Ranks    int       `json:"ranks"`
	Batch    int       `json:"batch"`
	Prompt   int       `json:"prompt"`
	Hardware string    `json:"hardware,omitempty"` // to model collectives for
	Phases   []OpPhase `json:"phases"`
}

// OpPhase is a decode or prefill step.
type OpPhase struct {
	Phase string   `json:"phase"` // as in [MeterPhase]
	Ops   []OpTime `json:"operations"`
}

// OpTime is the total of an operation in a step, on the slowest rank. Collectives count from when
// the last rank arrives.
type OpTime struct {
	Op       string  `json:"op"`
	Count    int     `json:"count"` // on a rank
	Time     float64 `json:"us"`
	Bytes    int64   `json:"bytes"`                 // payload of collectives, else operands and results once
	Modelled float64 `json:"modelled_us,omitempty"` // collectives only, by the links of a profile
}

// OpRecorder records the events of ranks; its Record is for [krait.Options].
type OpRecorder struct{ events []exec.Event }

// Record records a step's events.
func (r *OpRecorder) Record(step []exec.Event) { r.events = append(r.events, step...) }

// take returns the recorded events, and clears them.
func (r *OpRecorder) take() []exec.Event {
	list := r.events
	r.events = nil
	return list
}

// MeasureOps measures the operations of a model that was opened with the recorder: medians over
// repeated prefills and over all decode steps. Collectives are modelled for p, which may be nil.
func MeasureOps(ctx context.Context, m *krait.Model, rec *OpRecorder, p *cost.Profile, o Options) (*OpRun, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	r, err := newRun(m, o)
	if err != nil {
		return nil, err
	}
	defer r.close()
	prompts, steps := opTimes{}, opTimes{}
	for i := range o.Repeat + 1 {
		rec.take()
		if _, err := r.read(ctx, r.prompt); err != nil {
			return nil, err
		}
		if i > 0 { // the first run compiles
			prompts.add(rec.take())
		}
		for range o.Tokens {
			rec.take()
			r.advance()
			if err := r.step(ctx, true); err != nil {
				return nil, err
			}
			if i > 0 {
				steps.add(rec.take())
			}
		}
		r.advance()
	}
	out := &OpRun{Model: m.Name, Ranks: m.Ranks(), Batch: o.Batch, Prompt: o.Prompt}
	decode := phase{fmt.Sprintf("decode %d", o.Batch), o.Batch, 1, o.Prompt}
	prompt := phase{fmt.Sprintf("prompt %dx%d", o.Batch, o.Prompt), o.Batch, o.Prompt, 0}
	out.Phases = []OpPhase{steps.phase(&decode), prompts.phase(&prompt)}
	if p != nil && o.GPUs >= m.Ranks() && m.Ranks() > 1 {
		out.Hardware = p.Name
		schedule := r.e.Schedules()[0]
		out.Phases[0].model(schedule, m.Ranks(), &p.Link, decode.sizes())
		if o.chunk() >= o.Prompt {
			out.Phases[1].model(schedule, m.Ranks(), &p.Link, prompt.sizes())
		}
	}
	return out, nil
}

// opTimes has the samples of each operation, by name.
type opTimes map[string]*opSamples

type opSamples struct {
	OpTime
	list []time.Duration
}

// add adds a sample: a decode step, or all chunks of a prefill.
func (t opTimes) add(events []exec.Event) {
	for op, x := range sumOps(events) {
		if t[op] == nil {
			t[op] = &opSamples{}
		}
		s := t[op]
		s.OpTime, s.list = x, append(s.list, time.Duration(1e3*x.Time))
	}
}

func (t opTimes) phase(p *phase) OpPhase {
	out := OpPhase{Phase: p.name}
	for _, s := range t {
		s.Time = 1e3 * ms(quantile.Median(s.list))
	}
	for _, s := range slices.SortedFunc(maps.Values(t), func(a, b *opSamples) int { return cmp.Or(cmp.Compare(b.Time, a.Time), cmp.Compare(a.Op, b.Op)) }) {
		out.Ops = append(out.Ops, s.OpTime)
	}
	return out
}

// sumOps sums events by operation: launches of the slowest rank, and collectives from the arrival
// of the last rank.
func sumOps(events []exec.Event) map[string]OpTime {
	type rankOp struct {
		rank int
		op   string
	}
	type meeting struct {
		name string
		turn int
	}
	type rankName struct {
		rank int
		name string
	}
	byRank, turns, met := map[rankOp]OpTime{}, map[rankName]int{}, map[meeting]exec.Event{}
	for _, e := range events {
		if e.Op == "" || e.Kind == lowering.Wait {
			continue
		}
		if e.Kind == lowering.Collective {
			turn := turns[rankName{e.Rank, e.Name}]
			turns[rankName{e.Rank, e.Name}]++
			at := meeting{e.Name, turn}
			if x, ok := met[at]; !ok || e.End-e.Start < x.End-x.Start {
				met[at] = e
			}
			continue
		}
		x := byRank[rankOp{e.Rank, e.Op}]
		byRank[rankOp{e.Rank, e.Op}] = x.plus(&e)
	}
	out := map[string]OpTime{}
	for of, x := range byRank {
		if x.Time >= out[of.op].Time {
			out[of.op] = x
		}
	}
	for at := range maps.Keys(met) {
		e := met[at]
		out[e.Op] = out[e.Op].plus(&e)
	}
	return out
}

func (t OpTime) plus(e *exec.Event) OpTime {
	return OpTime{Op: e.Op, Count: t.Count + 1, Time: t.Time + 1e6*(e.End-e.Start), Bytes: t.Bytes + e.Bytes}
}

// model adds the modelled times of collectives, by the fastest algorithm of a link.
func (p *OpPhase) model(s *lowering.Schedule, ranks int, l *cost.Link, z graph.Sizes) {
	took := map[string]float64{}
	for i := range s.Steps {
		st := &s.Steps[i]
		if st.Kind != lowering.Collective {
			continue
		}
		_, bytes := graph.Payload(st.ArgTypes()...)
		var sent graph.Poly
		for _, t := range st.ArgTypes() {
			sent = sent.Plus(graph.Sent(st.Op, t, ranks))
		}
		travel := l.Best(cost.ExchangeOf(st.Op, ranks, bytes.Float(z), sent.Float(z)))
		took[st.Op.Name] += 1e6 * travel.Seconds()
	}
	for i := range p.Ops {
		p.Ops[i].Modelled = took[p.Ops[i].Op]
	}
}

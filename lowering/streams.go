package lowering

import (
	"github.com/krait-ml/krait/graph"
)

// streams places steps on their streams, with events where one stream needs
// what the other has done.
//
// A collective runs on the comm stream, but for those in loops, after all that was launched
// on compute before it. Compute waits for it when a launch reads its result; what is in
// between runs at the same time. Collectives are numbered from 1.
type streams struct {
	launched int         // steps on compute so far
	known    int         // of them, those that comm has waited for
	issued   int         // collectives so far
	waited   int         // the last that compute has waited for
	written  map[int]int // by buffer: the last collective that writes it
}

// compute appends a step to the compute stream, after the collectives whose results it reads.
func (l *lowerer) compute(st Step) {
	if l.s.Buffers[st.Results[0].Buffer].Space == Constant {
		l.s.Init = append(l.s.Init, st)
		return
	}
	l.await(st.Args)
	l.s.Steps = append(l.s.Steps, st)
	l.launched++
}

// await makes compute wait for the collectives that write what it reads.
func (l *lowerer) await(args []Ref) {
	need := 0
	for _, r := range args {
		need = max(need, l.written[r.Buffer])
	}
	l.wait(need)
}

// wait makes compute wait for a collective, unless it has.
func (l *lowerer) wait(collective int) {
	if collective <= l.waited {
		return
	}
	l.s.Steps = append(l.s.Steps, Step{Kind: Wait, Stream: Compute, Event: collective})
	l.waited = collective
}

func (l *lowerer) collective(n *graph.Node) error {
	if l.loop[l.at] > 0 {
		return l.looped(n)
	}
	st, err := l.exchange(n, Comm)
	if err == nil {
		l.exchanged(st)
	}
	return err
}

// exchanged appends a collective to the comm stream, after all that was launched before it.
func (l *lowerer) exchanged(st Step) {
	if l.known < l.launched {
		l.s.Steps = append(l.s.Steps, Step{Kind: Record, Stream: Compute}, Step{Kind: Wait, Stream: Comm})
		l.known = l.launched
	}
	l.issued++
	if l.written == nil {
		l.written = map[int]int{}
	}
	for _, r := range st.Args {
		l.busy[r.Buffer] = l.issued
	}
	for _, r := range st.Results {
		l.busy[r.Buffer], l.written[r.Buffer] = l.issued, l.issued
	}
	l.s.Steps = append(l.s.Steps, st)
}

// looped appends a collective of a loop. It is on the compute stream, among the launches
// that need it.
func (l *lowerer) looped(n *graph.Node) error {
	st, err := l.exchange(n, Compute)
	if err == nil {
		l.compute(st)
	}
	return err
}

// exchange is the step of a collective, whose results have memory.
func (l *lowerer) exchange(n *graph.Node, on Stream) (Step, error) {
	st := Step{Kind: Collective, Stream: on, Name: n.Name(), Op: n.Op, Attrs: n.Attrs, Args: l.refs(n.Args), Loop: l.loop[l.at]}
	for k, v := range n.Results {
		if err := l.collected(n, k, v); err != nil {
			return Step{}, err
		}
	}
	st.Results = l.refs(n.Results)
	return st, nil
}

// collected finds memory for result k of a collective: that of the operand when
// a sum has the same shape and no later step needs the operand.
func (l *lowerer) collected(n *graph.Node, k int, v *graph.Value) error {
	if !sumsWhole(n.Op) {
		return l.result(v, false)
	}
	r := l.ref[n.Args[k].ID]
	b := &l.s.Buffers[r.Buffer]
	free := b.Space >= PerToken && l.s.fills(r.Type, b) && l.end[r.Buffer] <= l.at && l.together(v, &r)
	for j, a := range n.Args {
		free = free && (j == k || l.ref[a.ID].Buffer != r.Buffer)
	}
	if !free {
		return l.result(v, false)
	}
	l.alias(v, r)
	return nil
}

// join lets compute wait for everything, so that its end is the end of the
// batch, and then puts in the records of collectives that are waited for, and
// numbers the events. Until then a wait on compute has the collective's number.
func (l *lowerer) join() {
	l.wait(l.issued)
	event := map[int]int{}
	for _, st := range l.s.Steps {
		if st.Kind == Wait && st.Stream == Compute {
			event[st.Event] = -1
		}
	}
	var steps []Step
	events, collectives := 0, 0
	for _, st := range l.s.Steps {
		switch {
		case st.Kind == Record:
			st.Event = events
			events++
		case st.Kind == Wait && st.Stream == Comm: // for the record before it
			st.Event = events - 1
		case st.Kind == Wait:
			st.Event = event[st.Event]
		}
		steps = append(steps, st)
		if st.Kind != Collective || st.Stream != Comm {
			continue
		}
		collectives++
		if _, waited := event[collectives]; waited {
			event[collectives] = events
			steps = append(steps, Step{Kind: Record, Stream: Comm, Event: events})
			events++
		}
	}
	l.s.Steps = steps
}

package cuda

import (
	"context"
	"fmt"

	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/lowering"
)

// step is the programs of the ranks of one GPU.
type step struct{ programs []*program }

// captureAfter is how often a program is issued launch by launch before it is
// captured: one-time work of kernels and libraries must not be in the graph.
const captureAfter = 1

// due reports whether the step is to be captured now; a graph does not
// tell when its nodes ran.
func (s *step) due() bool {
	first := s.programs[0]
	return first.rank.record == nil && first.graph == nil && first.used >= captureAfter && first.decodes()
}

// launch replays the captured graph of the step, or issues it launch by launch.
func (s *step) launch(ctx context.Context) error {
	first := s.programs[0]
	first.used++
	if first.graph == nil {
		return s.issue(ctx)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("stopped before the step: %w", err)
	}
	return first.rank.where(first.graph.Launch(first.rank.compute))
}

// capture makes a graph of the step, if it is due: all streams fork from rank 0's.
func (s *step) capture(ctx context.Context) error {
	if !s.due() {
		return nil
	}
	origin := s.programs[0].rank
	if err := origin.compute.BeginCapture(); err != nil {
		return origin.where(err)
	}
	err := s.fork()
	if err == nil {
		err = s.issue(ctx)
	}
	if err == nil {
		err = s.join()
	}
	g, e := origin.compute.EndCapture() // also after an error: the stream stays in capture otherwise
	if err == nil {
		err = origin.where(e)
	}
	if err == nil {
		s.programs[0].graph = g
	} else if e == nil {
		_ = g.Close() // err is returned
	}
	return err
}

// fork lets the other ranks' streams into the capture.
func (s *step) fork() error {
	origin := s.programs[0].rank
	if len(s.programs) == 1 {
		return nil
	}
	if err := origin.compute.Record(origin.ready); err != nil {
		return origin.where(err)
	}
	for _, p := range s.programs[1:] {
		if err := p.rank.compute.Wait(origin.ready); err != nil {
			return p.rank.where(err)
		}
	}
	return nil
}

// join brings the other ranks' streams back; their comm streams are joined to
// them by the schedule.
func (s *step) join() error {
	origin := s.programs[0].rank
	for _, p := range s.programs[1:] {
		if err := p.rank.compute.Record(p.rank.ready); err != nil {
			return p.rank.where(err)
		}
		if err := origin.compute.Wait(p.rank.ready); err != nil {
			return origin.where(err)
		}
	}
	return nil
}

// issue puts the work of all ranks into their streams, up to the next collective for one rank after
// another: a collective waits for work that must have been put in before.
func (s *step) issue(ctx context.Context) error {
	if err := s.programs[0].rank.gpu.beginRecord(); err != nil {
		return err
	}
	for _, p := range s.programs {
		if err := p.copyIn(); err != nil {
			return p.rank.where(err)
		}
	}
	next := make([]int, len(s.programs))
	for {
		ended := 0
		for i, p := range s.programs {
			n, err := p.issue(ctx, next[i])
			if err != nil {
				return p.rank.where(err)
			}
			if next[i] = n; n == len(p.actions) {
				ended++
			}
		}
		if ended == len(s.programs) {
			break
		}
		if ended > 0 {
			panic("BUG: ranks do not have the same collectives")
		}
		if err := s.collective(next); err != nil {
			return err
		}
	}
	for _, p := range s.programs {
		if err := p.copyOut(); err != nil {
			return p.rank.where(err)
		}
	}
	return nil
}

// collective issues the collective that all ranks have reached.
func (s *step) collective(next []int) error {
	list := make([]*collective, len(s.programs))
	name := ""
	for i, p := range s.programs {
		a := &p.actions[next[i]]
		list[i], name = a.with, a.name
		next[i]++
	}
	err := s.marked(next, (*recording).begin)
	switch {
	case err != nil:
	case s.programs[0].rank.machine.nccl:
		err = list[0].viaNCCL()
	default:
		err = onOneGPU(list)
	}
	if err == nil {
		err = s.marked(next, (*recording).end)
	}
	if err != nil {
		return fmt.Errorf("%s (%s): %w", name, list[0].op.Name, err)
	}
	return nil
}

// issue puts in actions beginning with from, up to a collective or the end, and returns the next
// one.
func (p *program) issue(ctx context.Context, from int) (int, error) {
	for i := from; i < len(p.actions); i++ {
		a := &p.actions[i]
		if a.kind == lowering.Collective {
			return i, nil
		}
		if err := ctx.Err(); err != nil {
			return i, fmt.Errorf("stopped before %s: %w", a.name, err)
		}
		if err := p.put(i); err != nil {
			return i, fmt.Errorf("%s: %w", a.what(), err)
		}
	}
	return len(p.actions), nil
}

// put puts one action into its stream.
func (r *rank) put(a *action) error {
	s := r.stream(a.stream)
	switch {
	case a.kind == lowering.Record:
		return s.Record(r.events[a.event])
	case a.kind == lowering.Wait:
		return s.Wait(r.events[a.event])
	case a.gemm != nil:
		return r.gemm.Gemm(a.gemm) // in the compute stream
	case a.host != nil:
		return s.(driver.HostStream).Host(a.host)
	}
	if r.record != nil && a.config.Dependent { // events are between
		config := a.config
		config.Dependent = false
		return s.Launch(a.fn, &config)
	}
	return s.Launch(a.fn, &a.config)
}

func (r *rank) stream(s lowering.Stream) driver.Stream {
	if s == lowering.Comm {
		return r.comm
	}
	return r.compute
}

// what names an action for errors.
func (a *action) what() string {
	switch {
	case a.kind == lowering.Record || a.kind == lowering.Wait:
		return fmt.Sprintf("event %d", a.event)
	case a.gemm != nil:
		return a.name + " (matmul by cuBLAS)"
	case a.host != nil:
		return a.host.Name
	}
	return fmt.Sprintf("%s (kernel %s)", a.name, a.fn.Name())
}

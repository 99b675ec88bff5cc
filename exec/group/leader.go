package group

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/comm"
	"github.com/krait-ml/krait/exec/state"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/lowering"
)

// leader is the machine of rank 0's engine. It lets the other ranks do what its own machine does.
type leader struct {
	exec.Machine // of rank 0
	group        *comm.Group
	encoders     []*encoder           // by rank
	givers       []*lowering.Schedule // by replica: of the rank that has the outputs
}

func newLeader(own exec.Machine, g *comm.Group, schedules []*lowering.Schedule) *leader {
	l := &leader{Machine: own, group: g, givers: givers(schedules)}
	for range g.Ranks() {
		l.encoders = append(l.encoders, &encoder{outputs: elsewhere(l.givers)})
	}
	return l
}

// givers are the schedules of the ranks that have the outputs, by replica.
func givers(schedules []*lowering.Schedule) (list []*lowering.Schedule) {
	for _, s := range schedules {
		if s.Last() && s.Rank == 0 {
			list = append(list, s)
		}
	}
	return list
}

// elsewhere reports whether another rank than the first has outputs.
func elsewhere(givers []*lowering.Schedule) bool {
	return len(givers) > 1 || len(givers) > 0 && givers[0].World() > 0
}

func (l *leader) send(rank int, c *command, data []byte) {
	l.group.Send(rank, l.encoders[rank].encode(c, data))
}

// all runs a command on all ranks, and returns the error of rank 0, or else of another.
func (l *leader) all(c *command, own func() error) error {
	for r := 1; r < l.group.Ranks(); r++ {
		l.send(r, c, nil)
	}
	return l.wait(own)
}

// wait runs a call on rank 0 and waits for the others, which run it too.
func (l *leader) wait(own func() error) error {
	err := own()
	for r := 1; r < l.group.Ranks(); r++ {
		_, e := l.reply(r)
		err = cmp.Or(err, e)
	}
	return cmp.Or(l.group.Processes().Err(), err)
}

// reply waits for a rank's reply, and returns the bytes that it read.
func (l *leader) reply(rank int) ([]byte, error) {
	text, err := l.group.Receive(rank, true)
	if err != nil {
		return nil, err
	}
	return replied(rank, text)
}

// replied reads a rank's reply.
func replied(rank int, text []byte) ([]byte, error) {
	switch {
	case len(text) == 0:
		return nil, fmt.Errorf("rank %d: %w", rank, errMessage)
	case text[0] != succeeded:
		return nil, errors.New(string(text[1:]))
	}
	return text[1:], nil
}

// read runs a command on another rank that reads len(to) bytes.
func (l *leader) read(rank int, c *command, to []byte) error {
	c.Bytes = len(to)
	l.send(rank, c, nil)
	data, err := l.reply(rank)
	if err == nil && copy(to, data) != len(to) {
		err = fmt.Errorf("rank %d: %w", rank, errMessage)
	}
	return err
}

// write runs a command on another rank that writes bytes.
func (l *leader) write(rank int, c *command, from []byte) error {
	l.send(rank, c, from)
	_, err := l.reply(rank)
	return err
}

// Step runs a batch on all ranks. The outputs are those of the rank that has them.
func (l *leader) Step(ctx context.Context, w *exec.Work) (out []kernels.Tensor, err error) {
	if elsewhere(l.givers) {
		list, err := exec.StepAll(ctx, l, []*exec.Work{w})
		if err != nil {
			return nil, err
		}
		return list[0], nil
	}
	if err := ctx.Err(); err != nil { // before the others begin
		return nil, fmt.Errorf("stopped before the step: %w", err)
	}
	l.announce(w)
	err = l.wait(func() (e error) {
		out, e = l.Machine.Step(ctx, w)
		return e
	})
	return out, err
}

// announce sends a batch to the others.
func (l *leader) announce(w *exec.Work) {
	message := l.encoders[0].encodeStep(w)
	for r := 1; r < l.group.Ranks(); r++ {
		l.group.Send(r, message)
	}
}

// StepEach runs batches on all ranks.
func (l *leader) StepEach(ctx context.Context, next func(exec.Await) []*exec.Work) error {
	if err := ctx.Err(); err != nil { // before the others begin
		return fmt.Errorf("stopped before the step: %w", err)
	}
	s := &several{leader: l, ended: make([]error, l.group.Ranks())}
	err := l.Machine.(exec.Pipeline).StepEach(ctx, func(await exec.Await) []*exec.Work {
		list := next(func(n int) ([]kernels.Tensor, error) { return s.await(n, await) })
		for _, w := range list {
			l.announce(w)
		}
		s.list = append(s.list, list...)
		return list
	})
	if len(s.list) == 0 {
		return err
	}
	for r := 1; r < l.group.Ranks(); r++ {
		l.group.Send(r, lastStep)
	}
	for r := 1; r < l.group.Ranks(); r++ {
		err = cmp.Or(err, s.end(r))
	}
	return cmp.Or(l.group.Processes().Err(), err)
}

// several is the batches of a StepEach, and what other ranks replied.
type several struct {
	*leader
	list    []*exec.Work
	outputs [][]kernels.Tensor // of the first ones
	ended   []error            // by rank: why it runs no more
}

// await is an [exec.Await]: outputs of other ranks come in the order of the batches.
func (s *several) await(n int, own exec.Await) ([]kernels.Tensor, error) {
	for i := len(s.outputs); i <= n; i++ {
		w := s.list[i]
		out, err := own(i)
		if giver := s.givers[w.Replica]; err == nil && giver.World() > 0 {
			out, err = s.receive(giver, w)
		}
		if err != nil {
			return nil, err
		}
		s.outputs = append(s.outputs, out)
	}
	return s.outputs[n], nil
}

// receive waits for the outputs of a batch.
func (s *several) receive(from *lowering.Schedule, w *exec.Work) (out []kernels.Tensor, err error) {
	rank := from.World()
	text, err := s.group.Receive(rank, true)
	switch {
	case err != nil:
		return nil, err
	case len(text) == 0 || text[0] != gave:
		_, s.ended[rank] = replied(rank, text)
		return nil, cmp.Or(s.ended[rank], errMessage)
	}
	if out, text, err = decodeOutputs(from, w, text[1:]); err == nil && len(text) > 0 {
		err = errMessage
	}
	if err != nil {
		return nil, fmt.Errorf("rank %d: %w", rank, err)
	}
	return out, nil
}

// end waits until a rank runs no more.
func (s *several) end(rank int) error {
	for s.ended[rank] == nil {
		text, err := s.group.Receive(rank, true)
		if err == nil && len(text) > 0 && text[0] == gave {
			continue // they are not needed
		}
		if err == nil {
			_, err = replied(rank, text)
		}
		return err
	}
	return s.ended[rank]
}

// Replay runs on all ranks.
func (l *leader) Replay(ctx context.Context, list []state.Replay) error {
	if err := ctx.Err(); err != nil { // before the others begin
		return fmt.Errorf("stopped before the replay: %w", err)
	}
	return l.all(&command{Call: callReplay, Replays: list}, func() error { return l.Machine.Replay(ctx, list) })
}

func (l *leader) GrowSlots(n int) error {
	return l.all(&command{Call: callGrowSlots, Index: n}, func() error { return l.Machine.GrowSlots(n) })
}

func (l *leader) ClearSlot(slot int) error {
	return l.all(&command{Call: callClearSlot, Index: slot}, func() error { return l.Machine.ClearSlot(slot) })
}

func (l *leader) CopySlot(from, to int) error {
	return l.all(&command{Call: callCopySlot, Index: from, To: to}, func() error { return l.Machine.CopySlot(from, to) })
}

func (l *leader) GrowPages(n int) error {
	return l.all(&command{Call: callGrowPages, Index: n}, func() error { return l.Machine.GrowPages(n) })
}

func (l *leader) CopyRows(from state.PageRows, page int32) error {
	return l.all(&command{Call: callCopyRows, Rows: []state.PageRows{from}, To: int(page)}, func() error { return l.Machine.CopyRows(from, page) })
}

func (l *leader) ReadSlot(rank, slot int, at int64, to []byte) error {
	if rank == 0 {
		return l.Machine.ReadSlot(rank, slot, at, to)
	}
	return l.read(rank, &command{Call: callReadSlot, Index: slot, At: at}, to)
}

func (l *leader) WriteSlot(rank, slot int, at int64, from []byte) error {
	if rank == 0 {
		return l.Machine.WriteSlot(rank, slot, at, from)
	}
	return l.write(rank, &command{Call: callWriteSlot, Index: slot, At: at}, from)
}

func (l *leader) ReadRows(rank, buffer int, rows []state.PageRows, to []byte) error {
	if rank == 0 {
		return l.Machine.ReadRows(rank, buffer, rows, to)
	}
	return l.read(rank, &command{Call: callReadRows, Index: buffer, Rows: rows}, to)
}

func (l *leader) WriteRows(rank, buffer int, rows []state.PageRows, from []byte) error {
	if rank == 0 {
		return l.Machine.WriteRows(rank, buffer, rows, from)
	}
	return l.write(rank, &command{Call: callWriteRows, Index: buffer, Rows: rows}, from)
}

func (l *leader) ReadPage(rank int, page int32, at int64, to []byte) error {
	if rank == 0 {
		return l.Machine.ReadPage(rank, page, at, to)
	}
	return l.read(rank, &command{Call: callReadPage, Index: int(page), At: at}, to)
}

func (l *leader) WritePage(rank int, page int32, at int64, from []byte) error {
	if rank == 0 {
		return l.Machine.WritePage(rank, page, at, from)
	}
	return l.write(rank, &command{Call: callWritePage, Index: int(page), At: at}, from)
}

// Close closes the machines of all ranks, unless the group has failed: then each closes its own.
func (l *leader) Close() {
	for r := 1; r < l.group.Ranks() && l.group.Processes().Err() == nil; r++ {
		l.send(r, &command{Call: callClose}, nil)
	}
	l.Machine.Close()
}

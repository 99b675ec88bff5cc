package group

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/comm"
	"github.com/krait-ml/krait/internal/files"
	"github.com/krait-ml/krait/lowering"
)

// grace is how long a process whose context ended waits for rank 0 to end first: a signal may have
// reached all processes.
const grace = time.Second

// follower is the machine of a rank that runs the commands of rank 0.
type follower struct {
	exec.Machine // of this rank
	group        *comm.Group
	checkFiles   func() error
	inputs       []exec.Input
	schedule     *lowering.Schedule // whose rank has outputs of its replica
	elsewhere    bool               // another rank than the first has outputs
	works        []*exec.Work       // of a step, reused
	following    atomic.Bool        // Follow was called
	done         chan struct{}      // closed when Follow has returned
}

func newFollower(own exec.Machine, g *comm.Group, schedules []*lowering.Schedule, checkFiles func() error) (*follower, error) {
	inputs, err := exec.Inputs(schedules)
	return &follower{Machine: own, group: g, checkFiles: checkFiles, inputs: inputs, schedule: lowering.Giver(schedules),
		elsewhere: elsewhere(givers(schedules)), done: make(chan struct{})}, err
}

// Rank is the rank of this process.
func (f *follower) Rank() int { return f.group.Rank() }

// Follow runs commands until rank 0 closes its engine, or returns the error for which all processes
// end. If the context ends, and rank 0 does not end soon, that is an error for all.
func (f *follower) Follow(ctx context.Context) error {
	if f.following.Swap(true) {
		return fmt.Errorf("rank %d follows already, or has followed", f.Rank())
	}
	defer context.AfterFunc(ctx, func() {
		select {
		case <-time.After(grace):
			f.group.Processes().Fail(context.Cause(ctx))
		case <-f.done:
		case <-f.group.Processes().Failed():
		}
	})()
	defer close(f.done)
	return f.serve()
}

// Close ends all processes if rank 0 has not closed its engine, and closes the machine.
func (f *follower) Close() {
	select {
	case <-f.done:
	default:
		f.group.Processes().Fail(exec.ErrClosed)
		if f.following.Load() {
			<-f.done
		}
	}
	f.Machine.Close()
}

// serve runs commands.
func (f *follower) serve() error {
	var reply []byte
	var c command
	for {
		message, err := f.group.Receive(0, false)
		if err != nil {
			return err
		}
		var data []byte
		step := len(message) > 0 && message[0] == 0
		if !step {
			if data, err = c.decode(message); err != nil {
				f.group.Processes().Fail(err)
				return err
			}
			if c.Call == callClose {
				return nil
			}
		}
		reply = append(reply[:0], succeeded)
		err = files.Guard(func() (err error) {
			if step {
				reply, err = f.step(message, reply)
				return err
			}
			reply, err = f.run(&c, data, reply)
			return err
		})
		if err != nil {
			reply = append(append(reply[:0], failed), err.Error()...)
		}
		f.group.Send(0, reply)
	}
}

// run runs a command, and appends the bytes that it reads to the reply.
func (f *follower) run(c *command, data, reply []byte) ([]byte, error) {
	if c.Bytes < 0 || c.Bytes > 1<<31 {
		return reply, errMessage
	}
	reply = append(reply, make([]byte, c.Bytes)...)
	rank, m, to := f.Rank(), f.Machine, reply[1:]
	switch c.Call {
	case callGrowSlots:
		return reply, m.GrowSlots(c.Index)
	case callClearSlot:
		return reply, m.ClearSlot(c.Index)
	case callCopySlot:
		return reply, m.CopySlot(c.Index, c.To)
	case callReadSlot:
		return reply, m.ReadSlot(rank, c.Index, c.At, to)
	case callWriteSlot:
		return reply, m.WriteSlot(rank, c.Index, c.At, data)
	case callReplay:
		return reply, m.Replay(context.Background(), c.Replays)
	case callGrowPages:
		return reply, m.GrowPages(c.Index)
	case callCopyRows:
		if len(c.Rows) == 1 {
			return reply, m.CopyRows(c.Rows[0], int32(c.To))
		}
	case callReadRows:
		return reply, m.ReadRows(rank, c.Index, c.Rows, to)
	case callWriteRows:
		return reply, m.WriteRows(rank, c.Index, c.Rows, data)
	case callReadPage:
		return reply, m.ReadPage(rank, int32(c.Index), c.At, to)
	case callWritePage:
		return reply, m.WritePage(rank, int32(c.Index), c.At, data)
	}
	return reply, errMessage
}

// step runs the batches of a step, and appends the outputs that this rank has to the reply.
func (f *follower) step(message, reply []byte) ([]byte, error) {
	n, more := 0, 1
	for ; more > 0; n++ {
		if n > 0 {
			var err error
			if message, err = f.group.Receive(0, false); err != nil {
				return reply, err
			}
		}
		var err error
		if more, err = decodeStep(message, f.work(n), f.elsewhere); err != nil {
			return reply, err
		}
	}
	if !f.elsewhere {
		_, err := f.Machine.Step(context.Background(), f.works[0])
		return reply, f.intact(err)
	}
	out, err := f.Machine.(exec.Pipeline).StepAll(context.Background(), f.works[:n])
	for i := range out {
		reply = appendOutputs(reply, out[i])
	}
	return reply, f.intact(err)
}

// work is the n-th batch of a step.
func (f *follower) work(n int) *exec.Work {
	for len(f.works) <= n {
		f.works = append(f.works, &exec.Work{Inputs: slices.Clone(f.inputs), Outputs: make(lowering.OutputMask, len(f.schedule.Outputs))})
	}
	return f.works[n]
}

// intact checks the files after a step.
func (f *follower) intact(err error) error {
	if err == nil && f.checkFiles != nil {
		err = f.checkFiles()
	}
	return err
}

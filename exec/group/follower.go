package group

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
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
	elsewhere    bool          // another rank than the first has outputs
	batch        *exec.Work    // of a step, reused
	more         bool          // messages of the step follow
	following    atomic.Bool   // Follow was called
	done         chan struct{} // closed when Follow has returned
}

func newFollower(own exec.Machine, g *comm.Group, schedules []*lowering.Schedule, checkFiles func() error) (*follower, error) {
	inputs, err := exec.Inputs(schedules)
	batch := &exec.Work{Inputs: inputs, Outputs: make(lowering.OutputMask, len(lowering.Giver(schedules).Outputs))}
	return &follower{Machine: own, group: g, checkFiles: checkFiles, batch: batch, elsewhere: elsewhere(givers(schedules)), done: make(chan struct{})}, err
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
				return f.step(message)
			}
			reply, err = f.run(&c, data, reply)
			return err
		})
		if err != nil {
			reply = append(append(reply[:0], failed), err.Error()...)
		}
		f.group.Send(0, reply)
		for f.more { // of a step that an error ended
			if message, err = f.group.Receive(0, false); err != nil {
				return err
			}
			f.more = !bytes.Equal(message, lastStep)
		}
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

// step runs the batch of a step, or where another rank than the first has the outputs, batches
// until the last: the outputs that this rank has are sent to rank 0.
func (f *follower) step(message []byte) error {
	if !f.elsewhere {
		if err := decodeStep(message, f.batch, false); err != nil {
			return err
		}
		_, err := f.Machine.Step(context.Background(), f.batch)
		return f.intact(err)
	}
	f.more = true
	var wrong error
	n := 0
	err := f.Machine.(exec.Pipeline).StepEach(context.Background(), func(await exec.Await) []*exec.Work {
		if n > 0 {
			if message, wrong = f.give(n-1, await); wrong != nil {
				return nil
			}
		}
		n++
		if f.more = !bytes.Equal(message, lastStep); !f.more {
			return nil
		}
		if wrong = decodeStep(message, f.batch, true); wrong != nil {
			return nil
		}
		return []*exec.Work{f.batch}
	})
	return f.intact(cmp.Or(err, wrong))
}

// give sends the outputs of a batch that this rank has, and waits for the next.
func (f *follower) give(n int, await exec.Await) (message []byte, err error) {
	out, err := await(n)
	if err != nil {
		return nil, err
	}
	if out != nil {
		f.group.Send(0, appendOutputs([]byte{gave}, out))
	}
	return f.group.Receive(0, false)
}

// intact checks the files after a step.
func (f *follower) intact(err error) error {
	if err == nil && f.checkFiles != nil {
		err = f.checkFiles()
	}
	return err
}

package exec

import (
	"context"
	"fmt"
	"time"

	"github.com/krait-ml/krait/internal/files"
	"github.com/krait-ml/krait/lowering"
)

// grace is how long a process that is to end waits for rank 0 to end first: a signal
// may have come to all.
const grace = time.Second

// Follow does what rank 0 says, in a process of another rank, and returns when the engine
// is closed there, or with the error for which all end. When the context ends, and rank 0
// does not end soon, that is an error for all.
func (e *Engine) Follow(ctx context.Context) error {
	if e.group == nil || e.group.Rank() == 0 {
		return fmt.Errorf("the engine has no rank 0 elsewhere to follow")
	}
	if e.closed.Load() {
		return ErrClosed
	}
	if e.following.Swap(true) {
		return fmt.Errorf("rank %d follows already, or has followed", e.group.Rank())
	}
	defer context.AfterFunc(ctx, func() {
		select {
		case <-time.After(grace):
			e.group.Processes().Fail(context.Cause(ctx))
		case <-e.followed:
		case <-e.group.Processes().Failed():
		}
	})()
	defer close(e.followed)
	f := follower{Engine: e, work: Work{Inputs: e.work.Inputs, Wanted: make(lowering.Wanted, len(e.work.Wanted))}}
	return f.serve()
}

// enter opens the machine of this process's rank, when all have agreed on what they run. An
// error here is one for all.
func (e *Engine) enter(o *Options, setup Setup) (err error) {
	e.followed = make(chan struct{})
	defer func() {
		if _, all := err.(disagreement); all {
			e.group.Processes().End(err)
		} else if err != nil {
			e.group.Processes().Fail(err)
			err = e.group.Processes().Err()
		}
	}()
	hosts, err := e.agree(o, setup.Tensor)
	if err != nil {
		return err
	}
	for r, h := range hosts {
		if h == hosts[e.group.Rank()] {
			setup.Beside++
			if r < e.group.Rank() {
				setup.Place++
			}
		}
	}
	rank := e.group.Rank()
	setup.Follows = rank > 0
	if e.machine, err = open(o.Device, e.schedules[rank:rank+1], e.group, setup); err != nil {
		return err
	}
	if rank > 0 {
		e.group.Send(0, []byte{wellDone})
		return nil
	}
	l := &lead{own: e.machine, group: e.group}
	for i := range e.sources {
		l.common = append(l.common, e.sources[i].serves == nil)
	}
	for r := 1; r < len(hosts); r++ {
		if _, err := e.group.Receive(r, false); err != nil {
			e.machine.Close()
			return err
		}
	}
	e.machine = l
	return nil
}

// leave ends all where this process is closed before rank 0 is.
func (e *Engine) leave() {
	select {
	case <-e.followed:
	default:
		e.group.Processes().Fail(ErrClosed)
		if e.following.Load() {
			<-e.followed
		}
	}
}

// follower does what rank 0 says.
type follower struct {
	*Engine
	work  Work
	words sentence
}

func (f *follower) serve() error {
	var reply []byte
	for {
		text, err := f.group.Receive(0, false)
		if err != nil {
			return err
		}
		if err := f.words.read(text); err != nil {
			f.group.Processes().Fail(err)
			return err
		}
		if f.words.order == orderClose {
			return nil
		}
		reply = append(reply[:0], wellDone)
		err = files.Guard(func() (err error) {
			reply, err = f.do(reply)
			return err
		})
		if err != nil {
			reply = append(append(reply[:0], failed), err.Error()...)
		}
		f.group.Send(0, reply)
	}
}

// do does it, and appends what is asked for to the reply.
func (f *follower) do(reply []byte) ([]byte, error) {
	t := reader{nums: f.words.nums}
	next := func() int { return int(t.next()) }
	rank := f.group.Rank()
	var err error
	switch f.words.order {
	case orderStep:
		err = f.step(&t)
	case orderKeepSlots:
		err = f.machine.KeepSlots(next())
	case orderClear:
		err = f.machine.Clear(next())
	case orderCopy:
		err = f.machine.Copy(next(), next())
	case orderPages:
		err = f.machine.Pages(next())
	case orderCopyRows:
		page := int32(next())
		rows := t.rows()
		if len(rows) != 1 {
			return reply, errSentence
		}
		err = f.machine.CopyRows(rows[0], page)
	case orderRead:
		slot, at := next(), t.next()
		err = f.machine.Read(rank, slot, at, f.room(&reply, &t))
	case orderReadPage:
		page, at := int32(next()), t.next()
		err = f.machine.ReadPage(rank, page, at, f.room(&reply, &t))
	case orderReadRows:
		buffer := next()
		to := f.room(&reply, &t)
		err = f.machine.ReadRows(rank, buffer, t.rows(), to)
	case orderWrite, orderWritePage, orderWriteRows:
		err = f.write(rank, &t)
	default:
		err = errSentence
	}
	if err == nil && t.bad {
		err = errSentence
	}
	return reply, err
}

// write writes what the sentence carries.
func (f *follower) write(rank int, t *reader) error {
	if len(f.words.data) != 1 {
		return errSentence
	}
	where, data := t.next(), f.words.data[0]
	switch f.words.order {
	case orderWrite:
		return f.machine.Write(rank, int(where), t.next(), data)
	case orderWritePage:
		return f.machine.WritePage(rank, int32(where), t.next(), data)
	}
	return f.machine.WriteRows(rank, int(where), t.rows(), data)
}

// room is memory for bytes in the reply.
func (f *follower) room(reply *[]byte, t *reader) []byte {
	n := t.next()
	if n < 0 || n > 1<<31 {
		t.bad = true
		return nil
	}
	*reply = append(*reply, make([]byte, n)...)
	return (*reply)[1:]
}

// step runs a batch.
func (f *follower) step(t *reader) error {
	t.takeBatch(&f.work)
	at := 0
	for i := range f.work.Inputs {
		if f.sources[i].serves != nil {
			continue
		}
		if at == len(f.words.data) {
			return errSentence
		}
		f.work.Inputs[i].Data = f.words.data[at]
		at++
	}
	if t.bad || at != len(f.words.data) {
		return errSentence
	}
	_, err := f.machine.Step(context.Background(), &f.work)
	if err == nil && f.intact != nil {
		err = f.intact()
	}
	return err
}

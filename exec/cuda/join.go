package cuda

import (
	"context"
	"fmt"
	"time"

	"github.com/krait-ml/krait/cuda/driver"
)

// join joins the ranks by NCCL. Each thread has its own error and its own places of the
// list: ranks have their communicators when all have joined.
func (m *machine) join() error {
	id, err := m.uniqueID()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if m.group != nil {
		defer m.whenFailed(cancel)()
	}
	joined := make([]driver.Collectives, len(m.ranks))
	first := m.ranks[0].s.Rank
	err = m.each(func(g *gpu) error {
		for _, r := range g.ranks {
			c, err := m.device.Driver.Join(ctx, g.ctx, id, r.s.Ranks, r.s.Rank)
			if err != nil {
				cancel() // the others would wait for this one
				return r.where(err)
			}
			joined[r.s.Rank-first] = c
		}
		return nil
	})
	for i, c := range joined {
		switch {
		case err == nil:
			m.ranks[i].nccl = c
		case c != nil:
			_ = c.Abort() // err is returned
		}
	}
	if err == nil && m.group != nil {
		m.whenFailed(m.abort)
	}
	return err
}

// uniqueID returns NCCL's id of the group: rank 0 creates it and sends it to other processes.
func (m *machine) uniqueID() (id driver.UniqueID, err error) {
	if m.group == nil || m.group.Rank() == 0 {
		if id, err = m.device.Driver.UniqueID(); err != nil || m.group == nil {
			return id, err
		}
		for r := 1; r < m.group.Ranks(); r++ {
			m.group.Send(r, id[:])
		}
		return id, nil
	}
	text, err := m.group.Receive(0, false)
	if err == nil && copy(id[:], text) != len(text) {
		err = fmt.Errorf("rank 0 sent an id of %d bytes for NCCL, which has %d", len(text), len(id))
	}
	return id, err
}

// whenFailed runs f if the processes end with an error before the machine is closed, or before stop
// is called.
func (m *machine) whenFailed(f func()) (stop func()) {
	done := make(chan struct{})
	go func() {
		select {
		case <-m.group.Processes().Failed():
			f()
		case <-m.closed:
		case <-done:
		}
	}()
	return func() { close(done) }
}

// phase is each for the GPUs of all processes: it returns when all are done. If one fails, all
// processes end.
func (m *machine) phase(f func(g *gpu) error) error {
	err := m.each(f)
	if m.group == nil {
		return err
	}
	if all := m.group.Processes(); err != nil && all.Err() == nil {
		all.Fail(err)
	} else if err != nil {
		err = all.Err() // NCCL only says that it was aborted
	}
	if err == nil {
		err = m.group.Meet()
	}
	if err != nil {
		m.failed = err
	}
	return err
}

// bound ends all processes if the step of this one's GPU does not end because it waits for another.
func (m *machine) bound() (stop func()) {
	if m.group == nil {
		return func() {}
	}
	all := m.group.Processes()
	t := time.AfterFunc(all.Timeout(), func() {
		all.Fail(fmt.Errorf("its GPU has run one step for %v: it hangs, waits for another rank, or the timeout is too short for a step of this model", all.Timeout()))
	})
	return func() { t.Stop() }
}

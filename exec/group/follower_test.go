package group

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/comm"
	"github.com/krait-ml/krait/exec/comm/tcp"
)

// machine is one that can only be closed.
type machine struct {
	exec.Machine
	closed int
}

func (m *machine) Close() { m.closed++ }

// TestFollowerClosed: a follower that is closed before rank 0 closes its engine ends all processes,
// whether it follows or has not begun to, and Follow returns; afterwards it ends none.
func TestFollowerClosed(t *testing.T) {
	for name, c := range map[string]struct{ follows, ended bool }{"before Follow": {}, "following": {follows: true}, "ended": {true, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			list, errs := make([]*comm.Processes, 2), make([]error, 2)
			id := "file:" + filepath.Join(t.TempDir(), "rank0")
			var all sync.WaitGroup
			for r := range list {
				all.Go(func() {
					link, err := tcp.Join(t.Context(), tcp.Options{Rank: r, World: 2, ID: id})
					if errs[r] = err; err == nil {
						list[r] = comm.Connect(link, comm.Options{Timeout: time.Minute})
					}
				})
			}
			all.Wait()
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
			own := &machine{}
			l, f := newLeader(&machine{}, list[0].NewGroup(), nil), &follower{Machine: own, group: list[1].NewGroup(), done: make(chan struct{})}
			followed := make(chan error, 1)
			if c.follows {
				go func() { followed <- f.Follow(context.Background()) }()
				for !f.following.Load() {
					time.Sleep(time.Millisecond)
				}
			}
			if c.ended {
				l.Close()
				if err := <-followed; err != nil {
					t.Error(err)
				}
			}
			closed := make(chan struct{})
			go func() { f.Close(); close(closed) }()
			events := []<-chan struct{}{list[0].Failed()}
			if c.ended {
				events = nil
			}
			for _, event := range append(events, closed) {
				select {
				case <-event:
				case <-time.After(10 * time.Second):
					t.Fatal("rank 0 does not learn of it, or Close does not return")
				}
			}
			if err := list[0].Err(); c.ended != (err == nil) || !c.ended && err.Error() != "rank 1: "+exec.ErrClosed.Error() {
				t.Errorf("rank 0 ends with %v", err)
			}
			if c.follows && !c.ended {
				if err := <-followed; !errors.Is(err, exec.ErrClosed) {
					t.Errorf("Follow ends with %v", err)
				}
			}
			if own.closed != 1 {
				t.Errorf("its machine is closed %d times", own.closed)
			}
			for _, p := range list {
				all.Go(func() { p.Close(nil) })
			}
			all.Wait()
		})
	}
}

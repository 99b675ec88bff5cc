package cache

import (
	"sync"
	"sync/atomic"

	"github.com/krait-ml/krait/session/prefix"
)

// trials run beside the requests, one at a time.
type trials struct {
	live    sync.WaitGroup
	stopped *atomic.Bool // of the one under way; nil: there is none
	yield   func()       // before each request that is replayed: what runs a model goes first
}

// try lets a trial choose α, unless one is under way. What it chooses is used from the
// next request on after it has ended.
func (c *Cache) try(trial *prefix.Trial) {
	if c.trials.stopped != nil {
		return
	}
	tree, stopped, yield := c.tree, &atomic.Bool{}, c.trials.yield
	c.trials.stopped = stopped
	c.trials.live.Go(func() {
		alpha, ok := trial.Run(func() bool {
			yield()
			return stopped.Load()
		})
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.trials.stopped == stopped { // or else the tree is another now
			c.trials.stopped = nil
			if ok {
				tree.Take(alpha)
			}
		}
	})
}

// stop ends the trial under way, if there is one, at the next request that it replays.
func (t *trials) stop() {
	if t.stopped != nil {
		t.stopped.Store(true)
		t.stopped = nil
	}
}

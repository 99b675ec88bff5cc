package cache

import (
	"sync"
	"sync/atomic"

	"github.com/krait-ml/krait/session/prefix"
)

// trials run in the background, one at a time.
type trials struct {
	live    sync.WaitGroup
	stopped *atomic.Bool // of the running one; nil: none
	yield   func()       // called before each replayed request: the model has priority
}

// try starts a trial of α, unless one runs. Its result is used from the next request on after it
// ends.
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
		if c.trials.stopped == stopped { // otherwise the tree was replaced
			c.trials.stopped = nil
			if ok {
				tree.Take(alpha)
			}
		}
	})
}

// stop ends a running trial at the next request that it replays.
func (t *trials) stop() {
	if t.stopped != nil {
		t.stopped.Store(true)
		t.stopped = nil
	}
}

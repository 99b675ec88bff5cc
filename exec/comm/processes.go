package comm

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Options configure how processes watch each other.
type Options struct {
	// Timeout ends all processes when one is silent, or keeps others waiting in a step, longer;
	// 0: 30 s.
	Timeout time.Duration
}

// DefaultTimeout is the default of [Options.Timeout].
const DefaultTimeout = 30 * time.Second

// beats is the number of heartbeats that a process sends within the timeout.
const beats = 16

// Processes are the processes that run the ranks of models, one each, and watch each other: if one
// ends, fails or is silent, all end, with an error that names it.
type Processes struct {
	link    Link
	timeout time.Duration
	heard   []atomic.Int64 // time of the last message of a rank, in nanoseconds
	waits   []atomic.Int64 // 1 + the rank for which a rank waits, from its last heartbeat
	left    []atomic.Bool  // by rank

	mu     sync.Mutex
	groups []*Group // by number
	opened int
	err    error         // for which all have ended
	failed chan struct{} // closed then
	closed chan struct{}
	ends   sync.Once
	end    error
	live   sync.WaitGroup
}

// Connect joins this process to those of the link.
func Connect(link Link, o Options) *Processes {
	n := link.Ranks()
	p := &Processes{link: link, timeout: cmp.Or(o.Timeout, DefaultTimeout), failed: make(chan struct{}), closed: make(chan struct{})}
	p.heard, p.waits, p.left = make([]atomic.Int64, n), make([]atomic.Int64, n), make([]atomic.Bool, n)
	p.forgive(time.Now())
	link.Start(p.deliver, p.lose)
	p.live.Go(p.watch)
	return p
}

// Rank is the rank of this process.
func (p *Processes) Rank() int { return p.link.Rank() }

// Ranks is the number of processes.
func (p *Processes) Ranks() int { return p.link.Ranks() }

// Timeout is the timeout of the options.
func (p *Processes) Timeout() time.Duration { return p.timeout }

// Err is the error for which all have ended, or nil.
func (p *Processes) Err() error {
	select {
	case <-p.failed:
		return p.err
	default:
		return nil
	}
}

// Failed is closed when all end with an error.
func (p *Processes) Failed() <-chan struct{} { return p.failed }

// Fail ends all processes with an error of this one. The first of several errors counts.
func (p *Processes) Fail(err error) {
	told := err
	if me := fmt.Sprintf("rank %d: ", p.Rank()); !strings.HasPrefix(err.Error(), me) {
		told = fmt.Errorf("%s%w", me, err)
	}
	p.fail(told, err)
}

// End ends all processes with an error of all.
func (p *Processes) End(err error) { p.fail(err, err) }

// Close leaves the others. With an error, they end too.
func (p *Processes) Close(err error) error {
	p.ends.Do(func() {
		if err != nil {
			p.Fail(err)
		}
		close(p.closed)
		p.live.Wait() // so that nothing follows its bye
		failed := p.Err() != nil
		if !failed {
			p.toAll(func() Message { return newMessage(bye, 0, 0) })
		}
		p.end = p.link.Close(min(p.timeout, time.Second), failed)
	})
	return p.end
}

// fail ends all processes: the others with the first error, this one with the second.
func (p *Processes) fail(told, own error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return
	}
	p.err = own
	close(p.failed)
	p.toAll(func() Message { return textMessage(fatal, 0, told.Error()) })
	for _, g := range p.groups {
		g.wake()
	}
}

// toAll sends a message to all others.
func (p *Processes) toAll(make func() Message) {
	for r := range p.Ranks() {
		if r != p.Rank() {
			p.link.Send(r, make())
		}
	}
}

// lose handles the end of a rank's connection.
func (p *Processes) lose(rank int, err error) {
	select {
	case <-p.closed: // connections end in any order
		return
	default:
	}
	if p.left[rank].Load() {
		for _, g := range p.list() {
			g.wake() // its messages will not come
		}
		return
	}
	e := fmt.Errorf("rank %d ended unexpectedly: %w", rank, err)
	p.fail(e, e)
}

// deliver handles a message.
func (p *Processes) deliver(from int, m Message) {
	p.heard[from].Store(time.Now().UnixNano())
	switch m.kind() {
	case beat:
		p.waits[from].Store(m.step())
	case bye:
		p.left[from].Store(true)
		for _, g := range p.list() {
			g.wake()
		}
	case fatal:
		e := errors.New(string(m.carried()))
		p.fail(e, e) // others may learn it here before they lose that rank
	case stop, piece, word:
		p.group(int(m.group())).take(from, m)
		return
	default:
		e := fmt.Errorf("rank %d sent a message of unknown kind %d: it runs another version", from, m.kind())
		p.fail(e, e)
	}
	Recycle(m)
}

// NewGroup makes the world of a model of which each process runs a rank. All processes make their
// groups in the same order.
func (p *Processes) NewGroup() *Group {
	p.mu.Lock()
	number := p.opened
	p.opened++
	p.mu.Unlock()
	return p.group(number)
}

// group finds a group by its number; other processes may begin it first.
func (p *Processes) group(number int) *Group {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.groups) <= number {
		p.groups = append(p.groups, newGroup(p, len(p.groups)))
	}
	return p.groups[number]
}

func (p *Processes) list() []*Group {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.groups[:len(p.groups):len(p.groups)]
}

// watch sends heartbeats, and checks those of the others.
func (p *Processes) watch() {
	interval := max(p.timeout/beats, time.Millisecond)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-p.closed:
			return
		case <-p.failed:
			return
		case <-tick.C:
		}
		now := time.Now()
		if now.Sub(last) > p.timeout/2 { // this process was stopped, not the others
			p.forgive(now)
		}
		last = now
		p.toAll(func() Message {
			m := newMessage(beat, 0, 0)
			m.setStep(p.waitsFor(now, interval))
			return m
		})
		p.look(now, p.timeout-2*interval)
	}
}

// forgive resets all times.
func (p *Processes) forgive(now time.Time) {
	for r := range p.heard {
		p.heard[r].Store(now.UnixNano())
	}
	for _, g := range p.list() {
		g.since.Store(now.UnixNano())
	}
}

// waitsFor is 1 + the rank for which this one has waited longer than long in a step; 0: none.
func (p *Processes) waitsFor(now time.Time, long time.Duration) int64 {
	for _, g := range p.list() {
		if on := g.on.Load(); on > 0 && now.UnixNano()-g.since.Load() > int64(long) {
			return on
		}
	}
	return 0
}

// look ends all processes if a rank was silent, or kept this one waiting.
func (p *Processes) look(now time.Time, long time.Duration) {
	var silent []int
	for r := range p.heard {
		if r != p.Rank() && !p.left[r].Load() && now.UnixNano()-p.heard[r].Load() > int64(long) {
			silent = append(silent, r)
		}
	}
	if len(silent) > 0 {
		e := fmt.Errorf("rank %d has been silent for %v: it hangs, was stopped, or cannot be reached", silent[0], p.timeout)
		if len(silent) > 1 && len(silent) == p.Ranks()-1 { // more likely it is this one
			e = fmt.Errorf("rank %d has heard nothing of any other for %v: it cannot reach them", p.Rank(), p.timeout)
		}
		p.fail(e, e)
	}
	if on := p.waitsFor(now, long); on > 0 {
		e := fmt.Errorf("rank %d has not made progress in a step for %v, and others wait for it: it hangs, or the timeout is too short for a step of this model", p.blame(on), p.timeout)
		p.fail(e, e)
	}
}

// blame follows the chain of waiting ranks to its end.
func (p *Processes) blame(on int64) int64 {
	for range p.heard {
		next := p.waits[on-1].Load()
		if next == 0 || int(next-1) == p.Rank() {
			break
		}
		on = next
	}
	return on - 1
}

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

// Options say how processes watch each other.
type Options struct {
	// Timeout is how long a process may be silent, or keep others waiting in a step,
	// until all end; 0: 30 s.
	Timeout time.Duration
}

// DefaultTimeout is what [Options.Timeout] is where it is not given.
const DefaultTimeout = 30 * time.Second

// beats is how many signs of life a process gives within the timeout.
const beats = 16

// Processes are the processes that run the ranks of models together, one each, and
// watch each other: where one ends, fails or is silent, all end, with an error that names
// it.
type Processes struct {
	link    Link
	timeout time.Duration
	heard   []atomic.Int64 // when something came from a rank, in nanoseconds
	waits   []atomic.Int64 // for whom a rank waits, as its last sign of life said: a rank and 1
	left    []atomic.Bool  // it said so

	mu     sync.Mutex
	groups []*Group // by number; nil where only others have begun it
	opened int
	err    error         // why everything has ended
	failed chan struct{} // closed then
	closed chan struct{}
	ends   sync.Once
	end    error
	live   sync.WaitGroup
}

// Connect joins this process to those that the link leads to.
func Connect(link Link, o Options) *Processes {
	n := link.Ranks()
	p := &Processes{link: link, timeout: cmp.Or(o.Timeout, DefaultTimeout), failed: make(chan struct{}), closed: make(chan struct{})}
	p.heard, p.waits, p.left = make([]atomic.Int64, n), make([]atomic.Int64, n), make([]atomic.Bool, n)
	p.forgive(time.Now())
	link.Start(p.deliver, p.lose)
	p.live.Go(p.watch)
	return p
}

// Rank is that of this process, and Ranks how many there are.
func (p *Processes) Rank() int { return p.link.Rank() }

// Ranks is how many processes there are.
func (p *Processes) Ranks() int { return p.link.Ranks() }

// Timeout is how long others are waited for.
func (p *Processes) Timeout() time.Duration { return p.timeout }

// Err is why all has ended, nil while it has not.
func (p *Processes) Err() error {
	select {
	case <-p.failed:
		return p.err
	default:
		return nil
	}
}

// Failed is closed when all ends with an error.
func (p *Processes) Failed() <-chan struct{} { return p.failed }

// Fail ends all processes with an error of this one. Of several errors the first counts.
func (p *Processes) Fail(err error) {
	told := err
	if me := fmt.Sprintf("rank %d: ", p.Rank()); !strings.HasPrefix(err.Error(), me) {
		told = fmt.Errorf("%s%w", me, err)
	}
	p.fail(told, err)
}

// End ends all processes with an error that is of all.
func (p *Processes) End(err error) { p.fail(err, err) }

// Close leaves the others: with an error, they all end.
func (p *Processes) Close(err error) error {
	p.ends.Do(func() {
		if err != nil {
			p.Fail(err)
		}
		close(p.closed)
		p.live.Wait() // nothing follows the word that it leaves
		failed := p.Err() != nil
		if !failed {
			p.toAll(func() Message { return newMessage(bye, 0, 0) })
		}
		p.end = p.link.Close(min(p.timeout, time.Second), failed)
	})
	return p.end
}

// fail ends everything: others are told the one error, this process has the other.
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

// lose is told by the link of a rank that is gone.
func (p *Processes) lose(rank int, err error) {
	select {
	case <-p.closed: // links end as they like
		return
	default:
	}
	if p.left[rank].Load() {
		for _, g := range p.list() {
			g.wake() // who waits for it will not be served
		}
		return
	}
	e := fmt.Errorf("rank %d has ended without a word: %w", rank, err)
	p.fail(e, e)
}

// deliver takes a message in.
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
		p.fail(e, e) // others may hear of it from here before they hear that this one has ended
	case stop, piece, word:
		p.group(int(m.group())).take(from, m)
		return
	default:
		e := fmt.Errorf("rank %d sent a message of kind %d, which there is not: it runs another version", from, m.kind())
		p.fail(e, e)
	}
	Recycle(m)
}

// NewGroup is the world of a model of which each process runs a rank. All processes make
// theirs in the same order.
func (p *Processes) NewGroup() *Group {
	p.mu.Lock()
	number := p.opened
	p.opened++
	p.mu.Unlock()
	return p.group(number)
}

// group finds one by its number: others may begin before this process does.
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

// watch gives signs of life, and looks for those of others.
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
		if now.Sub(last) > p.timeout/2 { // this process stood still, not the others
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

// forgive lets all times begin anew.
func (p *Processes) forgive(now time.Time) {
	for r := range p.heard {
		p.heard[r].Store(now.UnixNano())
	}
	for _, g := range p.list() {
		g.since.Store(now.UnixNano())
	}
}

// waitsFor is the rank, and 1, for which this one has waited so long in a step.
func (p *Processes) waitsFor(now time.Time, long time.Duration) int64 {
	for _, g := range p.list() {
		if on := g.on.Load(); on > 0 && now.UnixNano()-g.since.Load() > int64(long) {
			return on
		}
	}
	return 0
}

// look ends everything where a rank has been silent, or kept this one waiting.
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
		e := fmt.Errorf("rank %d has not come on in a step for %v, and others wait for it: it hangs, or the timeout is too short for a step of this model", p.blame(on), p.timeout)
		p.fail(e, e)
	}
}

// blame is who is waited for in the end: the one for which this one waits may wait itself.
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

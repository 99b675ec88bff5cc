package comm

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// each runs f for all processes at the same time.
func each(list []*Processes, f func(r int, p *Processes)) {
	var all sync.WaitGroup
	for r, p := range list {
		all.Go(func() { f(r, p) })
	}
	all.Wait()
}

// sumOf is an all-reduce of some elements.
func sumOf(n int) *Collective {
	x := &Collective{Op: op("all_reduce"), Args: []kernels.Tensor{tensorOf(graph.F32, 1, n, make([]float32, n))}}
	x.Results = x.Args
	return x
}

// TestSent: of an all_reduce a rank sends 2(p-1)/p of the payload, of what is gathered or
// scattered half of that.
func TestSent(t *testing.T) {
	const elems = 4000
	for _, ranks := range []int{1, 2, 3, 4, 8} {
		list, links := processes(t, ranks, time.Minute)
		each(list, func(r int, p *Processes) {
			g := p.NewGroup()
			c, err := g.Join(r)
			if err != nil {
				t.Error(err)
			}
			c.Begin()
			if err := c.Run(sumOf(elems)); err != nil {
				t.Error(err)
			}
			payload := 4 * elems
			want := 2 * (ranks - 1) * payload / ranks
			if got := int(g.Sent()); got < want-8*ranks || got > want+8*ranks {
				t.Errorf("rank %d of %d sent %d bytes of %d, want %d", r, ranks, got, payload, want)
			}
			if got := links[r].sent; got < int(g.Sent()) || got > int(g.Sent())+(2*ranks+10*ranks)*Header {
				t.Errorf("rank %d of %d sent %d bytes in all, and says %d", r, ranks, got, g.Sent())
			}
		})
	}
}

// TestStopOfProcesses: a rank that stops, before, in the middle of, or after the others' wait,
// ends the step on all with its error, and the next step is as if nothing had been.
func TestStopOfProcesses(t *testing.T) {
	const ranks = 3
	list, _ := processes(t, ranks, time.Minute)
	var between [stopSteps]sync.WaitGroup // as engines wait for each other
	for i := range between {
		between[i].Add(ranks)
	}
	each(list, func(r int, p *Processes) {
		c, err := p.NewGroup().Join(r)
		if err != nil {
			t.Error(err)
			return
		}
		withStops(t, c, r, ranks, func(step int) {
			between[step].Done()
			between[step].Wait()
			if err := c.Err(); step%4 == 1 && c.Stopped() && (err == nil || err.Error() != errPlanted.Error()) {
				t.Errorf("step %d on rank %d ends with %v", step, r, err)
			}
		})
	})
}

// TestGone: where a process dies, leaves, fails, freezes or does not come to a collective, those
// that wait end within the bound, with an error that names it, and so do those that wait for
// words alone.
func TestGone(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(p *Processes, l *memoryLink)
		want string
		fast bool
	}{
		{"dies", func(_ *Processes, l *memoryLink) { l.Close(0, true) }, "rank 1 ended unexpectedly: it is dead", true},
		{"fails", func(p *Processes, _ *memoryLink) { p.Fail(errors.New("its disk is full")) }, "rank 1: its disk is full", true},
		{"leaves", func(p *Processes, _ *memoryLink) { p.Close(nil) }, "rank 1 has left, and others wait for it", true},
		{"closes with an error", func(p *Processes, _ *memoryLink) { p.Close(errors.New("terminated")) }, "rank 1: terminated", true},
		{"freezes", func(_ *Processes, l *memoryLink) { close(l.frozen) }, "rank 1 has ", false},
		{"hangs", func(*Processes, *memoryLink) {}, "rank 1 has not made progress in a step for 2s", false},
	} {
		for _, where := range []string{"step", "words"} {
			if where == "words" && c.name == "hangs" {
				continue // it may take its time
			}
			t.Run(c.name+" in "+where, func(t *testing.T) {
				t.Parallel()
				timeout := 2 * time.Second
				if c.fast { // it does not pass, even where a busy machine runs no rank for seconds
					timeout = 20 * time.Second
				}
				list, links := processes(t, 4, timeout)
				start := time.Now()
				var begun sync.WaitGroup // the others must have what rank 1 still sent
				begun.Add(len(list))
				each(list, func(r int, p *Processes) {
					g := p.NewGroup()
					x, err := g.Join(r)
					if err != nil {
						begun.Done()
						t.Error(err)
						return
					}
					x.Begin()
					if err := x.Run(sumOf(3)); err != nil {
						t.Errorf("at first: %v", err)
					}
					begun.Done()
					switch {
					case r == 1:
						begun.Wait()
						c.do(p, links[1])
						return
					case where == "words":
						_, err = g.Receive(1, false)
					default:
						err = x.Run(sumOf(2)) // of which rank 0 has nothing to sum
					}
					if err == nil || !strings.Contains(err.Error(), c.want) {
						t.Errorf("rank %d: %v, want %q", r, err, c.want)
					}
				})
				took := time.Since(start)
				if took > 10*timeout || c.fast && took > timeout/2 {
					t.Errorf("it took %v", took)
				}
				if err := list[0].Err(); err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("then %v", err)
				}
			})
		}
	}
}

// TestBlame: who waits for one that waits itself finds the one that does not.
func TestBlame(t *testing.T) {
	list, _ := processes(t, 4, time.Minute)
	p := list[3]
	p.waits[2].Store(1 + 1)
	p.waits[1].Store(0 + 1)
	if got := p.blame(2 + 1); got != 0 {
		t.Errorf("rank %d is to blame, want 0", got)
	}
	p.waits[0].Store(3 + 1) // for the one that asks: it is the last of whom anything is known
	if got := p.blame(2 + 1); got != 0 {
		t.Errorf("rank %d is to blame, want 0", got)
	}
}

// TestIdle: processes that do nothing live on, however long.
func TestIdle(t *testing.T) {
	list, _ := processes(t, 3, 100*time.Millisecond)
	time.Sleep(500 * time.Millisecond)
	each(list, func(r int, p *Processes) {
		if err := p.Err(); err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
	})
}

// TestGroups: groups have nothing of each other, also where a process has not begun one yet.
func TestGroups(t *testing.T) {
	const ranks = 3
	list, _ := processes(t, ranks, time.Minute)
	each(list, func(r int, p *Processes) {
		first, second := p.NewGroup(), p.NewGroup()
		for i, g := range []*Group{second, first} {
			for to := range ranks {
				if to != r {
					g.Send(to, fmt.Appendf(nil, "%d from %d", i, r))
				}
			}
		}
		for from := range ranks {
			if from == r {
				continue
			}
			for i, g := range []*Group{second, first} {
				if text, err := g.Receive(from, true); err != nil || string(text) != fmt.Sprintf("%d from %d", i, from) {
					t.Errorf("rank %d: %q, %v", r, text, err)
				}
			}
		}
		if _, err := first.Join((r + 1) % ranks); err == nil || !strings.Contains(err.Error(), "each process runs one") {
			t.Errorf("the rank of another joins: %v", err)
		}
		if _, err := first.Join(r); err != nil {
			t.Error(err)
		}
		if _, err := first.Join(r); err == nil || !strings.Contains(err.Error(), "joined already") {
			t.Errorf("a rank joins twice: %v", err)
		}
	})
}

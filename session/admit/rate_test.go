package admit

import (
	"errors"
	"testing"
	"time"
)

// clock is what a queue takes for the time.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

func clocked(limits Limits, slots int) (*Queue, *clock) {
	c := &clock{time.Unix(1_000_000, 0)}
	q := mustNew(limits, slots)
	q.now = c.now
	return q, c
}

// retry is after how long an error says to come again; 0: it is none, or not that.
func retry(err error) time.Duration {
	if e := (*Error)(nil); errors.As(err, &e) && (e.Kind == Full || e.Kind == RateExceeded) {
		return e.Retry
	}
	return 0
}

// TestRate: each tenant has its own requests and tokens per minute; the time that an error says
// is enough, and a little less is not; what was not used comes back.
func TestRate(t *testing.T) {
	q, c := clocked(Limits{Rate: Rate{Requests: 6, Tokens: 300}}, 100)
	enter := func(name string, tokens ...int) ([]*Ticket, error) { return q.Enter(name, demands(tokens...)) }
	must := func(list []*Ticket, err error) []*Ticket {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	for range 6 {
		must(enter("a", 1))
	}
	_, err := enter("a", 1)
	if wait := retry(err); wait != 10*time.Second {
		t.Errorf("6 per minute: the seventh may come after %v", wait)
	}
	must(enter("b", 1))
	c.at = c.at.Add(10*time.Second - time.Microsecond)
	if _, err := enter("a", 1); retry(err) == 0 {
		t.Error("it may come earlier")
	}
	c.at = c.at.Add(2 * time.Microsecond)
	must(enter("a", 1))

	used := must(enter("c", 100, 100))
	_, err = enter("c", 150) // 100 are left, of 5 per second
	if wait := retry(err); wait != 10*time.Second {
		t.Errorf("50 tokens are missing: %v", wait)
	}
	used[0].Leave(40)
	must(enter("c", 150))
	used[1].Leave(100)
	if _, err := enter("c", 11); retry(err) == 0 {
		t.Error("what was used is given back, too")
	}
	c.at = c.at.Add(time.Hour) // and no more than a minute's is saved up
	must(enter("c", 300))
	if _, err := enter("c", 1); retry(err) == 0 {
		t.Error("more than a minute's was saved up")
	}
	if _, err := enter("c", 301); err == nil || retry(err) != 0 {
		t.Errorf("what no minute has: %v", err)
	}
}

// TestRefusedTakesNothing: what is refused, for the queue or for one of the bounds, does not count
// against the others.
func TestRefusedTakesNothing(t *testing.T) {
	q, _ := clocked(Limits{Requests: 1, Rate: Rate{Requests: 3, Tokens: 100}}, 1)
	list, err := q.Enter("a", demands(10, 10))
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if _, err := q.Enter("a", demands(10)); retry(err) == 0 {
			t.Fatal("the queue is not full")
		}
	}
	for _, k := range list {
		k.Leave(10)
	}
	for range 5 {
		if _, err := q.Enter("a", demands(90)); retry(err) == 0 {
			t.Fatal("90 tokens, of 80 that are left")
		}
	}
	for range 2 {
		if _, err := q.Enter("a", demands(1)); err != nil {
			t.Error(err)
		}
	}
}

// TestRetryAfter: how long a full queue takes is judged by the time in which it worked: a night
// without requests changes nothing.
func TestRetryAfter(t *testing.T) {
	for _, night := range []time.Duration{0, 12 * time.Hour} {
		q, c := clocked(Limits{Requests: 1}, 1)
		for range 3 { // 100 tokens in 5 seconds
			c.at = c.at.Add(night)
			list, err := q.Enter("a", demands(150))
			if err != nil {
				t.Fatal(err)
			}
			list[0].Begin()
			c.at = c.at.Add(5 * time.Second)
			list[0].Leave(100)
		}
		c.at = c.at.Add(night)
		if _, err := q.Enter("a", demands(100, 300)); err != nil {
			t.Fatal(err)
		}
		if _, err := q.Enter("a", demands(1)); retry(err) != 10*time.Second {
			t.Errorf("200 tokens each, 20 per second: %v after nights of %v", err.(*Error).Retry, night)
		}
	}
	q, _ := clocked(Limits{Requests: 1}, 1)
	if _, err := q.Enter("a", demands(1, 1)); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Enter("a", demands(1)); retry(err) != time.Second {
		t.Errorf("before any text has ended: %v", err)
	}
}

package schedule

import (
	"math"
	"slices"
	"strings"
)

// tenant is a sender whose requests share slots, time and KV pages with those of other senders.
type tenant struct {
	name    string
	served  int // tokens that its requests were fed, as a virtual counter
	here    int // requests: waiting, paused and running
	running int // requests that have slots
	wants   int // upper bound on the room of its requests
	held    int // room that its active requests hold
}

// tenant finds or makes a tenant. An idle tenant is raised to the lowest counter of the active
// ones, so that it cannot save up service.
func (q *queue) tenant(name string) *tenant {
	t := q.tenants[name]
	if t == nil {
		t = &tenant{name: name}
		if q.tenants == nil {
			q.tenants = map[string]*tenant{}
		}
		q.tenants[name] = t
	}
	if t.here == 0 {
		t.served = max(t.served, q.least())
	}
	return t
}

// least is the lowest counter of the tenants that have requests, or of the last one that had.
func (q *queue) least() int {
	least := math.MaxInt
	for _, t := range q.tenants {
		if t.here > 0 {
			least = min(least, t.served)
		}
	}
	if least < math.MaxInt {
		q.clock = least
	}
	return q.clock
}

// rest forgets idle tenants whose counters are no higher than those of new tenants.
func (q *queue) rest(last *tenant) {
	if last.here > 0 {
		return
	}
	q.clock = max(q.clock, last.served)
	clock := q.least()
	for name, t := range q.tenants {
		if t.here == 0 && t.served <= clock {
			delete(q.tenants, name)
		}
	}
}

// before orders tenants: by slots held, and then by tokens served (a virtual token counter: Sheng
// et al., "Fairness in Serving Large Language Models", OSDI 2024).
func (t *tenant) before(o *tenant) int {
	switch {
	case t.running != o.running:
		return t.running - o.running
	case t.served != o.served:
		return t.served - o.served
	}
	return strings.Compare(t.name, o.name)
}

// admissible returns the request that starts or resumes next, and the one that yields its slot: nil
// if a slot is free. Both are nil if no waiting request can run.
//
// Tenants come in the order of [tenant.before], requests of one in the order of arrival. One
// without room lets later ones pass, unless it has lost patience.
func (q *queue) admissible() (r, victim *request) {
	if len(q.waiting) == 0 {
		return nil, nil
	}
	q.order = q.order[:0]
	for _, w := range q.waiting {
		if !slices.Contains(q.order, w.of) {
			q.order = append(q.order, w.of)
		}
	}
	slices.SortFunc(q.order, (*tenant).before)
	for _, t := range q.order {
		var victim *request
		if len(q.running) == q.Slots {
			if victim = q.victim(t); victim == nil {
				continue
			}
		}
		if r := q.first(t); r != nil {
			return r, victim
		}
	}
	return nil, nil
}

// first returns the request of a tenant that starts or resumes next, or nil. Active requests hold
// room, and do not wait for those that lack it.
func (q *queue) first(t *tenant) *request {
	blocked := false
	for _, r := range q.waiting {
		switch {
		case r.of != t || blocked && !r.begun:
		case q.fits(r):
			return r
		case !r.begun && r.waited >= q.Patience:
			blocked = true
		}
	}
	return nil
}

// victim returns the request that yields its slot to one of a tenant, or nil: a stalled one, or one
// of a tenant that has more slots. Tenants that differ by one slot take turns by tokens served. A
// request keeps its slot for [Limits.Quantum] tokens.
func (q *queue) victim(t *tenant) (best *request) {
	for _, r := range slices.Backward(q.running) {
		v := r.of
		switch {
		case q.Quantum == 0 || r.pending || !q.pausable(r):
			continue
		case q.stalled(r):
			return r
		case r.ran < q.Quantum || v.running <= t.running:
			continue
		case v.running == t.running+1 && v.served-t.served < q.Quantum:
			continue
		}
		if best == nil || best.of.before(v) < 0 {
			best = r
		}
	}
	return best
}

// pausable reports whether a request can yield its slot: there is memory for its state, or it has
// twice the tokens that it had when its state was last dropped, so that at most half of all work is
// repeated.
func (q *queue) pausable(r *request) bool {
	return q.snapshots < q.Snapshots || r.chosen > 0 && r.fed >= 2*r.lost
}

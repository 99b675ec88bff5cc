package schedule

import (
	"slices"

	"github.com/krait-ml/krait/internal/maxmin"
	"github.com/krait-ml/krait/session/admit"
)

// Active requests, with or without a slot, hold room in whole KV pages: that of their maximum
// length, if there is enough. Other tenants may take unused room that a tenant holds above its
// share, up to theirs. A request without room for its next token is stalled until there is some. If
// all active requests are stalled, the youngest drops its state and room, and recomputes it later.

// pages returns the room of tokens in whole pages.
func (l *Limits) pages(tokens int) int { return admit.Pages(tokens, max(l.Page, 1)) }

// taken returns the room of a request of maximum length.
func (l *Limits) taken(j *job) int { return l.pages(j.room()) }

// used returns the room of the tokens that a request has so far.
func (l *Limits) used(j *job) int { return min(l.taken(j), l.pages(j.prompt+j.chosen)) }

// stalled reports whether an active request has no room for its next token.
func (q *queue) stalled(r *request) bool { return !q.reach(r, q.used(&r.job)) }

// reach makes an active request hold at least some room, if possible.
func (q *queue) reach(r *request, room int) bool {
	if q.Room == 0 || r.held >= room {
		return true
	}
	if !q.spare(r.of, room-r.held) {
		return false
	}
	q.take(r, room)
	return true
}

// fits reports whether a queued request has room to start or to resume.
func (q *queue) fits(r *request) bool {
	if r.begun {
		return !q.stalled(r)
	}
	return q.Room == 0 || q.grant(r) > 0
}

// grant returns the room with which a request starts; 0: it waits. Beside other tenants a request
// that needs more than there is starts with the room of its prompt, within its tenant's share,
// unless it dropped its room before.
func (q *queue) grant(r *request) int {
	all, least := q.taken(&r.job), q.used(&r.job)
	switch {
	case q.spare(r.of, all):
		return all
	case r.of.held < q.held && r.chosen == 0 && r.of.held+least <= q.level() && q.spare(r.of, least):
		return least
	}
	return 0
}

// level returns the max-min share of the room.
func (q *queue) level() int {
	wants := make([]int, 0, len(q.tenants))
	for _, t := range q.tenants {
		wants = append(wants, t.wants)
	}
	share := maxmin.Share(q.Room, wants)
	return share - share%q.Page
}

// spare reports whether a tenant can hold more room.
func (q *queue) spare(t *tenant, room int) bool {
	missing := room - (q.Room - q.held)
	if missing <= 0 {
		return true
	}
	level := q.level()
	if t.held+room > level {
		return false
	}
	for _, o := range q.tenants {
		if o != t {
			missing -= min(max(o.held-level, 0), q.unused(o))
		}
	}
	return missing <= 0
}

// unused returns the room that a tenant's requests hold for tokens to come.
func (q *queue) unused(t *tenant) (room int) {
	for r := range q.begun {
		if r.of == t {
			room += max(r.held-q.used(&r.job), 0)
		}
	}
	return room
}

// begun visits the active requests, those with slots last; each kind from the youngest.
func (q *queue) begun(visit func(*request) bool) {
	for _, list := range [][]*request{q.waiting, q.running} {
		for _, r := range slices.Backward(list) {
			if r.begun && !visit(r) {
				return
			}
			for _, fork := range slices.Backward(r.forks) {
				if fork.begun && !visit(fork) {
					return
				}
			}
		}
	}
}

// take gives a request room, after spare has checked it.
func (q *queue) take(r *request, room int) {
	missing := room - r.held - (q.Room - q.held)
	if missing > 0 {
		level := q.level()
		for o := range q.begun {
			if o.of != r.of && missing > 0 {
				n := min(missing, max(o.of.held-level, 0), max(o.held-q.used(&o.job), 0))
				q.hold(o, o.held-n)
				missing -= n
			}
		}
	}
	q.hold(r, room)
}

// hold sets the room of a request.
func (q *queue) hold(r *request, room int) {
	q.held += room - r.held
	r.of.held += room - r.held
	r.held = room
}

// regain gives free room to active requests that lack some, the oldest first.
func (q *queue) regain() {
	if q.Room == 0 || q.held == q.Room {
		return
	}
	q.lacking = q.lacking[:0]
	for r := range q.begun {
		if r.held < q.taken(&r.job) {
			q.lacking = append(q.lacking, r)
		}
	}
	slices.SortFunc(q.lacking, older)
	for _, r := range q.lacking {
		q.hold(r, min(q.taken(&r.job), r.held+q.Room-q.held))
	}
}

// stuck returns the request that drops its room if no active one can continue: the youngest stalled
// one. nil: there is none, or a fetch is in progress.
func (q *queue) stuck() (youngest *request) {
	for r := range q.begun {
		if r.pending {
			return nil
		}
		if q.stalled(r) && (youngest == nil || r.number > youngest.number) {
			youngest = r
		}
	}
	return youngest
}

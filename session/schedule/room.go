package schedule

import (
	"slices"

	"github.com/krait-ml/krait/internal/maxmin"
	"github.com/krait-ml/krait/session/admit"
)

// Room is held by requests that have begun, in whole pages, with or without a slot: as much as they
// may come to need, where there is as much. What a tenant holds above its share and has not used,
// others may take, up to theirs. A request that lacks room for its next token is stalled until
// there is some. Where all that have begun are stalled, the youngest gives up its room with all
// that was computed for it, and computes it again later.

// pages returns the room of tokens in whole pages.
func (l *Limits) pages(tokens int) int { return admit.Pages(tokens, max(l.Page, 1)) }

// taken is the room that a request may come to need.
func (l *Limits) taken(j *job) int { return l.pages(j.room()) }

// used is the room that a request needs to be fed all tokens that there are of it.
func (l *Limits) used(j *job) int { return min(l.taken(j), l.pages(j.prompt+j.chosen)) }

// stalled reports whether a request that has begun has no room for its next token.
func (q *queue) stalled(r *request) bool { return !q.reach(r, q.used(&r.job)) }

// reach sees to it that a request that has begun holds so much room, if it can.
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

// fits reports whether a request that waits has room to begin or to go on.
func (q *queue) fits(r *request) bool {
	if r.begun {
		return !q.stalled(r)
	}
	return q.Room == 0 || q.grant(r) > 0
}

// grant is the room with which a request begins; 0: it waits. Beside other tenants one that needs
// more than there is begins with what its prompt needs, within its tenant's share, unless it had to
// give up its room before.
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

// level is the share of the room of a tenant that wants more.
func (q *queue) level() int {
	wants := make([]int, 0, len(q.tenants))
	for _, t := range q.tenants {
		wants = append(wants, t.wants)
	}
	share := maxmin.Share(q.Room, wants)
	return share - share%q.Page
}

// spare reports whether a tenant can hold so much more.
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

// unused is the room that a tenant's requests hold for what may follow.
func (q *queue) unused(t *tenant) (room int) {
	for r := range q.begun {
		if r.of == t {
			room += max(r.held-q.used(&r.job), 0)
		}
	}
	return room
}

// begun visits the requests that hold room, those with slots last; each kind from the youngest.
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

// take lets a request hold so much room, for which there is some to spare.
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

// hold changes what a request holds.
func (q *queue) hold(r *request, room int) {
	q.held += room - r.held
	r.of.held += room - r.held
	r.held = room
}

// regain gives room that nobody holds to those that lack some, the oldest first.
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

// stuck is the request that gives up its room where none that has begun can go on: the youngest
// that is stalled. nil: there is none, or somebody has yet to come.
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

package traffic

import (
	"github.com/krait-ml/krait/session/schedule"
)

// remote is the prefill of a request's prompt, all but its last token, on another server: as there,
// the request that prefills it also chooses a token, which is dropped.
type remote struct {
	*visit
	done func(schedule.Beginning, error)
}

// Fetch sends the prompt to the prefill server. One that rejects it leaves it to the decode server.
func (v *visit) Fetch(done func(schedule.Beginning, error)) {
	r := &remote{v, done}
	v.s.at(v.s.now, func() {
		q := v.request(v.prompt-1, 1)
		q.Fetch, q.Draft, q.OnBegin = nil, nil, nil
		if err := v.from.enter(q, r); err != nil {
			r.finish(nil)
		}
	})
}

func (r *remote) Token(schedule.Token)                  {}
func (r *remote) Fetch(func(schedule.Beginning, error)) { panic("BUG: a prefill server fetches") }
func (r *remote) finish(b schedule.Beginning)           { r.done(b, nil); r.x.idle = true }

// End sends the state over the prefill server's link, after those before it.
func (r *remote) End(err error) {
	if err != nil {
		r.finish(nil)
		return
	}
	s, l := r.s, &r.s.Link
	seconds, bytes := l.Latency, int64(0)
	if l.Bytes != nil {
		bytes = l.Bytes(r.prompt - 1)
	}
	if l.Bandwidth > 0 {
		seconds += float64(bytes) / l.Bandwidth
	}
	r.from.sends = max(r.from.sends, s.now) + length(seconds)
	s.moved += bytes
	s.moving = append(s.moving, (r.from.sends - s.now).Seconds())
	s.at(r.from.sends, func() { r.finish(&fetched{r.x, r.prompt - 1}) })
}

// fetched is a state that has arrived.
type fetched struct {
	x      *server
	tokens int
}

func (f *fetched) Begin(slot int) (int, error) {
	*f.x.of(slot) = f.tokens
	return f.tokens, nil
}

func (f *fetched) Free() {}

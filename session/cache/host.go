package cache

import (
	"errors"
	"slices"

	"github.com/krait-ml/krait/exec/state"
	"github.com/krait-ml/krait/session/prefix"
)

// host has what the device's memory had to give up, in the host's: a tree of its own, in
// which the least recent goes first. It has all rows from the first token on, so that it
// needs nothing of the device's tree; what both have counts in both.
type host struct {
	o      Options
	tree   *prefix.Adaptive
	nodes  map[int]*hostNode
	from   source // while the tree calls
	failed error  // in such a call
	gone   int    // evictions of trees that were forgotten
	bad    int    // nodes that were refused
}

// hostNode is what a node of the tree stands for.
type hostNode struct {
	rows   *state.HostKV // of its edge
	states *state.HostState
	// refused says that codecs do not take what it has, or a part of its edge, since it is
	// not finite. It is in the tree until it is evicted, and nothing goes on from it.
	refused bool
}

// source has what is taken in.
type source interface {
	rows(from, to int) (*state.HostKV, error)
	states() (*state.HostState, error)
}

func newHost(o Options) (*host, error) {
	h := &host{o: o}
	return h, h.forget()
}

// forget empties it.
func (h *host) forget() (err error) {
	if h.tree != nil {
		h.gone += h.tree.Evictions()
	}
	h.nodes = map[int]*hostNode{}
	h.tree, err = prefix.NewAdaptive("lru", h.o.HostModel, h.o.Host, hostStore{h})
	return err
}

// take keeps what a source has of tokens. What alone is too much is not taken: it would
// drive out all else, and then itself.
func (h *host) take(tokens prefix.Tokens, state bool, at float64, from source) error {
	if h.o.HostModel.Bytes(tokens.Len(), state) > h.o.Host {
		return nil
	}
	h.from, h.failed = from, nil
	h.tree.Insert(tokens, state, at)
	if h.from = nil; h.failed != nil {
		_ = h.forget() // as newHost did
	}
	return h.failed
}

// refused reports whether one of some nodes is not there in truth.
func (h *host) refused(path []int) bool {
	return slices.ContainsFunc(path, func(n int) bool { return h.nodes[n].refused })
}

// states are those of how many nodes there are.
func (h *host) states() (n int) {
	for _, x := range h.nodes {
		if x.states != nil {
			n++
		}
	}
	return n
}

// hostStore is the host tier as its tree tells it what happens.
type hostStore struct{ *host }

func (h hostStore) Evict(int, prefix.Tokens) {}

func (h hostStore) Add(n, from, to int) {
	x := &hostNode{}
	h.nodes[n] = x
	var err error
	if x.rows, err = h.from.rows(from, to); err != nil {
		h.fails(x, err)
		x.rows = &state.HostKV{From: from, To: to}
	}
}

// fails notes that something of a node could not be copied.
func (h hostStore) fails(x *hostNode, err error) {
	if not := (*state.NotFiniteError)(nil); !errors.As(err, &not) {
		h.failed = err
		return
	}
	if !x.refused {
		h.bad++
	}
	x.refused = true
}

func (h hostStore) Mark(n, _ int) {
	x := h.nodes[n]
	s, err := h.from.states()
	if err != nil {
		h.fails(x, err)
	}
	x.states = s
}

func (h hostStore) Split(upper, n, depth int) {
	x := h.nodes[n]
	h.nodes[upper] = &hostNode{rows: cutRows(x.rows, x.rows.From, depth), refused: x.refused}
	x.rows = cutRows(x.rows, depth, x.rows.To)
}

func (h hostStore) Join(n, child int) {
	x := h.nodes[child]
	x.rows = joinRows(h.nodes[n].rows, x.rows)
	x.refused = x.refused || h.nodes[n].refused
	delete(h.nodes, n)
}

func (h hostStore) Drop(n int) { delete(h.nodes, n) }

// cutRows are the rows of some of the tokens: a copy, so that the others can go.
func cutRows(r *state.HostKV, from, to int) *state.HostKV {
	if from == r.From && to == r.To {
		return r
	}
	out := &state.HostKV{From: from, To: to}
	for _, d := range r.Data {
		row := len(d) / (r.To - r.From)
		out.Data = append(out.Data, slices.Clone(d[(from-r.From)*row:(to-r.From)*row]))
	}
	return out
}

// joinRows are rows and those that follow.
func joinRows(r, next *state.HostKV) *state.HostKV {
	if r == nil {
		return next
	}
	out := &state.HostKV{From: r.From, To: next.To}
	for k := range min(len(r.Data), len(next.Data)) { // those that could not be copied have none
		out.Data = append(out.Data, slices.Concat(r.Data[k], next.Data[k]))
	}
	return out
}

// evicted is what the device's nodes on a path have, as a source: it is saved only where
// the host does not have it.
type evicted struct {
	*Cache
	path []int
}

func (e evicted) rows(from, to int) (rows *state.HostKV, err error) {
	for _, n := range e.path {
		r := e.nodes[n].rows
		begin, end := max(from, r.From), min(to, r.To)
		if begin >= end {
			continue
		}
		var saved *state.HostKV
		err := e.link.time(e.o.Now, e.o.HostModel.Bytes(r.To-r.From, false), func() (err error) {
			saved, err = e.engine.OffloadKV(r)
			return err
		})
		if err != nil {
			return nil, err
		}
		rows = joinRows(rows, cutRows(saved, begin, end))
	}
	return rows, nil
}

func (e evicted) states() (s *state.HostState, err error) {
	kept := e.nodes[e.path[len(e.path)-1]].states
	err = e.link.time(e.o.Now, e.o.HostModel.StateBytes, func() error {
		s, err = e.engine.OffloadState(kept)
		return err
	})
	return s, err
}

// recall lets a sequence that has found something, or nothing, on the device go on from
// what the host has of its prompt, if that is more and sooner loaded than computed. It
// reports whether it does. What is kept is then the state that was loaded, in place of
// one at a branch before it, and comes back to the device's tree when the sequence ends.
func (c *Cache) recall(q *sequence, tokens prefix.Tokens) (back bool, err error) {
	if c.host == nil {
		return false, nil
	}
	hit, marks := c.host.tree.Find(tokens)
	q.marks.Branch = max(q.marks.Branch, marks.Branch)
	q.marks = q.marks.Beyond(q.fed)
	path, had := c.passed(tokens, hit)
	if hit <= q.fed || !c.pays(q.fed, had, hit) || c.host.refused(c.host.tree.Path(tokens, hit)) {
		return false, nil
	}
	begun := c.o.Now()
	l, err := c.load(tokens, hit, path, had)
	if errors.Is(err, state.ErrNoPages) { // nodes' rows take pages of their own: it is computed
		return false, nil
	}
	if err != nil {
		c.stats.Failures++
		return false, c.host.forget()
	}
	defer l.free()
	if err := c.engine.Resume(q.slot, l.states, l.rows...); err != nil {
		return false, err
	}
	c.link.add(float64(c.o.HostModel.Bytes(hit-had, !c.stateless())), c.o.Now()-begun)
	c.host.tree.Lookup(tokens, c.o.Now())
	c.stats.HostHits++
	c.stats.HostHitTokens += int64(hit)
	q.fed = hit
	if q.marks = q.marks.Beyond(hit); q.marks.Branch == 0 && l.states != nil {
		q.marks.Branch, q.kept, l.states = hit, append(q.kept, l.states), nil
	}
	return true, nil
}

// passed lists the device's nodes of which the first tokens have all, and up to which
// token these have rows.
func (c *Cache) passed(tokens prefix.Tokens, hit int) (path []int, had int) {
	path = c.tree.Walk(tokens.Prefix(hit))
	if len(path) > 0 {
		had = c.nodes[path[len(path)-1]].rows.To
	}
	return path, had
}

// pays reports whether what the host has of so many tokens is sooner loaded than computed,
// where hit tokens need not be, and the device has rows of had. As long as nothing was
// measured it does.
func (c *Cache) pays(hit, had, tokens int) bool {
	m := &c.o.Model
	bytes := c.o.HostModel.Bytes(tokens-had, !c.stateless())
	return c.compute.amount == 0 || c.link.seconds(float64(bytes)) <= c.compute.seconds(m.FLOPs(tokens)-m.FLOPs(hit))
}

// loaded is what a sequence goes on from, of which the last rows came from the host.
type loaded struct {
	states *state.DeviceState // from the host, or nil
	rows   []*state.DeviceKV
	device int // so many of rows are the device tier's
}

// free gives back what came from the host.
func (l *loaded) free() {
	for _, r := range l.rows[l.device:] {
		r.Free()
	}
	if l.states != nil {
		l.states.Free()
	}
}

// load brings back what the host has of the first hit tokens, where nodes of the device
// have rows of the first of them.
func (c *Cache) load(tokens prefix.Tokens, hit int, device []int, at int) (*loaded, error) {
	l := &loaded{device: len(device)}
	for _, n := range device {
		l.rows = append(l.rows, c.nodes[n].rows)
	}
	path := c.host.tree.Path(tokens, hit)
	for _, n := range path {
		r := c.host.nodes[n].rows
		if r.To <= at {
			continue
		}
		k, err := c.engine.LoadKV(cutRows(r, max(at, r.From), min(hit, r.To)))
		if err != nil {
			l.free()
			return nil, err
		}
		l.rows = append(l.rows, k)
	}
	if c.stateless() {
		return l, nil
	}
	var err error
	if l.states, err = c.engine.LoadState(c.host.nodes[path[len(path)-1]].states); err != nil {
		l.free()
		return nil, err
	}
	return l, nil
}

// rate is how fast something goes, by what was seen last.
type rate struct{ amount, took float64 }

// add takes in that an amount took so many seconds; what was seen long ago fades.
func (r *rate) add(amount, seconds float64) {
	const stays = 0.9
	r.amount, r.took = stays*r.amount+amount, stays*r.took+seconds
}

// time adds what f does with so many bytes, if it does not fail.
func (r *rate) time(now func() float64, bytes int64, f func() error) error {
	begun := now()
	err := f()
	if err == nil {
		r.add(float64(bytes), now()-begun)
	}
	return err
}

// perSecond is the rate; 0 as long as nothing was seen.
func (r *rate) perSecond() float64 {
	if r.took == 0 {
		return 0
	}
	return r.amount / r.took
}

// seconds is how long an amount takes; 0 as long as nothing was seen.
func (r *rate) seconds(amount float64) float64 {
	if r.amount == 0 {
		return 0
	}
	return amount * r.took / r.amount
}

package cache

import (
	"errors"
	"slices"

	"github.com/krait-ml/krait/exec/state"
	"github.com/krait-ml/krait/session/prefix"
)

// host is the host tier: an LRU tree of nodes evicted from the device, in host memory. It has the
// KV pages from the first token on, so that it does not depend on the device's tree; nodes in both
// count in both.
type host struct {
	o      Options
	tree   *prefix.Adaptive
	nodes  map[int]*hostNode
	from   source // during an insertion
	state  int    // during an insertion: the tokens before its state; 0: it has none
	failed error  // of a store call during an insertion
	gone   int    // evictions of earlier trees
	bad    int    // refused nodes
}

// hostNode is the data of a node of the tree.
type hostNode struct {
	rows   *state.HostKV // of its edge
	states *state.HostState
	exact  bool // as that of a node on the device
	// refused is set if codecs cannot encode its data, or a part of its edge, since it is not
	// finite. It stays in the tree until it is evicted, and never hits.
	refused bool
}

// source returns the data of a node to insert.
type source interface {
	rows(from, to int) (*state.HostKV, error)
	states() (*state.HostState, error)
	// exact reports whether it has exact rows of tokens, and exact states if these are the last.
	exact(from, to int) bool
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

// take inserts tokens with the data of a source. A sequence larger than the tier is not inserted:
// it would evict all others, and then itself.
func (h *host) take(tokens prefix.Tokens, state bool, at float64, from source) error {
	if h.o.HostModel.Bytes(tokens.Len(), state) > h.o.Host {
		return nil
	}
	h.from, h.state, h.failed = from, 0, nil
	if state {
		h.state = tokens.Len()
	}
	for _, n := range h.tree.Walk(tokens) {
		h.renew(h.nodes[n])
	}
	h.tree.Insert(tokens, state, at)
	if h.from = nil; h.failed != nil {
		_ = h.forget() // as newHost did
	}
	return h.failed
}

// renew gives a node on the path of inserted tokens their rows and states, as [Cache.renew] does.
func (h *host) renew(x *hostNode) {
	if x.exact || x.refused || !h.from.exact(x.rows.From, x.rows.To) {
		return
	}
	rows, err := h.from.rows(x.rows.From, x.rows.To)
	ends := x.states != nil && x.rows.To == h.state
	if err == nil && ends {
		x.states, err = h.from.states()
	}
	if err != nil {
		h.fails(x, err)
		return
	}
	x.rows, x.exact = rows, ends || x.states == nil
}

// refused reports whether one of some nodes is refused.
func (h *host) refused(path []int) bool {
	return slices.ContainsFunc(path, func(n int) bool { return h.nodes[n].refused })
}

// states returns the number of nodes with states.
func (h *host) states() (n int) {
	for _, x := range h.nodes {
		if x.states != nil {
			n++
		}
	}
	return n
}

// hostStore is the host tier as the store of its tree.
type hostStore struct{ *host }

func (h hostStore) Evict(int, prefix.Tokens) {}

func (h hostStore) Add(n, from, to int) {
	x := &hostNode{exact: h.from.exact(from, to)}
	h.nodes[n] = x
	var err error
	if x.rows, err = h.from.rows(from, to); err != nil {
		h.fails(x, err)
		x.rows = &state.HostKV{From: from, To: to}
	}
}

// fails records that data of a node could not be copied.
func (h *host) fails(x *hostNode, err error) {
	if not := (*state.NotFiniteError)(nil); !errors.As(err, &not) {
		h.failed = err
		return
	}
	if !x.refused {
		h.bad++
	}
	x.refused = true
}

func (h hostStore) Mark(n, depth int) {
	x := h.nodes[n]
	s, err := h.from.states()
	if err != nil {
		h.fails(x, err)
	}
	x.states, x.exact = s, h.from.exact(depth, depth)
}

func (h hostStore) Split(upper, n, depth int) {
	x := h.nodes[n]
	h.nodes[upper] = &hostNode{rows: cutRows(x.rows, x.rows.From, depth), exact: x.exact, refused: x.refused}
	x.rows = cutRows(x.rows, depth, x.rows.To)
	h.renew(h.nodes[upper])
}

func (h hostStore) Join(n, child int) {
	x := h.nodes[child]
	x.rows = joinRows(h.nodes[n].rows, x.rows)
	x.refused = x.refused || h.nodes[n].refused
	delete(h.nodes, n)
}

func (h hostStore) Drop(n int) { delete(h.nodes, n) }

// cutRows copies the rows of some tokens, so that the others can be freed.
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

// joinRows concatenates rows.
func joinRows(r, next *state.HostKV) *state.HostKV {
	if r == nil {
		return next
	}
	out := &state.HostKV{From: r.From, To: next.To}
	for k := range min(len(r.Data), len(next.Data)) { // failed copies have none
		out.Data = append(out.Data, slices.Concat(r.Data[k], next.Data[k]))
	}
	return out
}

// evicted is the source of the device's nodes on a path: data is copied only if the host tier lacks
// it.
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

func (e evicted) exact(_, to int) bool {
	return e.o.Codecs == "" && slices.ContainsFunc(e.path, func(n int) bool { return e.nodes[n].exact && e.nodes[n].rows.To >= to })
}

// recall restores a sequence from the host tier, if that has a longer prefix than the device and
// loads it faster than prefill. It reports whether it did. The loaded snapshot then replaces one at
// a branch before it, and returns to the device's tree when the sequence ends.
func (c *Cache) recall(q *sequence, tokens prefix.Tokens) (back bool, err error) {
	if c.host == nil {
		return false, nil
	}
	hit, marks := c.host.tree.Find(tokens)
	q.marks.Branch = max(q.marks.Branch, marks.Branch)
	q.marks = q.marks.Beyond(q.fed)
	way := c.host.tree.Path(tokens, hit)
	exact := len(way) > 0 && c.host.nodes[way[len(way)-1]].exact
	path, had := c.passed(tokens, hit, exact)
	if hit <= q.fed || !c.pays(q.fed, had, hit) || c.host.refused(way) {
		return false, nil
	}
	begun := c.o.Now()
	l, err := c.load(tokens, hit, path, had)
	if errors.Is(err, state.ErrNoPages) { // it is prefilled instead
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
	if exact {
		q.whole = hit
	}
	if q.marks = q.marks.Beyond(hit); q.marks.Branch == 0 && l.states != nil {
		q.marks.Branch, q.kept, l.states = hit, append(q.kept, l.states), nil
	}
	return true, nil
}

// passed lists the device's nodes that a prefix passes, up to the last exact one where only these
// serve, and the tokens of their pages.
func (c *Cache) passed(tokens prefix.Tokens, hit int, exact bool) (path []int, had int) {
	path = c.tree.Walk(tokens.Prefix(hit))
	for exact && len(path) > 0 && !c.nodes[path[len(path)-1]].exact {
		path = path[:len(path)-1]
	}
	if len(path) > 0 {
		had = c.nodes[path[len(path)-1]].rows.To
	}
	return path, had
}

// pays reports whether the host tier loads the state of tokens faster than prefill computes it
// beyond a hit, if the device has the pages of had tokens. It does until speeds are measured.
func (c *Cache) pays(hit, had, tokens int) bool {
	m := &c.o.Model
	bytes := c.o.HostModel.Bytes(tokens-had, !c.stateless())
	return c.compute.amount == 0 || c.link.seconds(float64(bytes)) <= c.compute.seconds(m.FLOPs(tokens)-m.FLOPs(hit))
}

// loaded is the state of a prefix, of which the last pages came from the host.
type loaded struct {
	states *state.DeviceState // from the host, or nil
	rows   []*state.DeviceKV
	device int // the number of rows of the device's tree
}

// free releases data from the host.
func (l *loaded) free() {
	for _, r := range l.rows[l.device:] {
		r.Free()
	}
	if l.states != nil {
		l.states.Free()
	}
}

// load copies a prefix of hit tokens from the host, beyond the pages that the device's nodes have.
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

// rate is a speed, by recent measurements.
type rate struct{ amount, took float64 }

// add records the seconds of an amount; earlier measurements decay.
func (r *rate) add(amount, seconds float64) {
	const decay = 0.9
	r.amount, r.took = decay*r.amount+amount, decay*r.took+seconds
}

// time records the time of f for a number of bytes, unless it fails.
func (r *rate) time(now func() float64, bytes int64, f func() error) error {
	begun := now()
	err := f()
	if err == nil {
		r.add(float64(bytes), now()-begun)
	}
	return err
}

// perSecond returns the rate; 0 before the first measurement.
func (r *rate) perSecond() float64 {
	if r.took == 0 {
		return 0
	}
	return r.amount / r.took
}

// seconds returns the time of an amount; 0 before the first measurement.
func (r *rate) seconds(amount float64) float64 {
	if r.amount == 0 {
		return 0
	}
	return amount * r.took / r.amount
}

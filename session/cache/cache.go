// Package cache is the prefix cache of an engine: it keeps KV pages and snapshots of prefixes of
// prompts, and restores them to new sequences. Package prefix has the rules of admission and
// eviction; this is its [prefix.Store]. Each node of the tree has the KV pages of its edge's
// tokens, and possibly a snapshot of the recurrent states after them, in device memory. Sequences
// share pages and get copies of states, so that they pin nothing.
package cache

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/state"
	"github.com/krait-ml/krait/exec/state/statefile"
	"github.com/krait-ml/krait/session/prefix"
)

// Engine is what a cache asks of an engine: see [exec.Engine].
type Engine interface {
	CopyState(slot int) (*state.DeviceState, error)
	ShareKV(slot, from, to int) (*state.DeviceKV, error)
	Resume(slot int, s *state.DeviceState, rows ...*state.DeviceKV) error
	Reset(slot int) error

	OffloadState(*state.DeviceState) (*state.HostState, error)
	OffloadKV(*state.DeviceKV) (*state.HostKV, error)
	LoadState(*state.HostState) (*state.DeviceState, error)
	LoadKV(*state.HostKV) (*state.DeviceKV, error)
}

// Options configure a cache.
type Options struct {
	Model    prefix.Model     // FLOPs and bytes of tokens
	Capacity int64            // in bytes
	Policy   string           // of eviction, by its name; empty: reuse
	Host     int64            // bytes of the host tier, which holds evicted nodes; 0: none
	Folder   string           // that Close writes the host tier to; empty: none
	Origin   statefile.Origin // of the states in the folder
	// Codecs encode states and KV pages on the host, and HostModel has their bytes there; empty,
	// and the zero value: as on the device.
	Codecs    string
	HostModel prefix.Model
	Now       func() float64
	// Enough reports whether the engine has KV pages for that many more tokens. Before a load from
	// the host nodes are evicted until it does. nil: always.
	Enough func(tokens int) bool
}

// Stats count since the cache was made; Bytes and States are current.
type Stats struct {
	Requests, Hits          int   // lookups, and those that found a prefix
	PromptTokens, HitTokens int64 // of the lookups, and of their hits
	Bytes                   int64 // on the device
	States                  int   // on the device
	Evictions               int
	Alpha                   float64 // of the eviction score, 0 where it has none
	Failures                int     // failed copies; the cache is emptied then
	Refused                 int     // nodes that codecs cannot encode, since they are not finite

	HostHits                  int   // of Hits, from the host tier
	HostHitTokens             int64 // of HitTokens
	HostBytes                 int64 // in the host tier
	HostStates, HostEvictions int
	LinkRate, ComputeRate     float64 // measured: bytes/s of copies, FLOP/s of prefill
}

// Cache is a prefix cache. Its methods may be called from several goroutines.
type Cache struct {
	engine Engine
	o      Options

	mu      sync.Mutex
	closed  bool
	tree    *prefix.Adaptive
	nodes   map[int]*node
	begun   map[int]*sequence // by slot
	admits  *sequence         // during Admit of the tree
	failed  error             // of a store call during Admit
	stats   Stats
	evicted int // from earlier trees

	host          *host   // nil: none
	folder        *folder // nil: none
	link, compute rate    // of copies, in bytes; of prefill, in FLOPs
}

// node is the data of a node of the tree.
type node struct {
	rows   *state.DeviceKV // of its edge; nil: a copy failed, and the cache is about to be emptied
	states *state.DeviceState
	exact  bool // all rows up to its end are exact, and its states
	hits   int  // of the node, and of those below
}

// free releases the data of a node.
func (n *node) free() {
	if n.rows != nil {
		n.rows.Free()
	}
	if n.states != nil {
		n.states.Free()
	}
}

// sequence is an active sequence, with its snapshots until it is admitted.
type sequence struct {
	slot   int
	salt   string
	prompt int // tokens
	fed    int // tokens of its state
	whole  int // the first of these, prefilled in whole blocks: their rows and states are exact, see [Cache.renew]
	marks  prefix.Marks
	kept   []*state.DeviceState // at marks, and one after the prompt at most
}

// New makes an empty cache.
func New(e Engine, o Options) (*Cache, error) {
	c := &Cache{engine: e, o: o, begun: map[int]*sequence{}}
	c.o.Policy = cmp.Or(o.Policy, prefix.Default)
	if o.HostModel == (prefix.Model{}) {
		c.o.HostModel = o.Model
	}
	var err error
	if c.tree, c.nodes, err = c.empty(); err != nil {
		return nil, err
	}
	if o.Folder != "" { // of the size of the host tier
		c.o.Host = cmp.Or(o.Host, o.Capacity)
	}
	if c.o.Host != 0 {
		if c.host, err = newHost(c.o); err != nil {
			return nil, fmt.Errorf("host tier: %w", err)
		}
	}
	if o.Folder != "" {
		if c.folder, err = newFolder(o.Folder, o.Origin, o.Codecs); err == nil {
			err = c.folder.read(c.host)
		}
		if err != nil {
			return nil, fmt.Errorf("folder: %w", err)
		}
	}
	return c, nil
}

// Warnings lists files of the folder that cannot be used.
func (c *Cache) Warnings() []string {
	if c.folder == nil {
		return nil
	}
	return c.folder.warnings
}

// empty makes an empty tree and its nodes.
func (c *Cache) empty() (*prefix.Adaptive, map[int]*node, error) {
	t, err := prefix.NewAdaptive(c.o.Policy, c.o.Model, c.o.Capacity, store{c})
	return t, map[int]*node{}, err
}

// forget empties the cache and resets α.
func (c *Cache) forget() {
	c.evicted += c.tree.Evictions()
	for _, n := range c.nodes {
		n.free()
	}
	c.tree, c.nodes, _ = c.empty() // as New did
}

// Close writes the cache to the folder, if there is one, and empties it. Later sequences find and
// leave nothing.
func (c *Cache) Close() (err error) {
	c.mu.Lock()
	if !c.closed {
		c.stats = c.now()
		for _, q := range c.begun {
			c.leave(q)
		}
		if c.folder != nil {
			err = c.write()
		}
		c.forget()
		c.host, c.closed = nil, true
	}
	c.mu.Unlock()
	return err
}

// write copies all nodes to the host tier, the least recent first, and that to the folder.
func (c *Cache) write() error {
	for _, x := range c.tree.Entries() {
		if !x.State && !c.stateless() {
			continue // its pages are part of those of the nodes below
		}
		from := evicted{c, c.tree.Path(x.Tokens, x.Tokens.Len())}
		if err := c.host.take(x.Tokens, x.State, x.Time, from); err != nil {
			return err
		}
	}
	return c.folder.write(c.host)
}

// Stats returns the counts.
func (c *Cache) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now()
}

// now returns current counts.
func (c *Cache) now() Stats {
	s := c.stats
	if c.closed {
		s.Bytes, s.States, s.HostBytes, s.HostStates = 0, 0, 0, 0
		return s
	}
	s.Bytes, s.Evictions = c.tree.Bytes(), c.evicted+c.tree.Evictions()
	s.Alpha, _ = c.tree.Alpha()
	for _, n := range c.nodes {
		if n.states != nil {
			s.States++
		}
	}
	if h := c.host; h != nil {
		s.HostBytes, s.HostStates, s.HostEvictions, s.Refused = h.tree.Bytes(), h.states(), h.gone+h.tree.Evictions(), h.bad
	}
	s.LinkRate, s.ComputeRate = c.link.perSecond(), c.compute.perSecond()
	return s
}

// tokensOf converts ids to salted tokens of a tree.
func tokensOf[T int | int32](salt string, ids []T) prefix.Tokens {
	var b prefix.Builder
	for _, id := range ids {
		b.Append(int32(id), 1)
	}
	return b.Tokens().Salted(salt)
}

// Begin restores the longest cached prefix of a prompt with its salt to a slot: hit tokens need not
// be fed. If mark is not 0, [Cache.Keep] must be called when the sequence has mark tokens.
// Breakpoints and ends of messages add marks: see [prefix.Model.At]. After an error the slot must
// be freed.
func (c *Cache) Begin(slot int, salt string, prompt, breakpoints, messages []int) (hit, mark int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Requests++
	c.stats.PromptTokens += int64(len(prompt))
	if len(prompt) > prefix.MaxTokens || c.closed {
		return 0, 0, nil
	}
	if c.host != nil && c.o.Enough != nil {
		c.shrink(func() bool { return c.o.Enough(len(prompt)) })
	}
	tokens, q := tokensOf(salt, prompt), &sequence{slot: slot, salt: salt, prompt: len(prompt)}
	q.fed, q.marks = c.tree.Lookup(tokens, c.o.Now())
	q.marks = c.o.Model.At(q.marks, prefix.Hints{Breakpoints: breakpoints, Messages: messages}, q.fed, len(prompt))
	back, err := c.recall(q, tokens)
	if err == nil && !back && q.fed > 0 {
		err = c.put(q, tokens)
	}
	if err != nil { // it may be restored in part
		if !errors.Is(err, state.ErrNoPages) {
			c.stats.Failures++
			c.forget()
		}
		q.fed, q.whole, q.marks = 0, 0, prefix.Marks{}
		if err := c.engine.Reset(slot); err != nil {
			return 0, 0, err
		}
	}
	if q.fed > 0 {
		c.stats.Hits++
		c.stats.HitTokens += int64(q.fed)
	}
	c.begun[slot] = q
	return q.fed, q.marks.Next(q.fed), nil
}

// Rows returns the KV pages of the longest cached prefix, with a salt, of a prompt without its last
// token, in order. The caller frees them; they stay valid if the cache evicts the prefix.
func (c *Cache) Rows(salt string, prompt []int) (list []*state.DeviceKV) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(prompt) < 2 || len(prompt) > prefix.MaxTokens || c.closed || c.o.Model.CacheBytes == 0 {
		return nil
	}
	tokens := tokensOf(salt, prompt[:len(prompt)-1])
	depth := c.tree.Matched(tokens)
	for _, n := range c.tree.Path(tokens, depth) {
		rows := c.nodes[n].rows
		list = append(list, rows.Prefix(min(rows.To, depth)))
	}
	return list
}

// Given is [Cache.Begin] for a sequence that already has the state of fed tokens, or that must
// prefill all of them.
func (c *Cache) Given(slot int, salt string, prompt, breakpoints, messages []int, fed int) (mark int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Requests++
	c.stats.PromptTokens += int64(len(prompt))
	if len(prompt) > prefix.MaxTokens || c.closed {
		return 0
	}
	q := &sequence{slot: slot, salt: salt, prompt: len(prompt), fed: fed}
	_, q.marks = c.tree.Find(tokensOf(salt, prompt))
	q.marks = c.o.Model.At(q.marks, prefix.Hints{Breakpoints: breakpoints, Messages: messages}, fed, len(prompt))
	c.begun[slot] = q
	return q.marks.Next(fed)
}

// put restores the nodes on the path to the hit of a sequence to its slot. Without recurrent states
// the hit may end inside an edge, whose pages are split for the call.
func (c *Cache) put(q *sequence, tokens prefix.Tokens) error {
	hit := q.fed
	path := c.tree.Path(tokens, hit)
	rows := make([]*state.DeviceKV, len(path))
	for i, n := range path {
		rows[i] = c.nodes[n].rows
		c.nodes[n].hits++
	}
	last := c.nodes[path[len(path)-1]]
	if last.exact {
		q.whole = hit
	}
	if c.stateless() {
		if last.rows.To > hit {
			before, rest := last.rows.Split(hit)
			rows[len(rows)-1] = before
			defer func() { last.rows = before.Join(rest) }()
		}
		return c.engine.Resume(q.slot, nil, rows...)
	}
	return c.engine.Resume(q.slot, last.states, rows...)
}

// stateless reports whether the model has a KV cache only.
func (c *Cache) stateless() bool { return c.o.Model.StateBytes == 0 }

// Keep takes a snapshot of a sequence, and returns its next mark, or 0. A snapshot after the prompt
// replaces the last one; [Cache.End] may be given that many tokens.
func (c *Cache) Keep(slot int) (mark int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	q := c.begun[slot]
	if q == nil || c.stateless() {
		return 0
	}
	s := c.keep(q)
	if s == nil {
		return 0
	}
	return q.marks.Next(s.Tokens)
}

// keep takes a snapshot of a sequence, or forgets the sequence if that fails.
func (c *Cache) keep(q *sequence) *state.DeviceState {
	q.drop(func(s *state.DeviceState) bool { return s.Tokens >= q.prompt }) // to have few at a time
	s, err := c.engine.CopyState(q.slot)
	if err != nil {
		c.stats.Failures++
		c.leave(q)
		return nil
	}
	q.kept = append(q.kept, s)
	return s
}

// at returns the snapshot after a number of tokens, or nil.
func (q *sequence) at(tokens int) *state.DeviceState {
	for _, s := range q.kept {
		if s.Tokens == tokens {
			return s
		}
	}
	return nil
}

// take removes the snapshot after a number of tokens, and returns it, or nil.
func (q *sequence) take(tokens int) *state.DeviceState {
	s := q.at(tokens)
	q.kept = slices.DeleteFunc(q.kept, func(x *state.DeviceState) bool { return x == s })
	return s
}

// drop frees the snapshots that f selects.
func (q *sequence) drop(f func(*state.DeviceState) bool) {
	q.kept = slices.DeleteFunc(q.kept, func(s *state.DeviceState) bool {
		if f(s) {
			s.Free()
			return true
		}
		return false
	})
}

// leastMeasured is the number of prompt tokens in a step from which on prefill speed is measured.
const leastMeasured = 32

// Ran records the seconds of a step. Settled counts the tokens of trials.
func (c *Cache) Ran(b *exec.Batch, seconds float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	flops, longest := 0.0, 0
	for _, s := range b.Sequences {
		if q := c.begun[s.Slot]; q != nil && !s.Trial {
			n := len(s.Tokens)
			flops += c.o.Model.FLOPs(q.fed+n) - c.o.Model.FLOPs(q.fed)
			longest = max(longest, n)
			if q.whole == q.fed && q.fed%prefix.Grain == 0 {
				q.whole += n - n%prefix.Grain
			}
			q.fed += n
		}
	}
	if longest >= leastMeasured {
		c.compute.add(flops, seconds)
	}
}

// Settled records the tokens of trials that sequences keep.
func (c *Cache) Settled(kept []exec.Kept) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range kept {
		if q := c.begun[k.Slot]; q != nil {
			q.fed += k.Tokens
		}
	}
}

// leave forgets a sequence and its snapshots.
func (c *Cache) leave(q *sequence) {
	q.drop(func(*state.DeviceState) bool { return true })
	delete(c.begun, q.slot)
}

// End admits a sequence that has ended, before its slot is freed: tokens are all that it was fed,
// or the first of them, after which Keep was last called. With wasted it is not admitted.
func (c *Cache) End(slot int, tokens []int, wasted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	q := c.begun[slot]
	if q == nil {
		return
	}
	if wasted || len(tokens) > prefix.MaxTokens {
		c.leave(q)
		return
	}
	if !c.stateless() && q.at(len(tokens)) == nil {
		c.keep(q)
	}
	if c.begun[slot] != nil { // keep did not fail
		c.admit(q, tokensOf(q.salt, tokens))
		c.leave(q)
	}
}

// admit adds a sequence that has ended to the tree.
func (c *Cache) admit(q *sequence, tokens prefix.Tokens) {
	c.admits, c.failed = q, nil
	for _, n := range c.tree.Walk(tokens) {
		c.renew(c.nodes[n])
	}
	c.tree.Admit(prefix.Request{At: c.o.Now(), Tokens: tokens, InputLen: q.prompt}, q.marks)
	if c.admits = nil; c.failed != nil {
		c.stats.Failures++
		c.forget()
	}
}

// renew gives a node on the path of the admitted sequence that sequence's rows and states, if these
// are exact and the node's are not. Exact ones were prefilled in whole blocks, so that every prompt
// with these blocks has the same bits. Where another sequence ended inside of a block, or decoded
// its tokens, its rows may have others, and must not serve the exact states of longer prefixes.
func (c *Cache) renew(n *node) {
	q := c.admits
	if n.exact || n.rows.To > q.whole {
		return
	}
	rows, err := c.engine.ShareKV(q.slot, n.rows.From, n.rows.To)
	if err != nil {
		c.failed = err
		return
	}
	n.rows.Free()
	n.rows = rows
	if n.states != nil {
		s := q.take(rows.To)
		if s == nil {
			return
		}
		n.states.Free()
		n.states = s
	}
	n.exact = true
}

// Shrink evicts nodes until enough returns true or the cache is empty. It reports whether it
// evicted any.
func (c *Cache) Shrink(enough func() bool) (some bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.closed && c.shrink(enough)
}

func (c *Cache) shrink(enough func() bool) (some bool) {
	for !enough() && c.tree.Shrink() {
		some = true
	}
	return some
}

// store is the cache as the store of its tree.
type store struct{ *Cache }

func (c store) Evict(n int, tokens prefix.Tokens) {
	if c.host == nil || c.failed != nil {
		return
	}
	from := evicted{c.Cache, c.tree.Path(tokens, tokens.Len())}
	if err := c.host.take(tokens, c.nodes[n].states != nil, c.o.Now(), from); err != nil {
		c.stats.Failures++
	}
}

func (c store) Add(n, from, to int) {
	rows, err := c.engine.ShareKV(c.admits.slot, from, to)
	if err != nil {
		c.failed, rows = err, nil
	}
	c.nodes[n] = &node{rows: rows, exact: to <= c.admits.whole}
}

func (c store) Mark(n, depth int) {
	x := c.nodes[n]
	if x.states = c.admits.take(depth); x.states == nil {
		panic(fmt.Sprintf("BUG: a snapshot after %d tokens is admitted, and was not taken", depth))
	}
	x.exact = depth <= c.admits.whole
}

func (c store) Split(upper, n, depth int) {
	c.nodes[upper] = &node{hits: c.nodes[n].hits, exact: c.nodes[n].exact}
	if r := c.nodes[n].rows; r != nil {
		c.nodes[upper].rows, c.nodes[n].rows = r.Split(depth)
		c.renew(c.nodes[upper])
	}
}

func (c store) Join(n, child int) {
	upper, lower := c.nodes[n], c.nodes[child]
	if upper.rows != nil && lower.rows != nil {
		lower.rows, upper.rows = upper.rows.Join(lower.rows), nil
	}
	upper.free()
	delete(c.nodes, n)
}

func (c store) Drop(n int) {
	c.nodes[n].free()
	delete(c.nodes, n)
}

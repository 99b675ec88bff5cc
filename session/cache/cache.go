// Package cache keeps what an engine computed for the beginnings of prompts, and lets new
// sequences go on from there. Which beginnings are kept, and what goes when memory is
// short, are the rules of package prefix; this is their [prefix.Store]: each node has the
// rows that attention's caches have of its edge's tokens, and maybe the states after them,
// in the memory of the engine's device. Sequences share the rows and get copies of states, so
// that they pin nothing.
package cache

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
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

// Options say what is kept.
type Options struct {
	Model    prefix.Model     // what tokens cost, and the bytes that the engine keeps of them
	Capacity int64            // in bytes
	Policy   string           // by which nodes are evicted: lru, flop:α, retuned or tuned, which is the default
	Host     int64            // bytes of the host's memory for what is evicted; 0: it is forgotten
	Folder   string           // in which what the host's memory has outlives the cache; empty: none
	Origin   statefile.Origin // of what is there
	// Codecs is what the engine puts states and rows into for the host, and HostModel the bytes
	// that they take there; empty, and the zero value: they are as on the device.
	Codecs    string
	HostModel prefix.Model
	Now       func() float64
	// Enough is asked whether the engine has room for the rows of so many tokens more, before some may
	// come from the host: what is kept gives way until it has. nil: it has.
	Enough func(tokens int) bool
}

// Stats count since the cache was made, but for Bytes and States, which are there now.
type Stats struct {
	Requests, Hits          int   // that were looked up, and that found something
	PromptTokens, HitTokens int64 // of these, and those that were not computed again
	Bytes                   int64 // held
	States                  int   // held
	Evictions               int
	Alpha                   float64 // of the score by which nodes are evicted
	Failures                int     // copies that failed; all is forgotten then
	Refused                 int     // of nodes that the codecs do not take, since they are not finite

	HostHits                  int   // of Hits, those that the host's memory had
	HostHitTokens             int64 // of HitTokens, those of these hits
	HostBytes                 int64 // held
	HostStates, HostEvictions int
	LinkRate, ComputeRate     float64 // measured: bytes per second of copies, FLOPs per second of prompts
}

// Cache keeps beginnings of prompts. Its methods may be called from several goroutines.
type Cache struct {
	engine Engine
	o      Options

	mu      sync.Mutex
	closed  bool
	tree    *prefix.Adaptive
	nodes   map[int]*node
	begun   map[int]*sequence // by slot
	admits  *sequence         // while the tree calls
	failed  error             // in such a call
	stats   Stats
	evicted int // from trees that were forgotten
	trials  trials

	host          *host   // nil: there is none
	folder        *folder // nil: there is none
	link, compute rate    // of copies, in bytes; of prompts, in FLOPs
}

// node is what a node of the tree stands for.
type node struct {
	rows   *state.DeviceKV // of its edge; nil: they could not be kept, and all is about to be forgotten
	states *state.DeviceState
	hits   int // sequences that went on from what is here, or below
}

// free gives back what a node has.
func (n *node) free() {
	if n.rows != nil {
		n.rows.Free()
	}
	if n.states != nil {
		n.states.Free()
	}
}

// sequence is one under way: what it keeps of its states until it is admitted.
type sequence struct {
	slot   int
	salt   string
	prompt int // tokens
	fed    int // tokens that it has
	marks  prefix.Marks
	kept   []*state.DeviceState // at marks, and one after the prompt at most
}

// New makes an empty cache.
func New(e Engine, o Options) (*Cache, error) {
	c := &Cache{engine: e, o: o, begun: map[int]*sequence{}, trials: trials{yield: runtime.Gosched}}
	c.o.Policy = cmp.Or(o.Policy, "tuned")
	if o.HostModel == (prefix.Model{}) {
		c.o.HostModel = o.Model
	}
	var err error
	if c.tree, c.nodes, err = c.empty(); err != nil {
		return nil, err
	}
	if o.Folder != "" { // it holds as much as the host's memory
		c.o.Host = cmp.Or(o.Host, o.Capacity)
	}
	if c.o.Host != 0 {
		if c.host, err = newHost(c.o); err != nil {
			return nil, fmt.Errorf("in the host's memory: %w", err)
		}
	}
	if o.Folder != "" {
		if c.folder, err = newFolder(o.Folder, o.Origin, o.Codecs); err == nil {
			err = c.folder.read(c.host)
		}
		if err != nil {
			return nil, fmt.Errorf("in the folder: %w", err)
		}
	}
	return c, nil
}

// Warnings says what of the folder cannot be used.
func (c *Cache) Warnings() []string {
	if c.folder == nil {
		return nil
	}
	return c.folder.warnings
}

// empty makes a tree, and what its nodes stand for.
func (c *Cache) empty() (*prefix.Adaptive, map[int]*node, error) {
	t, err := prefix.NewAdaptive(c.o.Policy, c.o.Model, c.o.Capacity, store{c})
	return t, map[int]*node{}, err
}

// forget empties the cache, which then chooses its α anew.
func (c *Cache) forget() {
	c.trials.stop()
	c.evicted += c.tree.Evictions()
	for _, n := range c.nodes {
		n.free()
	}
	c.tree, c.nodes, _ = c.empty() // as New did
}

// Close frees all that is held, after writing it to the folder, if there is one. Sequences
// that begin later find nothing, and leave nothing.
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
	c.trials.live.Wait()
	return err
}

// write brings all to the host's memory, the least recent first, and that to the folder.
func (c *Cache) write() error {
	for _, x := range c.tree.Held() {
		if !x.State && !c.stateless() {
			continue // its rows come with those of what is below it
		}
		from := evicted{c, c.tree.Path(x.Tokens, x.Tokens.Len())}
		if err := c.host.take(x.Tokens, x.State, x.Time, from); err != nil {
			return err
		}
	}
	return c.folder.write(c.host)
}

// Stats counts.
func (c *Cache) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now()
}

// now is what is counted and held now.
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

// tokensOf are ids of who has a salt, as a tree has them.
func tokensOf[T int | int32](salt string, ids []T) prefix.Tokens {
	var b prefix.Builder
	for _, id := range ids {
		b.Append(int32(id), 1)
	}
	return b.Tokens().Salted(salt)
}

// Begin restores the longest prefix of a prompt that the cache has for its salt: hit tokens need
// not be fed. Where mark is not 0, [Cache.Keep] must be called when the sequence has had so many
// tokens. An error leaves a slot that must be freed.
func (c *Cache) Begin(slot int, salt string, prompt []int) (hit, mark int, err error) {
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
	back, err := c.recall(q, tokens)
	if err == nil && !back && q.fed > 0 {
		err = c.put(slot, tokens, q.fed)
	}
	if err != nil { // half of it may be there
		if !errors.Is(err, state.ErrNoPages) {
			c.stats.Failures++
			c.forget()
		}
		q.fed, q.marks = 0, prefix.Marks{}
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

// Rows are those that are kept, for a salt, of the longest beginning of a prompt without its last token, in
// order, for who brings the rest from elsewhere. Whoever gets them frees them; what is evicted
// meanwhile stays with them.
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

// Given is [Cache.Begin] for a sequence that has the first fed tokens of its prompt from elsewhere,
// or prefills all of them whatever is kept here.
func (c *Cache) Given(slot int, salt string, prompt []int, fed int) (mark int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Requests++
	c.stats.PromptTokens += int64(len(prompt))
	if len(prompt) > prefix.MaxTokens || c.closed {
		return 0
	}
	q := &sequence{slot: slot, salt: salt, prompt: len(prompt), fed: fed}
	_, q.marks = c.tree.Find(tokensOf(salt, prompt))
	q.marks = q.marks.Beyond(fed)
	c.begun[slot] = q
	return q.marks.Next(fed)
}

// put copies what the nodes on the way to a hit have to a slot. Attention only, it may end
// inside an edge, of which the rest is then laid aside.
func (c *Cache) put(slot int, tokens prefix.Tokens, hit int) error {
	path := c.tree.Path(tokens, hit)
	rows := make([]*state.DeviceKV, len(path))
	for i, n := range path {
		rows[i] = c.nodes[n].rows
		c.nodes[n].hits++
	}
	last := c.nodes[path[len(path)-1]]
	if c.stateless() {
		if last.rows.To > hit {
			before, rest := last.rows.Split(hit)
			rows[len(rows)-1] = before
			defer func() { last.rows = before.Join(rest) }()
		}
		return c.engine.Resume(slot, nil, rows...)
	}
	return c.engine.Resume(slot, last.states, rows...)
}

// stateless reports whether the model keeps attention's caches only.
func (c *Cache) stateless() bool { return c.o.Model.StateBytes == 0 }

// Keep copies the states of a sequence, and returns its next mark, or 0. After the prompt they
// replace those of the last such call: [Cache.End] may be given so many tokens only.
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

// keep copies the states of a sequence as they are. Where that fails the sequence is forgotten.
func (c *Cache) keep(q *sequence) *state.DeviceState {
	q.drop(func(s *state.DeviceState) bool { return s.Tokens >= q.prompt }) // so that there are few at a time
	s, err := c.engine.CopyState(q.slot)
	if err != nil {
		c.stats.Failures++
		c.leave(q)
		return nil
	}
	q.kept = append(q.kept, s)
	return s
}

// at returns the states that a sequence kept after so many tokens, or nil.
func (q *sequence) at(tokens int) *state.DeviceState {
	for _, s := range q.kept {
		if s.Tokens == tokens {
			return s
		}
	}
	return nil
}

// drop frees those of the kept states that f selects.
func (q *sequence) drop(f func(*state.DeviceState) bool) {
	q.kept = slices.DeleteFunc(q.kept, func(s *state.DeviceState) bool {
		if f(s) {
			s.Free()
			return true
		}
		return false
	})
}

// leastMeasured tokens of a prompt in a step are enough to say how fast prompts are read.
const leastMeasured = 32

// Ran says that a step of a batch took so many seconds.
func (c *Cache) Ran(b *exec.Batch, seconds float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	flops, longest := 0.0, 0
	for _, s := range b.Sequences {
		if q := c.begun[s.Slot]; q != nil {
			n := len(s.Tokens)
			flops += c.o.Model.FLOPs(q.fed+n) - c.o.Model.FLOPs(q.fed)
			longest = max(longest, n)
			q.fed += n
		}
	}
	if longest >= leastMeasured {
		c.compute.add(flops, seconds)
	}
}

// leave forgets a sequence, with what it kept for itself.
func (c *Cache) leave(q *sequence) {
	q.drop(func(*state.DeviceState) bool { return true })
	delete(c.begun, q.slot)
}

// End takes in a sequence that has ended, before its slot is freed: tokens are all that it was fed,
// or the first of them, after which the last Keep was called. With wasted, nothing of it is kept.
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
	if c.begun[slot] != nil { // or else that failed
		c.admit(q, tokensOf(q.salt, tokens))
		c.leave(q)
	}
}

// admit takes in a sequence that has ended.
func (c *Cache) admit(q *sequence, tokens prefix.Tokens) {
	c.admits, c.failed = q, nil
	trial := c.tree.Admit(prefix.Request{At: c.o.Now(), Tokens: tokens, InputLen: q.prompt}, q.marks)
	switch c.admits = nil; {
	case c.failed != nil:
		c.stats.Failures++
		c.forget()
	case trial != nil:
		c.try(trial)
	}
}

// Shrink lets go what would be evicted next, until enough says that there is enough memory for what
// is under way, or nothing is held. It reports whether something was.
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

// store is the cache as the tree tells it what happens.
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
	c.nodes[n] = &node{rows: rows}
}

func (c store) Mark(n, depth int) {
	q := c.admits
	if i := slices.IndexFunc(q.kept, func(s *state.DeviceState) bool { return s.Tokens == depth }); i >= 0 {
		c.nodes[n].states = q.kept[i]
		q.kept = slices.Delete(q.kept, i, i+1)
		return
	}
	panic(fmt.Sprintf("BUG: a state after %d tokens is to be kept, and was not taken", depth))
}

func (c store) Split(upper, n, depth int) {
	c.nodes[upper] = &node{hits: c.nodes[n].hits}
	if r := c.nodes[n].rows; r != nil {
		c.nodes[upper].rows, c.nodes[n].rows = r.Split(depth)
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

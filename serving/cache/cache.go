// Package cache keeps what an engine computed for the beginnings of prompts, and lets new
// sequences go on from there. Which beginnings are kept, and what goes when memory is
// short, are the rules of package prefix; this is their [prefix.Store]: each node has the
// rows that attention's caches have of its edge's tokens, and maybe the states after them,
// copied out of the engine. Sequences get copies, so that they pin nothing.
package cache

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/serving/prefix"
)

// Engine is what a cache asks of an engine: see [exec.Engine].
type Engine interface {
	KeepStates(slot int) (*exec.KeptStates, error)
	KeepRows(slot, from, to int) (*exec.KeptRows, error)
	Put(slot int, s *exec.KeptStates, rows ...*exec.KeptRows) error
}

// Options say what is kept.
type Options struct {
	Model    prefix.Model // what tokens cost, and the bytes that the engine keeps of them
	Capacity int64        // in bytes
	Alpha    float64      // of the score by which nodes are evicted; 0: the least recent goes
	Now      func() float64
}

// Stats count since the cache was made, but for Bytes and States, which are there now.
type Stats struct {
	Requests, Hits          int   // that were looked up, and that found something
	PromptTokens, HitTokens int64 // of these, and those that were not computed again
	Bytes                   int64 // held
	States                  int   // held
	Evictions               int
	Failures                int // copies that failed; all is forgotten then
}

// Cache keeps beginnings of prompts. Its methods may be called from several goroutines.
type Cache struct {
	engine Engine
	o      Options

	mu      sync.Mutex
	tree    *prefix.Tree
	nodes   map[int]*node
	begun   map[int]*sequence // by slot
	admits  *sequence         // while the tree calls
	failed  error             // in such a call
	stats   Stats
	evicted int // from trees that were forgotten
}

// node is what a node of the tree stands for.
type node struct {
	rows   *exec.KeptRows // of its edge
	states *exec.KeptStates
}

// free gives back what a node has.
func (n *node) free() {
	n.rows.Free()
	if n.states != nil {
		n.states.Free()
	}
}

// sequence is one under way: what it keeps of its states until it is admitted.
type sequence struct {
	slot   int
	branch int // after how many tokens states are to be kept; 0: nowhere
	kept   []*exec.KeptStates
}

// New makes an empty cache.
func New(e Engine, o Options) (*Cache, error) {
	if err := o.Model.Check(); err != nil {
		return nil, err
	}
	if o.Model.StateBytes == 0 {
		return nil, errors.New("the model has no states but attention's caches; what these have of a prefix cannot be kept yet")
	}
	if o.Capacity < 1 || o.Capacity > prefix.MostBytes {
		return nil, fmt.Errorf("a capacity of %d bytes: it is from 1 to %d", o.Capacity, int64(prefix.MostBytes))
	}
	c := &Cache{engine: e, o: o, begun: map[int]*sequence{}}
	c.forget()
	return c, nil
}

// forget empties the cache.
func (c *Cache) forget() {
	if c.tree != nil {
		c.evicted += c.tree.Evictions()
	}
	for _, n := range c.nodes {
		n.free()
	}
	c.tree, c.nodes = prefix.NewTreeOf(c.o.Model, c.o.Capacity, c.o.Alpha, store{c}), map[int]*node{}
}

// Stats counts.
func (c *Cache) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Bytes, s.Evictions = c.tree.Bytes(), c.evicted+c.tree.Evictions()
	for _, n := range c.nodes {
		if n.states != nil {
			s.States++
		}
	}
	return s
}

// tokensOf are ids as a tree has them.
func tokensOf(ids []int) prefix.Tokens {
	var b prefix.Builder
	for _, id := range ids {
		b.Append(int32(id), 1)
	}
	return b.Tokens()
}

// Begin lets a new sequence go on from the longest beginning of its prompt that is kept,
// if any: hit tokens need not be fed. Where branch is not 0, Keep must be called when
// it has had so many. An error leaves a slot that must be freed.
func (c *Cache) Begin(slot int, prompt []int) (hit, branch int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Requests++
	c.stats.PromptTokens += int64(len(prompt))
	if len(prompt) > prefix.MaxTokens {
		return 0, 0, nil
	}
	tokens := tokensOf(prompt)
	hit, branch = c.tree.Lookup(tokens, c.o.Now())
	if hit > 0 {
		if err := c.put(slot, c.tree.Path(tokens, hit)); err != nil {
			return 0, 0, err
		}
		c.stats.Hits++
		c.stats.HitTokens += int64(hit)
	}
	c.begun[slot] = &sequence{slot: slot, branch: branch}
	return hit, branch, nil
}

// put copies what the nodes of a path have to a slot.
func (c *Cache) put(slot int, path []int) error {
	rows := make([]*exec.KeptRows, len(path))
	for i, n := range path {
		rows[i] = c.nodes[n].rows
	}
	return c.engine.Put(slot, c.nodes[path[len(path)-1]].states, rows...)
}

// Keep copies the states of a sequence that has come to its branch.
func (c *Cache) Keep(slot int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if q := c.begun[slot]; q != nil {
		c.keep(q)
	}
}

// keep copies the states of a sequence as they are.
func (c *Cache) keep(q *sequence) {
	s, err := c.engine.KeepStates(q.slot)
	if err != nil {
		c.stats.Failures++
		c.leave(q)
		return
	}
	q.kept = append(q.kept, s)
}

// leave forgets a sequence, with what it kept for itself.
func (c *Cache) leave(q *sequence) {
	for _, s := range q.kept {
		s.Free()
	}
	delete(c.begun, q.slot)
}

// End takes in a sequence that has ended, before its slot is freed: tokens are all that
// it was fed. With wasted, nothing of it is kept.
func (c *Cache) End(slot int, tokens []int, wasted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	q := c.begun[slot]
	if q == nil {
		return
	}
	if !wasted && len(tokens) <= prefix.MaxTokens {
		c.keep(q)
	}
	if c.begun[slot] == nil {
		return // it failed
	}
	defer c.leave(q)
	if wasted || len(tokens) > prefix.MaxTokens {
		return
	}
	c.admits, c.failed = q, nil
	c.tree.Admit(tokensOf(tokens), q.branch, c.o.Now())
	if c.admits = nil; c.failed != nil {
		c.stats.Failures++
		c.forget()
	}
}

// store is the cache as the tree tells it what happens.
type store struct{ *Cache }

func (c store) Add(n, from, to int) {
	rows, err := c.engine.KeepRows(c.admits.slot, from, to)
	if err != nil {
		c.failed = err
		rows = &exec.KeptRows{From: from, To: to}
	}
	c.nodes[n] = &node{rows: rows}
}

func (c store) Mark(n, depth int) {
	q := c.admits
	if i := slices.IndexFunc(q.kept, func(s *exec.KeptStates) bool { return s.Tokens == depth }); i >= 0 {
		c.nodes[n].states = q.kept[i]
		q.kept = slices.Delete(q.kept, i, i+1)
		return
	}
	panic(fmt.Sprintf("BUG: a state after %d tokens is to be kept, and was not taken", depth))
}

func (c store) Split(upper, n, depth int) {
	before, rest := c.nodes[n].rows.Split(depth)
	c.nodes[upper], c.nodes[n].rows = &node{rows: before}, rest
}

func (c store) Join(n, child int) {
	upper, lower := c.nodes[n], c.nodes[child]
	lower.rows = upper.rows.Join(lower.rows)
	if upper.states != nil {
		upper.states.Free()
	}
	delete(c.nodes, n)
}

func (c store) Drop(n int) {
	c.nodes[n].free()
	delete(c.nodes, n)
}

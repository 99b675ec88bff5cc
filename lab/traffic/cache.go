package traffic

import (
	"fmt"
	"hash/maphash"
	"strconv"

	"github.com/krait-ml/krait/internal/balance"
	"github.com/krait-ml/krait/session/prefix"
)

// cache is a server's prefix cache: the tree decides, and nothing is stored.
type cache struct {
	x    *server
	tree *prefix.Adaptive
	open map[int]*cached // by slot
	hits int64
}

// cached is a sequence.
type cached struct {
	of    *prefix.Request
	at    int // tokens at which Keep is called next
	marks prefix.Marks
}

func newCache(x *server) (*cache, error) {
	tree, err := prefix.NewAdaptive(x.Policy, x.Model, x.Capacity, nil)
	return &cache{x: x, tree: tree, open: map[int]*cached{}}, err
}

// now returns the time for the tree.
func (c *cache) now() float64 { return c.x.s.now.Seconds() }

// of returns the request of a salt.
func (c *cache) of(salt string) *prefix.Request {
	i, err := strconv.Atoi(salt)
	if err != nil {
		panic(fmt.Sprintf("BUG: salt %q", salt))
	}
	return &c.x.s.Trace[i]
}

func (c *cache) Begin(slot int, salt string, prompt, _, _ []int) (hit, mark int, err error) {
	q := &cached{of: c.of(salt)}
	hit, q.marks = c.tree.Lookup(q.of.Tokens.Prefix(len(prompt)), c.now())
	q.at = q.marks.Next(hit)
	c.open[slot], *c.x.of(slot) = q, hit
	c.hits += int64(hit)
	return hit, q.at, nil
}

func (c *cache) Given(slot int, salt string, prompt, _, _ []int, fed int) (mark int) {
	q := &cached{of: c.of(salt)}
	_, q.marks = c.tree.Find(q.of.Tokens.Prefix(len(prompt)))
	q.marks = q.marks.Beyond(fed)
	q.at = q.marks.Next(fed)
	c.open[slot] = q
	return q.at
}

func (c *cache) Keep(slot int) (mark int) {
	q := c.open[slot]
	q.at = q.marks.Next(q.at)
	return q.at
}

func (c *cache) Move(from, to int) {
	q := c.open[from]
	delete(c.open, from)
	c.open[to] = q
}

func (c *cache) Fork(int, string, []int) { panic("BUG: no request of a trace forks") }

func (c *cache) End(slot int, tokens []int, wasted bool) {
	q := c.open[slot]
	delete(c.open, slot)
	if q == nil || wasted {
		return
	}
	r := prefix.Request{At: c.now(), Tokens: q.of.Tokens.Prefix(len(tokens)), InputLen: min(q.of.InputLen, len(tokens))}
	c.tree.Admit(r, q.marks)
}

// blocks makes the router's hashes of prompts, and memory for prompts.
type blocks struct {
	seed maphash.Seed
	text []byte
	zero []int
}

// blocksOf returns the hashes of a prompt by which the router knows its prefixes; nil: there is one
// server of a role.
func (s *simulation) blocksOf(r *prefix.Request) []uint64 {
	if len(s.decode.servers) < 2 && len(s.prefill.servers) < 2 {
		return nil
	}
	b := &s.blocks
	if b.text == nil {
		b.seed = maphash.MakeSeed()
	}
	b.text = b.text[:0]
	for i := range r.InputLen {
		id := r.Tokens.At(i)
		b.text = append(b.text, byte(id), byte(id>>8), byte(id>>16), byte(id>>24))
	}
	return balance.Blocks(b.seed, nil, b.text)
}

// zeros returns n tokens, which requests share.
func (s *simulation) zeros(n int) []int {
	b := &s.blocks
	if len(b.zero) < n {
		b.zero = make([]int, 2*n)
	}
	return b.zero[:n]
}

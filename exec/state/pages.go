package state

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/krait-ml/krait/lowering"
)

// KV caches have their rows in pages, each for consecutive tokens of one sequence, of all caches of
// all ranks. A slot's block table lists its pages in order. Slots and a [DeviceKV] may share a
// page: a slot writes only pages that it has alone, and copies a shared one first.

// MaxPageTokens is the most tokens that a page may have.
const MaxPageTokens = 1 << 20

const (
	defaultPageTokens = 128
	slabTokens        = 512 // pages are made for at least as many tokens at once
)

// PageTokens is the number of tokens of a page where an engine's options ask for n (0: the default)
// and for a context (0: no limit).
func PageTokens(n, context int) int {
	if n == 0 {
		n = defaultPageTokens
	}
	if context > 0 {
		n = min(n, context)
	}
	return n
}

// ErrNoPages is the error of a call that needs a KV page where none is free and no more may be
// made: [Store.LimitPages]. A step that fails by it has changed nothing.
var ErrNoPages = errors.New("the KV cache is full: sequences and the prefix cache hold all of its pages")

// LimitPages sets the number of pages that may be made in all; 0: no limit. It frees none.
func (s *Store) LimitPages(n int) {
	s.t.pages.mu.Lock()
	defer s.t.pages.mu.Unlock()
	s.t.pages.limit = n
}

// Pages returns how many pages are allocated, and how many may be; limit 0: any number.
func (s *Store) Pages() (used, limit int) {
	p := s.t.pages
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.refs) - len(p.free), p.limit
}

// PagesLeft is the number of pages that can be allocated before [ErrNoPages].
func (s *Store) PagesLeft() int {
	p := s.t.pages
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.limit == 0 {
		return math.MaxInt
	}
	return len(p.free) + max(p.limit-len(p.refs), 0)
}

// PageUse counts KV pages.
type PageUse struct {
	Tokens      int // of a page
	Pages, Free int // made, and of these free
}

// PageUse counts KV pages.
func (s *Store) PageUse() PageUse {
	n, free := s.t.pages.use()
	return PageUse{s.t.pages.tokens, n, free}
}

// CopyUse counts the spare slots that hold a [DeviceState] each: all, and those that are free.
func (s *Store) CopyUse() (slots, free int) { return s.t.copies.use() }

// pool counts references to pages, or to spare slots. A [DeviceKV] or [DeviceState] is freed while
// steps run, so it has a lock of its own.
type pool struct {
	mu     sync.Mutex
	tokens int // of a page; 0: the pool is of slots
	limit  int // of pages; 0: none
	refs   []int32
	free   []int32
}

func (p *pool) use() (n, free int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.refs), len(p.free)
}

// grown is the number of pages to have where one more than n is needed: half as many more, within
// the limit.
func (p *pool) grown(n int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	to := n + max(n/2, p.count(slabTokens))
	if p.limit > 0 {
		to = max(n, min(to, p.limit))
	}
	return to
}

// count is the number of pages of some tokens.
func (p *pool) count(tokens int) int { return (tokens + p.tokens - 1) / p.tokens }

// add adds free pages until there are n.
func (p *pool) add(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := n - 1; i >= len(p.refs); i-- {
		p.free = append(p.free, int32(i)) // the lowest is allocated first
	}
	p.refs = append(p.refs, make([]int32, n-len(p.refs))...)
}

// alloc allocates a free page, or returns -1.
func (p *pool) alloc() int32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free) == 0 {
		return -1
	}
	page := p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	p.refs[page] = 1
	return page
}

// share adds a reference to a page.
func (p *pool) share(page int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refs[page] < 1 {
		panic(fmt.Sprintf("BUG: page or slot %d is shared, and is free", page))
	}
	p.refs[page]++
}

// shared reports whether a page has several references.
func (p *pool) shared(page int32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refs[page] > 1
}

// drop removes references to pages, and frees those without one.
func (p *pool) drop(pages ...int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, page := range pages {
		switch p.refs[page]--; {
		case p.refs[page] < 0:
			panic(fmt.Sprintf("BUG: page or slot %d is freed twice", page))
		case p.refs[page] == 0:
			p.free = append(p.free, page)
		}
	}
}

// HasCache reports whether the model has KV caches.
func (t *Table) HasCache() bool {
	return slices.ContainsFunc(t.schedules, func(s *lowering.Schedule) bool { return s.Bytes[lowering.Cache] > 0 })
}

// limit is the number of tokens that a sequence may have; 0: no limit.
func (t *Table) limit() int {
	if !t.HasCache() {
		return 0
	}
	return t.context
}

// CheckContext is an error where a sequence may not have as many tokens.
func (t *Table) CheckContext(tokens int) error {
	if n := t.limit(); n > 0 && tokens > n {
		return fmt.Errorf("a sequence of %d tokens; the KV cache has room for %d: open the model with more context", tokens, n)
	}
	return nil
}

// makePages makes pages until there are n.
func (t *Table) makePages(n int) error {
	if err := t.memory.GrowPages(n); err != nil {
		return err
	}
	t.pages.add(n)
	return nil
}

// allocPage allocates a page, and makes more where none is free.
func (t *Table) allocPage() (int32, error) {
	if page := t.pages.alloc(); page >= 0 {
		return page, nil
	}
	n := len(t.pages.refs)
	to := t.pages.grown(n)
	if to == n {
		return 0, ErrNoPages
	}
	if err := t.makePages(to); err != nil {
		return 0, err
	}
	return t.pages.alloc(), nil
}

// extend gives a slot the pages of its first tokens.
func (t *Table) extend(slot, tokens int) error {
	if !t.HasCache() {
		return nil
	}
	if err := t.CheckContext(tokens); err != nil {
		return err
	}
	list := &t.slots.pages[slot]
	for len(*list) < t.pages.count(tokens) {
		page, err := t.allocPage()
		if err != nil {
			return err
		}
		*list = append(*list, page)
	}
	return nil
}

// BlockTable returns the pages of a slot for its first tokens, after making those from token from
// on writable: it allocates missing pages, and copies shared ones.
func (t *Table) BlockTable(slot, from, tokens int) ([]int32, error) {
	if err := t.extend(slot, tokens); err != nil {
		return nil, err
	}
	list := t.slots.pages[slot]
	for i := from / t.pages.tokens; i < len(list); i++ {
		if !t.pages.shared(list[i]) {
			continue
		}
		page, err := t.allocPage()
		if err != nil {
			return nil, err
		}
		if n := min(t.pages.tokens, t.slots.tokens[slot]-i*t.pages.tokens); n > 0 {
			if err := t.memory.CopyRows(PageRows{list[i], 0, n}, page); err != nil {
				t.pages.drop(page)
				return nil, err
			}
		}
		t.pages.drop(list[i])
		list[i] = page
	}
	return list, nil
}

// release frees the pages of a slot beyond those of its first tokens.
func (t *Table) release(slot, tokens int) {
	list := &t.slots.pages[slot]
	n := min(t.pages.count(tokens), len(*list))
	t.pages.drop((*list)[n:]...)
	*list = (*list)[:n]
}

// pageRows lists where the rows of a slot's tokens [from, to) are, if there are caches.
func (t *Table) pageRows(slot, from, to int) (list []PageRows) {
	n := t.pages.tokens
	for from < to && t.HasCache() {
		end := min(to, (from/n+1)*n)
		list = append(list, PageRows{t.slots.pages[slot][from/n], from % n, end - from})
		from = end
	}
	return list
}

package exec

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/krait-ml/krait/lowering"
)

// Attention's caches have their rows in pages, each for some tokens in a row of one
// sequence, of all caches of all ranks. A slot has a list of pages, in order. What was
// kept of sequences, and slots that went on from it, may have the same page: it is
// written only by a slot that has it for itself; others get a copy first.

// MaxPageTokens is the most that [Options.PageTokens] may be.
const MaxPageTokens = 1 << 20

const (
	defaultPageTokens = 128
	slabTokens        = 512 // for which pages are made at once, at least
)

// pool counts who has the pages, or the places of states that are kept. What was kept is
// freed while steps run, so that it has a lock of its own; pages are made by who has the
// engine's, too.
type pool struct {
	mu     sync.Mutex
	tokens int // of a page; 0: they are no pages
	most   int // that may be made; 0: any number
	refs   []int32
	free   []int32
}

func newPool(o *Options) *pool { return &pool{tokens: o.Page()} }

// Page is how many tokens a page of an engine with these options has rows for.
func (o *Options) Page() int {
	n := o.PageTokens
	if n == 0 {
		n = defaultPageTokens
	}
	if o.Context > 0 {
		n = min(n, o.Context)
	}
	return n
}

// ErrNoPages is the error of what needs a page of attention's caches where all that may be made
// are held: [Engine.LimitPages]. A step that fails by it has changed nothing.
var ErrNoPages = errors.New("the attention caches' memory is full: all of its pages are held by sequences, and by what is kept of them")

// LimitPages says how many pages may be made, by the memory that there is for them; 0: any number.
// Those that there are stay.
func (e *Engine) LimitPages(n int) {
	e.pages.mu.Lock()
	defer e.pages.mu.Unlock()
	e.pages.most = n
}

// PagesLeft is how many pages can be taken before [ErrNoPages].
func (e *Engine) PagesLeft() int {
	p := e.pages
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.most == 0 {
		return math.MaxInt
	}
	return len(p.free) + max(p.most-len(p.refs), 0)
}

// grown is how many pages there are to be where one more is needed than the n there are.
func (p *pool) grown(n int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	to := n + max(n/2, p.count(slabTokens))
	if p.most > 0 {
		to = max(n, min(to, p.most))
	}
	return to
}

// count is how many pages so many tokens take.
func (p *pool) count(tokens int) int { return (tokens + p.tokens - 1) / p.tokens }

// add takes in pages that were made, until there are n.
func (p *pool) add(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := n - 1; i >= len(p.refs); i-- {
		p.free = append(p.free, int32(i)) // the first is taken first
	}
	p.refs = append(p.refs, make([]int32, n-len(p.refs))...)
}

// take is a free page, or -1.
func (p *pool) take() int32 {
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

// share counts one more who has a page.
func (p *pool) share(page int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refs[page] < 1 {
		panic(fmt.Sprintf("BUG: page or place %d is shared, and nobody has it", page))
	}
	p.refs[page]++
}

// shared reports whether others have a page, too.
func (p *pool) shared(page int32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refs[page] > 1
}

// drop counts one less who has a page.
func (p *pool) drop(page int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch p.refs[page]--; {
	case p.refs[page] < 0:
		panic(fmt.Sprintf("BUG: page or place %d is freed, and nobody has it", page))
	case p.refs[page] == 0:
		p.free = append(p.free, page)
	}
}

// PageUse says where the memory of attention's caches is.
type PageUse struct {
	Tokens      int // of a page
	Pages, Free int // that there are, and of which nothing is kept
}

// PageUse counts pages.
func (e *Engine) PageUse() PageUse {
	e.pages.mu.Lock()
	defer e.pages.mu.Unlock()
	return PageUse{e.pages.tokens, len(e.pages.refs), len(e.pages.free)}
}

// cached reports whether the model has caches.
func (e *Engine) cached() bool {
	return slices.ContainsFunc(e.schedules, func(s *lowering.Schedule) bool { return s.Bytes[lowering.Cache] > 0 })
}

// Context is how many tokens a sequence may have; 0: any number.
func (e *Engine) Context() int {
	if !e.cached() {
		return 0
	}
	return e.limit
}

// fitsContext checks that a sequence may be so long.
func (e *Engine) fitsContext(tokens int) error {
	if n := e.Context(); n > 0 && tokens > n {
		return fmt.Errorf("a sequence of %d tokens; the attention caches have room for %d: open the model with more context", tokens, n)
	}
	return nil
}

// reserveContext makes the pages that the slots can fill, where that is known.
func (e *Engine) reserveContext() error {
	if e.Context() == 0 {
		return nil
	}
	return e.makePages(e.pages.count(e.limit) * e.Slots())
}

// makePages makes pages until there are so many.
func (e *Engine) makePages(n int) error {
	if err := e.machine.Pages(n); err != nil {
		return err
	}
	e.pages.add(n)
	return nil
}

// takePage is a page that nobody has. Where there is none, some more are made: half of
// those there are.
func (e *Engine) takePage() (int32, error) {
	if page := e.pages.take(); page >= 0 {
		return page, nil
	}
	n := len(e.pages.refs)
	to := e.pages.grown(n)
	if to == n {
		return 0, ErrNoPages
	}
	if err := e.makePages(to); err != nil {
		return 0, err
	}
	return e.pages.take(), nil
}

// page gives the sequences of a batch pages for all their tokens, of which they have those
// to be written for themselves.
func (e *Engine) page(b *Batch) error {
	e.work.Pages = e.work.Pages[:0]
	if !e.cached() {
		return nil
	}
	for i := range b.Sequences {
		if q := &b.Sequences[i]; e.fitsContext(q.past+q.len()) != nil {
			return e.fitsContext(q.past + q.len())
		}
	}
	for i := range b.Sequences {
		q := &b.Sequences[i]
		if err := e.writable(q.index, q.past, q.past+q.len()); err != nil {
			return err
		}
		e.work.Pages = append(e.work.Pages, e.slots.pages[q.index])
	}
	return nil
}

// extend gives a slot pages for so many tokens.
func (e *Engine) extend(slot, tokens int) error {
	if !e.cached() {
		return nil
	}
	if err := e.fitsContext(tokens); err != nil {
		return err
	}
	list := &e.slots.pages[slot]
	for len(*list) < e.pages.count(tokens) {
		page, err := e.takePage()
		if err != nil {
			return err
		}
		*list = append(*list, page)
	}
	return nil
}

// writable gives a slot pages for so many tokens, those from one on for itself: of what
// it shares it gets a copy.
func (e *Engine) writable(slot, from, tokens int) error {
	if err := e.extend(slot, tokens); err != nil {
		return err
	}
	list := e.slots.pages[slot]
	for i := from / e.pages.tokens; i < len(list); i++ {
		if !e.pages.shared(list[i]) {
			continue
		}
		page, err := e.takePage()
		if err != nil {
			return err
		}
		if n := min(e.pages.tokens, e.slots.tokens[slot]-i*e.pages.tokens); n > 0 {
			if err := e.machine.CopyRows(Rows{list[i], 0, n}, page); err != nil {
				e.pages.drop(page)
				return err
			}
		}
		e.pages.drop(list[i])
		list[i] = page
	}
	return nil
}

// release gives back the pages that a slot does not need for so many tokens.
func (e *Engine) release(slot, tokens int) {
	list := &e.slots.pages[slot]
	n := min(e.pages.count(tokens), len(*list))
	for _, page := range (*list)[n:] {
		e.pages.drop(page)
	}
	*list = (*list)[:n]
}

// rowsOf are where the rows of a slot's tokens lie, if there are caches.
func (e *Engine) rowsOf(slot, from, to int) (list []Rows) {
	n := e.pages.tokens
	for from < to && e.cached() {
		end := min(to, (from/n+1)*n)
		list = append(list, Rows{e.slots.pages[slot][from/n], from % n, end - from})
		from = end
	}
	return list
}

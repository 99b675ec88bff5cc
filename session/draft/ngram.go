package draft

import "sync"

// ownTokens is how many of its last tokens a sequence looks up.
const ownTokens = 1 << 16

// ngram drafts the tokens that followed the latest occurrence of the last 2 to 5 tokens, earlier in
// the sequence or in a text of the same salt (prompt lookup: Saxena, "Prompt Lookup Decoding",
// 2023).
type ngram struct {
	own    index
	pool   *Pool // nil: none
	salt   string
	known  bool // the last tokens were looked up
	pooled bool // the guess is the pool's
	place  int  // of the guess
	length int  // of its n-gram; 0: there is no guess
}

// NGram returns a drafter that looks up n-grams: of the sequence, and of earlier texts of the salt
// in a pool, which may be nil.
func NGram(p *Pool, salt string) Drafter {
	return &ngram{own: index{window: ownTokens}, pool: p, salt: salt}
}

func (d *ngram) Kind() string { return "ngram" }

func (d *ngram) Read(tokens ...int) {
	for _, t := range tokens {
		d.own.add(int32(t))
	}
	d.known = false
}

// look looks the last tokens up. Of equal lengths the sequence's own place counts.
func (d *ngram) look() {
	if d.known {
		return
	}
	d.known, d.pooled = true, false
	if d.place, d.length = d.own.earlier(); d.length < longest && d.pool != nil {
		var last [longest]int32
		n := d.own.suffix(last[:], d.own.total)
		if place, length := d.pool.find(d.salt, last[:n]); length > d.length {
			d.place, d.length, d.pooled = place, length, true
		}
	}
}

func (d *ngram) Grade() int {
	d.look()
	return d.length - shortest // -2 without a guess
}

func (d *ngram) Draft(dst []int, n int) []int {
	switch d.look(); {
	case d.length == 0:
		return dst
	case d.pooled:
		return d.pool.follow(d.salt, dst, d.place, n)
	}
	return d.own.follow(dst, d.place, n)
}

// Close gives the text to the pool.
func (d *ngram) Close() {
	if d.pool != nil && d.own.total > 0 {
		d.pool.add(d.salt, &d.own)
	}
	d.own, d.known, d.length = index{window: ownTokens}, false, 0
}

// Pool has the texts of ended sequences by salt, up to a number of bytes. The salt that was used
// least recently goes first.
type Pool struct {
	mu    sync.Mutex
	most  int64
	texts map[string]*pooled
	clock int
}

// pooled is the texts of a salt.
type pooled struct {
	index
	used int
}

// bytesPerToken bounds the size of an index by its tokens, while its table grows, too.
const bytesPerToken = 80

// NewPool returns an empty pool that takes at most a number of bytes.
func NewPool(bytes int64) *Pool { return &Pool{most: bytes, texts: map[string]*pooled{}} }

// Bytes is the size of the pool.
func (p *Pool) Bytes() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bytes()
}

func (p *Pool) bytes() (n int64) {
	for _, t := range p.texts {
		n += t.bytes()
	}
	return n
}

// use returns the texts of a salt, or nil.
func (p *Pool) use(salt string) *pooled {
	t := p.texts[salt]
	if t != nil {
		p.clock++
		t.used = p.clock
	}
	return t
}

func (p *Pool) find(salt string, last []int32) (place, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := p.use(salt); t != nil {
		return t.find(last)
	}
	return 0, 0
}

func (p *Pool) follow(salt string, dst []int, place, n int) []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := p.texts[salt]; t != nil && place >= t.begin() && place < t.total {
		return t.follow(dst, place, min(n, t.total-place))
	}
	return dst
}

// add adds the tokens that an index remembers, and a separator.
func (p *Pool) add(salt string, x *index) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.most < bytesPerToken {
		return
	}
	t := p.use(salt)
	if t == nil {
		t = &pooled{index: index{window: int(p.most / bytesPerToken)}}
		p.texts[salt] = t
		p.use(salt)
	}
	for i := x.begin(); i < x.total; i++ {
		t.add(x.at(i))
	}
	t.add(-1)
	for p.bytes() > p.most {
		p.evict()
	}
}

// evict forgets the salt that was used least recently.
func (p *Pool) evict() {
	oldest, least := "", p.clock+1
	for salt, t := range p.texts {
		if t.used < least {
			oldest, least = salt, t.used
		}
	}
	delete(p.texts, oldest)
}

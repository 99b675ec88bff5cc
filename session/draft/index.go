package draft

import "github.com/krait-ml/krait/internal/splitmix"

// Lengths of the n-grams that an index looks up.
const shortest, longest = 2, 5

// index finds the latest place of an n-gram among the last tokens of a text, in constant time: by a
// hash table with linear probing.
type index struct {
	window int                // tokens that it remembers at most
	tokens []int32            // token i of the text at i % window
	total  int                // tokens of the text
	table  []entry            // of the n-grams remembered, and of some forgotten ones
	used   int                // entries of the table that are not 0
	before [longest + 1]entry // of the last tokens, by n: their entries for the place before
}

// entry is the place after an n-gram's latest occurrence, and n. 0: none.
type entry uint32

const mostTokens = 1 << 30

func entryOf(place, n int) entry { return entry(place<<2 | (n - shortest)) }
func (e entry) place() int       { return int(e >> 2) }
func (e entry) length() int      { return int(e&3) + shortest }

// at returns token i of the text, one of the last window tokens.
func (x *index) at(i int) int32 { return x.tokens[i%x.window] }

// begin returns the first token that the index remembers.
func (x *index) begin() int { return max(x.total-x.window, 0) }

// bytes is its size.
func (x *index) bytes() int64 { return 4 * int64(cap(x.tokens)+len(x.table)) }

// add adds a token. Negative ones separate texts: no guess contains one.
func (x *index) add(token int32) {
	if x.total == mostTokens-1 {
		*x = index{window: x.window}
	}
	if len(x.tokens) < x.window {
		x.tokens = append(x.tokens, token)
	} else {
		x.tokens[x.total%x.window] = token
	}
	x.total++
	if 4*(x.used+longest) > 3*len(x.table) {
		x.rebuild()
	}
	x.enter(x.total)
}

// rebuild makes a table of the n-grams remembered, but for those of the last token.
func (x *index) rebuild() {
	size := 64
	for size < 2*(longest-shortest+1)*(x.total-x.begin()) {
		size *= 2
	}
	x.table, x.used = make([]entry, size), 0
	for end := x.begin() + 1; end < x.total; end++ {
		x.enter(end)
	}
}

// enter enters the n-grams before a place, and remembers their places so far.
func (x *index) enter(end int) {
	var last [longest]int32
	n := x.suffix(last[:], end)
	h := uint64(0)
	for i, token := range last[:n] {
		if h = splitmix.Mix(h ^ uint64(uint32(token))); i+1 < shortest {
			continue
		}
		slot := x.slot(h, last[:i+1])
		if *slot == 0 {
			x.used++
		}
		x.before[i+1], *slot = *slot, entryOf(end, i+1)
	}
	clear(x.before[n+1:])
}

// suffix sets the tokens before a place, the latest first, and returns their number.
func (x *index) suffix(last []int32, place int) int {
	n := min(len(last), place-x.begin())
	for i := range n {
		last[i] = x.at(place - 1 - i)
	}
	return n
}

// slot returns the entry of an n-gram, the latest token first, with its hash; if there is none, one
// to put it in: a free one, or that of a forgotten n-gram.
func (x *index) slot(h uint64, ngram []int32) (free *entry) {
	for i := h; ; i++ {
		e := &x.table[i&uint64(len(x.table)-1)]
		switch {
		case *e == 0 && free == nil:
			return e
		case *e == 0:
			return free
		case !x.remembers(*e):
			if free == nil {
				free = e
			}
		case e.length() == len(ngram) && x.is(e.place(), ngram):
			return e
		}
	}
}

// remembers reports whether the tokens of an entry are among the last ones.
func (x *index) remembers(e entry) bool { return e != 0 && e.place()-e.length() >= x.begin() }

// is reports whether an n-gram comes before a place.
func (x *index) is(place int, ngram []int32) bool {
	for i, token := range ngram {
		if x.at(place-1-i) != token {
			return false
		}
	}
	return true
}

// find returns the place after the latest occurrence of the longest n-gram that ends a text, and
// its length; 0: there is none. The last tokens of the text come latest first.
func (x *index) find(last []int32) (place, n int) {
	if x.total == 0 {
		return 0, 0
	}
	h := uint64(0)
	for i, token := range last {
		if h = splitmix.Mix(h ^ uint64(uint32(token))); i+1 < shortest {
			continue
		}
		e := *x.slot(h, last[:i+1])
		if !x.remembers(e) {
			break // no longer one occurs either
		}
		place, n = e.place(), i+1
	}
	return place, n
}

// earlier is find for the last tokens of the index's own text.
func (x *index) earlier() (place, n int) {
	for n := longest; n >= shortest; n-- {
		if e := x.before[n]; x.remembers(e) {
			return e.place(), n
		}
	}
	return 0, 0
}

// follow appends the tokens from a place on to dst, up to n. At the end of the text it goes on with
// what it appended: a text that repeats goes on repeating.
func (x *index) follow(dst []int, place, n int) []int {
	from := len(dst)
	for i := range n {
		token := 0
		if place+i < x.total {
			token = int(x.at(place + i))
		} else {
			token = dst[from+place+i-x.total]
		}
		if token < 0 {
			break
		}
		dst = append(dst, token)
	}
	return dst
}

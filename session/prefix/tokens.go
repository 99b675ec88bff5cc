package prefix

import "sort"

// MaxTokens is the most tokens of a sequence.
const MaxTokens = 1 << 24

// Tokens is a sequence of token ids that does not change. Where it is mostly runs of
// consecutive ids it takes 8 bytes per run, else 4 per token.
type Tokens struct {
	ids  []int32 // of each run the first
	ends []int32 // of each run the index after its last token; nil: each run is one token
	n    int
	salt string
}

// Salted are the tokens of who has a salt: sequences of different salts have no beginning in
// common, whatever their ids are.
func (t Tokens) Salted(salt string) Tokens {
	t.salt = salt
	return t
}

// Salt is whose they are; empty: anybody's.
func (t Tokens) Salt() string { return t.salt }

// begin is what the first edge of a sequence is found by.
type begin struct {
	salt string
	id   int32
}

func (t Tokens) begin() begin { return begin{t.salt, t.At(0)} }

// Len is the number of tokens.
func (t Tokens) Len() int { return t.n }

// Prefix is the first n tokens; both share their memory.
func (t Tokens) Prefix(n int) Tokens { return Tokens{t.ids, t.ends, n, t.salt} }

// At is token i.
func (t Tokens) At(i int) int32 { return t.id(t.run(i), i) }

// run is the index of the run that token i is in.
func (t Tokens) run(i int) int {
	if t.ends == nil {
		return i
	}
	return sort.Search(len(t.ends), func(r int) bool { return int(t.ends[r]) > i })
}

// id is token i, which is in run r.
func (t Tokens) id(r, i int) int32 {
	switch {
	case t.ends == nil:
		return t.ids[i]
	case r == 0:
		return t.ids[0] + int32(i)
	}
	return t.ids[r] + int32(i) - t.ends[r-1]
}

// end is the index after the last token of run r.
func (t Tokens) end(r int) int {
	if t.ends == nil {
		return r + 1
	}
	return int(t.ends[r])
}

// agree is the first index in from…to−1 at which a and b differ, or to.
func agree(a, b Tokens, from, to int) int {
	if from >= to {
		return to
	}
	if a.ends == nil && b.ends == nil {
		return agreeOne(a.ids, b.ids, from, to)
	}
	for i, p, q := from, a.run(from), b.run(from); i < to; {
		if a.id(p, i) != b.id(q, i) {
			return i
		}
		i = min(a.end(p), b.end(q))
		if i == a.end(p) {
			p++
		}
		if i == b.end(q) {
			q++
		}
	}
	return to
}

// agreeOne is agree where each run is one token. What is the same memory is equal.
func agreeOne(a, b []int32, from, to int) int {
	if &a[0] == &b[0] {
		return to
	}
	b = b[:to]
	for i, id := range a[from:to] {
		if id != b[from+i] {
			return from + i
		}
	}
	return to
}

// Builder makes a sequence of tokens. The zero Builder is empty.
type Builder struct {
	ids, ends []int32
	n         int
}

// Len is the number of tokens so far.
func (b *Builder) Len() int { return b.n }

// Append adds n tokens with consecutive ids from first on. The ids must fit an int32,
// and the tokens [MaxTokens].
func (b *Builder) Append(first int32, n int) {
	if n <= 0 {
		return
	}
	if n > MaxTokens-b.n {
		panic("BUG: more tokens than a sequence may have")
	}
	last := len(b.ids) - 1
	goesOn := last >= 0 && Tokens{b.ids, b.ends, b.n, ""}.id(last, b.n) == first
	b.n += n
	if goesOn {
		b.ends[last] = int32(b.n)
		return
	}
	b.ids, b.ends = append(b.ids, first), append(b.ends, int32(b.n))
}

// Tokens is what was appended. The builder is then empty.
func (b *Builder) Tokens() Tokens {
	t := Tokens{b.ids, b.ends, b.n, ""}
	*b = Builder{b.ids[:0], b.ends[:0], 0}
	if 2*len(t.ids) < t.n {
		return Tokens{append([]int32(nil), t.ids...), append([]int32(nil), t.ends...), t.n, ""}
	}
	ids := make([]int32, 0, t.n)
	for r, first := range t.ids {
		for i := len(ids); i < t.end(r); i++ {
			ids = append(ids, first)
			first++
		}
	}
	return Tokens{ids, nil, t.n, ""}
}

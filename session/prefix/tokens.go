package prefix

// MaxTokens bounds the length of a sequence.
const MaxTokens = 1 << 24

// Tokens is an immutable sequence of token ids. It takes 8 bytes per run of consecutive ids if
// there are few runs, otherwise 4 per token.
type Tokens struct {
	ids  []int32 // the first of each run
	ends []int32 // the index after the last token of each run; nil: runs of one token
	n    int
	salt string
}

// Salted returns the tokens with a salt: sequences of different salts have no common prefix.
func (t Tokens) Salted(salt string) Tokens {
	t.salt = salt
	return t
}

// Salt returns the salt.
func (t Tokens) Salt() string { return t.salt }

// begin identifies the first edge of a sequence.
type begin struct {
	salt string
	id   int32
}

func (t Tokens) begin() begin { return begin{t.salt, t.At(0)} }

// Len returns the number of tokens.
func (t Tokens) Len() int { return t.n }

// Prefix returns the first n tokens, which share memory.
func (t Tokens) Prefix(n int) Tokens { return Tokens{t.ids, t.ends, n, t.salt} }

// At returns token i.
func (t Tokens) At(i int) int32 { return t.id(t.run(i), i) }

// run returns the index of the run of token i.
func (t Tokens) run(i int) int {
	if t.ends == nil {
		return i
	}
	from, to := 0, len(t.ends)
	for from < to {
		if r := (from + to) / 2; int(t.ends[r]) > i {
			to = r
		} else {
			from = r + 1
		}
	}
	return from
}

// id returns token i, in run r.
func (t Tokens) id(r, i int) int32 {
	switch {
	case t.ends == nil:
		return t.ids[i]
	case r == 0:
		return t.ids[0] + int32(i)
	}
	return t.ids[r] + int32(i) - t.ends[r-1]
}

// end returns the index after the last token of run r.
func (t Tokens) end(r int) int {
	if t.ends == nil {
		return r + 1
	}
	return int(t.ends[r])
}

// agree returns the first index in from…to−1 at which a and b differ, or to.
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

// agreeOne is agree for runs of one token.
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

// Len returns the number of tokens so far.
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
	extends := last >= 0 && Tokens{b.ids, b.ends, b.n, ""}.id(last, b.n) == first
	b.n += n
	if extends {
		b.ends[last] = int32(b.n)
		return
	}
	b.ids, b.ends = append(b.ids, first), append(b.ends, int32(b.n))
}

// Tokens returns the appended tokens and empties the builder.
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

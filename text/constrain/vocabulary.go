package constrain

import (
	"bytes"
	"cmp"
	"fmt"
	"iter"
	"slices"
	"sync"
)

// Vocabulary is the bytes of tokens, as a trie. It is not changed once made.
type Vocabulary struct {
	bytes  [][]byte
	words  int
	trie   []branch // in the order of a walk: the root first, and one more behind the last
	tokens []int32  // in the same order, so that those of a branch and below it are a run

	interior func() *interior // made once
}

// branch is the bytes up to here. Its first child follows it, and each other one all that is below
// the one before.
type branch struct {
	end     int32 // of what is below
	first   int32 // the first token here or below
	b       byte
	classes classes // of the bytes below
}

// NewVocabulary returns a vocabulary of tokens 0 to size-1. Tokens without bytes, such as special
// ones, are never allowed. Every ASCII character must be a token: otherwise a text could get stuck.
func NewVocabulary(size int, spelling func(id int) []byte) (*Vocabulary, error) {
	v := &Vocabulary{bytes: make([][]byte, size), words: (size + 31) / 32}
	single := map[byte]bool{}
	for id := range size {
		b := spelling(id)
		if v.bytes[id] = b; len(b) > 0 {
			v.tokens = append(v.tokens, int32(id))
		}
		if len(b) == 1 {
			single[b[0]] = true
		}
	}
	for b := byte(' '); b <= '~'; b++ {
		if !single[b] {
			return nil, fmt.Errorf("the model's vocabulary has no token that is %q alone", b)
		}
	}
	v.grow(v.bytes)
	v.interior = sync.OnceValue(v.newInterior)
	return v, nil
}

// grow sorts the tokens by bytes that each has, and makes the branches that they end.
func (v *Vocabulary) grow(of [][]byte) {
	slices.SortFunc(v.tokens, func(a, b int32) int {
		return cmp.Or(bytes.Compare(of[a], of[b]), cmp.Compare(a, b))
	})
	v.trie = []branch{{}}
	open := []int32{0} // the branches of the last token's bytes
	end := func(from int) {
		for i := len(open) - 1; i >= from; i-- {
			n := &v.trie[open[i]]
			if n.end = int32(len(v.trie)); i > 0 {
				v.trie[open[i-1]].classes |= n.classes | classesOf[n.b]
			}
		}
		open = open[:from]
	}
	var last []byte
	for i, id := range v.tokens {
		b, same := of[id], 0
		for same < min(len(b), len(last)) && b[same] == last[same] {
			same++
		}
		end(1 + same)
		for _, c := range b[same:] {
			open = append(open, int32(len(v.trie)))
			v.trie = append(v.trie, branch{first: int32(i), b: c})
		}
		last = b
	}
	end(0)
	v.trie = append(v.trie, branch{first: int32(len(v.tokens))})
}

// children are those of a branch.
func (v *Vocabulary) children(n int32) iter.Seq2[int32, byte] {
	return func(yield func(int32, byte) bool) {
		for c, end := n+1, v.trie[n].end; c < end && yield(c, v.trie[c].b); {
			c = v.trie[c].end
		}
	}
}

// own are the tokens that end at a branch.
func (v *Vocabulary) own(n int32) []int32 { return v.tokens[v.trie[n].first:v.trie[n+1].first] }

// below are these, and the longer ones.
func (v *Vocabulary) below(n int32) []int32 {
	return v.tokens[v.trie[n].first:v.trie[v.trie[n].end].first]
}

func allow(ids []int32, mask []int32) {
	for _, id := range ids {
		setBit(mask, id)
	}
}

func setBit(mask []int32, id int32) { mask[id/32] |= 1 << (id % 32) }

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
	bytes    [][]byte
	words    int
	trie     []branch   // in the order of a walk: the root first, and one more behind the last
	longest  int32      // bytes of a token
	largest  []int      // clusters, which have three quarters of the tokens
	starts   [256]int32 // tokens by their first byte
	clusters []cluster  // the children of the root, by the classes of tokens' bytes
	tokens   []int32    // in the same order, so that those of a branch and below it are a run

	interior func() *interior // made once
}

// branch is the bytes up to here. Its first child follows it, and each other one all that is below
// the one before.
type branch struct {
	end     int32 // of what is below
	first   int32 // the first token here or below
	height  int32 // bytes of the longest token below, behind this branch
	b       byte
	classes classes // of the bytes below
}

// cluster is the branches of all tokens whose bytes are of the same classes, so that a set that
// takes any text of these classes takes a cluster at once.
type cluster struct {
	begin, end int32 // of the trie
	height     int32
	size       int32 // tokens
	classes    classes
	bits       func() []int32 // of its tokens, made once; for those of many tokens
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

// grow sorts the tokens by classes and bytes that each has, and makes the branches that they end.
func (v *Vocabulary) grow(of [][]byte) {
	kinds := make([]classes, len(of))
	for _, id := range v.tokens {
		for _, b := range of[id] {
			kinds[id] |= classesOf[b]
		}
	}
	slices.SortFunc(v.tokens, func(a, b int32) int {
		return cmp.Or(cmp.Compare(kinds[a], kinds[b]), bytes.Compare(of[a], of[b]), cmp.Compare(a, b))
	})
	v.trie = []branch{{}}
	open := []int32{0} // the branches of the last token's bytes
	end := func(from int) {
		for i := len(open) - 1; i >= from; i-- {
			n := &v.trie[open[i]]
			if n.end = int32(len(v.trie)); i > 0 {
				above := &v.trie[open[i-1]]
				above.classes |= n.classes | classesOf[n.b]
				above.height = max(above.height, n.height+1)
			}
		}
		open = open[:from]
	}
	var last []byte
	for i, id := range v.tokens {
		b, same := of[id], 0
		for same < min(len(b), len(last)) && b[same] == last[same] && kinds[id] == kinds[v.tokens[i-1]] {
			same++
		}
		end(1 + same)
		if n := len(v.clusters); n == 0 && len(b) > 0 || n > 0 && v.clusters[n-1].classes != kinds[id] {
			v.clusters = append(v.clusters, cluster{begin: int32(len(v.trie)), classes: kinds[id]})
		}
		for _, c := range b[same:] {
			open = append(open, int32(len(v.trie)))
			v.trie = append(v.trie, branch{first: int32(i), b: c})
		}
		last = b
	}
	end(0)
	v.trie = append(v.trie, branch{first: int32(len(v.tokens))})
	for i := range v.clusters {
		g := &v.clusters[i]
		if g.end = int32(len(v.trie) - 1); i+1 < len(v.clusters) {
			g.end = v.clusters[i+1].begin
		}
		for n, b := range v.siblings(g.begin, g.end) {
			v.starts[b] += int32(len(v.below(n)))
			g.size += int32(len(v.below(n)))
			g.height = max(g.height, 1+v.trie[n].height)
		}
		v.longest = max(v.longest, g.height)
		g.bits = sync.OnceValue(func() []int32 {
			bits := make([]int32, v.words)
			allow(v.in(g), bits)
			return bits
		})
		v.largest = append(v.largest, i)
	}
	slices.SortFunc(v.largest, func(a, b int) int { return int(v.clusters[b].size - v.clusters[a].size) })
	for i, sum := 0, 0; i < len(v.largest); i++ {
		if sum += int(v.clusters[v.largest[i]].size); 4*sum > 3*len(v.tokens) {
			v.largest = v.largest[:i+1]
		}
	}
}

// in are the tokens of a cluster.
func (v *Vocabulary) in(c *cluster) []int32 {
	return v.tokens[v.trie[c.begin].first:v.trie[c.end].first]
}

// allowAll sets the bits of a cluster's tokens.
func (v *Vocabulary) allowAll(c *cluster, mask []int32) {
	if int(c.size) < v.words {
		allow(v.in(c), mask)
		return
	}
	for i, bits := range c.bits() {
		mask[i] |= bits
	}
}

// children are those of a branch. The root has one for each first byte and classes of bytes.
func (v *Vocabulary) children(n int32) iter.Seq2[int32, byte] { return v.siblings(n+1, v.trie[n].end) }

// siblings are the branches from one up to the end of what is below the last.
func (v *Vocabulary) siblings(c, end int32) iter.Seq2[int32, byte] {
	return func(yield func(int32, byte) bool) {
		for c < end && yield(c, v.trie[c].b) {
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

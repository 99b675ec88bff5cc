package constrain

import (
	"fmt"
	"sync"
)

// Vocabulary is the bytes of tokens, as a trie. It is not changed once made.
type Vocabulary struct {
	bytes [][]byte
	words int
	nodes []branch // the first is the root

	tokens []int32 // in the order of a walk, so that those below a branch, and its own, are a span
	spans  []struct{ begin, end int32 }

	interior func() *interior // made once
}

// branch is the bytes up to here. Its children are a list.
type branch struct {
	child, sibling int32 // 0: none
	ids            []int32
	b              byte
}

// NewVocabulary returns a vocabulary of tokens 0 to size-1. Tokens without bytes, such as special
// ones, are never allowed. Every ASCII character must be a token: otherwise a text could get stuck.
func NewVocabulary(size int, bytes func(id int) []byte) (*Vocabulary, error) {
	v := &Vocabulary{bytes: make([][]byte, size), words: (size + 31) / 32, nodes: make([]branch, 1)}
	last := map[int64]int32{} // the child of a node by a byte
	for id := range size {
		v.bytes[id] = bytes(id)
		if len(v.bytes[id]) == 0 {
			continue
		}
		at := int32(0)
		for _, b := range v.bytes[id] {
			key := int64(at)<<8 | int64(b)
			to, ok := last[key]
			if !ok {
				to = int32(len(v.nodes))
				v.nodes = append(v.nodes, branch{b: b, sibling: v.nodes[at].child})
				v.nodes[at].child, last[key] = to, to
			}
			at = to
		}
		v.nodes[at].ids = append(v.nodes[at].ids, int32(id))
	}
	for b := byte(' '); b <= '~'; b++ {
		if to, ok := last[int64(b)]; !ok || len(v.nodes[to].ids) == 0 {
			return nil, fmt.Errorf("the model's vocabulary has no token that is %q alone", b)
		}
	}
	v.order()
	v.interior = sync.OnceValue(v.newInterior)
	return v, nil
}

// order lists the tokens in the order of a walk.
func (v *Vocabulary) order() {
	v.spans = make([]struct{ begin, end int32 }, len(v.nodes))
	var walk func(at int32)
	walk = func(at int32) {
		v.spans[at].begin = int32(len(v.tokens))
		v.tokens = append(v.tokens, v.nodes[at].ids...)
		for n := v.nodes[at].child; n != 0; n = v.nodes[n].sibling {
			walk(n)
		}
		v.spans[at].end = int32(len(v.tokens))
	}
	walk(0)
}

// below counts the tokens of a branch.
func (v *Vocabulary) below(n int32) int32 { return v.spans[n].end - v.spans[n].begin }

func (v *Vocabulary) allow(n int32, mask []int32) {
	for _, id := range v.nodes[n].ids {
		setBit(mask, int(id))
	}
}

func setBit(mask []int32, id int) { mask[id/32] |= 1 << (id % 32) }

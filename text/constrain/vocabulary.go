package constrain

import "fmt"

// Vocabulary is the bytes of tokens, as a trie. It is not changed once made.
type Vocabulary struct {
	bytes [][]byte
	words int
	nodes []branch // the first is the root
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
	return v, nil
}

// walk sets the bits of the tokens that lead somewhere from a set: first those of a byte, and
// longer ones as long as they take no more than maxWork.
func (v *Vocabulary) walk(m *Matcher, from int32, mask []int32) {
	type visit struct{ node, set int32 }
	var todo []visit
	for n := v.nodes[0].child; n != 0; n = v.nodes[n].sibling {
		if to := m.step(from, v.nodes[n].b); to != dead {
			v.allow(n, mask)
			todo = append(todo, visit{n, to})
		}
	}
	for len(todo) > 0 && m.work < maxWork && len(m.sets) < 2*maxSets {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for n := v.nodes[at.node].child; n != 0; n = v.nodes[n].sibling {
			if to := m.step(at.set, v.nodes[n].b); to != dead {
				v.allow(n, mask)
				todo = append(todo, visit{n, to})
			}
		}
	}
}

func (v *Vocabulary) allow(n int32, mask []int32) {
	for _, id := range v.nodes[n].ids {
		setBit(mask, int(id))
	}
}

func setBit(mask []int32, id int) { mask[id/32] |= 1 << (id % 32) }

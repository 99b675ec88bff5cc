package constrain

import (
	"bytes"
	"cmp"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"sync"
)

// Vocabulary is the bytes of tokens, as a tree, and as one of the classes of these bytes. It is not
// changed once made.
type Vocabulary struct {
	bytes   [][]byte
	words   int
	longest int32 // bytes of a token
	tree
	shapes tree
	text   []byte  // of the tokens of shapes, in turn
	begins []int32 // of each in the text, and the end of the last
	same   []uint8 // bytes of each that the one before has

	interior func() *interior // made once
}

// tree is tokens in the order of a walk, and the branches that they end: the root first, and one
// more behind the last.
type tree struct {
	branches []branch
	tokens   []int32  // so that those of a branch and below it are a run
	runs     sync.Map // bits of the tokens of long runs
}

// branch is the bytes or classes up to here. Its first child follows it, and each other one all
// that is below the one before.
type branch struct {
	end     int32 // of what is below
	first   int32 // the first token here or below
	height  int32 // bytes of the longest token below, behind this branch
	b       uint8
	classes classes // of the bytes below
}

// NewVocabulary returns a vocabulary of tokens 0 to size-1. Tokens without bytes, such as special
// ones, are never allowed. Every ASCII character must be a token: otherwise a text could get stuck.
func NewVocabulary(size int, spelling func(id int) []byte) (*Vocabulary, error) {
	v := &Vocabulary{bytes: make([][]byte, size), words: (size + 31) / 32}
	var all []int32
	single := map[byte]bool{}
	for id := range size {
		b := spelling(id)
		if v.bytes[id] = b; len(b) > 0 {
			all = append(all, int32(id))
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
	v.grow(all, v.bytes)
	v.interior = sync.OnceValue(v.newInterior)
	go v.interior() // before the first mask requires it
	return v, nil
}

// grow makes the trees of some tokens by the bytes that each has.
func (v *Vocabulary) grow(all []int32, of [][]byte) {
	slices.SortFunc(all, func(a, b int32) int { return cmp.Or(bytes.Compare(of[a], of[b]), cmp.Compare(a, b)) })
	v.tree.grow(all, of, &classOf)
	v.longest = v.branches[0].height
	byShape := map[string][]int32{}
	for _, id := range all {
		shape := make([]byte, 0, 64)
		for _, b := range of[id] {
			shape = append(shape, classOf[b])
		}
		byShape[string(shape)] = append(byShape[string(shape)], id)
	}
	var list []int32
	shapes, same := make([][]byte, len(of)), [256]uint8{}
	var last []byte
	for _, shape := range slices.Sorted(maps.Keys(byShape)) {
		for _, id := range byShape[shape] {
			list, shapes[id] = append(list, id), []byte(shape)
			v.same, last = append(v.same, uint8(beginning(last, of[id]))), of[id]
			v.text, v.begins = append(v.text, of[id]...), append(v.begins, int32(len(v.text)))
		}
	}
	for i := range same {
		same[i] = uint8(i)
	}
	v.begins = append(v.begins, int32(len(v.text)))
	v.shapes.grow(list, shapes, &same)
}

// beginning is how many bytes, up to 255, two texts begin with.
func beginning(a, b []byte) (n int) {
	for n < min(len(a), len(b), math.MaxUint8) && a[n] == b[n] {
		n++
	}
	return n
}

// grow makes the branches of sorted tokens, of bytes with classes.
func (t *tree) grow(tokens []int32, of [][]byte, class *[256]uint8) {
	t.tokens, t.branches = tokens, []branch{{}}
	open := []int32{0} // the branches of the last token's bytes
	end := func(from int) {
		for i := len(open) - 1; i >= from; i-- {
			n := &t.branches[open[i]]
			if n.end = int32(len(t.branches)); i > 0 {
				above := &t.branches[open[i-1]]
				above.classes |= n.classes | 1<<class[n.b]
				above.height = max(above.height, n.height+1)
			}
		}
		open = open[:from]
	}
	var last []byte
	for i, id := range tokens {
		b, same := of[id], beginning(of[id], last)
		end(1 + same)
		for _, c := range b[same:] {
			open = append(open, int32(len(t.branches)))
			t.branches = append(t.branches, branch{first: int32(i), b: c})
		}
		last = b
	}
	end(0)
	t.branches = append(t.branches, branch{first: int32(len(tokens))})
}

// allow sets the bits of a run of tokens. Those of a long run are made once.
func (t *tree) allow(first, end int32, mask []int32) {
	if int(end-first) < len(mask) {
		allow(t.tokens[first:end], mask)
		return
	}
	run := [2]int32{first, end}
	bits, ok := t.runs.Load(run)
	if !ok {
		made := make([]int32, len(mask))
		allow(t.tokens[first:end], made)
		bits, _ = t.runs.LoadOrStore(run, made)
	}
	for i, word := range bits.([]int32) {
		mask[i] |= word
	}
}

// allowOwn sets the bits of the tokens that end at a branch, and allowBelow also those of longer
// ones.
func (t *tree) allowOwn(n int32, mask []int32) {
	t.allow(t.branches[n].first, t.branches[n+1].first, mask)
}

func (t *tree) allowBelow(n int32, mask []int32) {
	t.allow(t.branches[n].first, t.branches[t.branches[n].end].first, mask)
}

// children are those of a branch.
func (t *tree) children(n int32) iter.Seq2[int32, uint8] {
	return func(yield func(int32, uint8) bool) {
		for c, end := n+1, t.branches[n].end; c < end && yield(c, t.branches[c].b); {
			c = t.branches[c].end
		}
	}
}

// own are the tokens that end at a branch.
func (t *tree) own(n int32) []int32 { return t.tokens[t.branches[n].first:t.branches[n+1].first] }

// below are these, and the longer ones.
func (t *tree) below(n int32) []int32 {
	return t.tokens[t.branches[n].first:t.branches[t.branches[n].end].first]
}

func allow(ids []int32, mask []int32) {
	for _, id := range ids {
		setBit(mask, id)
	}
}

func setBit(mask []int32, id int32) { mask[id/32] |= 1 << (id % 32) }

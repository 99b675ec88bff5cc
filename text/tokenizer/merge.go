package tokenizer

import (
	"math"
	"slices"
)

// A mergeTable ranks the pairs of tokens that may merge.
type mergeTable struct {
	ranks    map[uint64]uint32 // of a pair, see pairKey
	products []tokenID         // the token that the merge of a rank makes
}

func pairKey(left, right tokenID) uint64 { return uint64(left)<<32 | uint64(right) }

// A word is a piece being merged: a linked list of tokens, and a queue of the
// pairs that may merge, lowest rank first and leftmost first. Merging takes
// O(n log n) for n tokens. A word is reused from piece to piece.
type word struct {
	tokens []token
	queue  rankQueue
}

type token struct {
	id         tokenID
	rank       uint32 // of the merge with the next token, or noMerge
	prev, next int32  // or end; 2 GB of text in one piece is out of reach
}

const (
	noMerge = math.MaxUint32
	end     = -1
)

// reset empties w, and makes room for n tokens.
func (w *word) reset(n int) {
	w.tokens = slices.Grow(w.tokens[:0], n)
	w.queue = slices.Grow(w.queue[:0], n)
}

func (w *word) add(id tokenID) {
	at := int32(len(w.tokens))
	if at > 0 {
		w.tokens[at-1].next = at
	}
	w.tokens = append(w.tokens, token{id: id, rank: noMerge, prev: at - 1, next: end})
}

// merge merges until no pair can merge.
func (w *word) merge(table *mergeTable) {
	for at := range w.tokens {
		w.rank(int32(at), table)
	}
	for len(w.queue) > 0 {
		rank, at := w.queue.pop()
		// A pair that has changed since it was queued has another rank.
		if w.tokens[at].rank == rank {
			w.mergeAt(at, table)
		}
	}
}

// mergeAt replaces the token at a position and the next one by their product.
func (w *word) mergeAt(at int32, table *mergeTable) {
	left := &w.tokens[at]
	right := &w.tokens[left.next]
	left.id = table.products[left.rank]
	left.next = right.next
	right.rank = noMerge
	if left.next != end {
		w.tokens[left.next].prev = at
	}
	w.rank(at, table)
	if left.prev != end {
		w.rank(left.prev, table)
	}
}

// rank queues the pair at a position, if it can merge.
func (w *word) rank(at int32, table *mergeTable) {
	left := &w.tokens[at]
	left.rank = noMerge
	if left.next == end {
		return
	}
	if rank, ok := table.ranks[pairKey(left.id, w.tokens[left.next].id)]; ok {
		left.rank = rank
		w.queue.push(rank, at)
	}
}

// appendIDs appends the tokens that are left.
func (w *word) appendIDs(ids []int) []int {
	if len(w.tokens) == 0 {
		return ids
	}
	for at := int32(0); at != end; at = w.tokens[at].next {
		ids = append(ids, int(w.tokens[at].id))
	}
	return ids
}

// A rankQueue is a binary heap of pairs, each a rank above a position.
type rankQueue []uint64

func (q *rankQueue) push(rank uint32, at int32) {
	*q = append(*q, uint64(rank)<<32|uint64(at))
	h := *q
	for i := len(h) - 1; i > 0; {
		parent := (i - 1) / 2
		if h[parent] <= h[i] {
			break
		}
		h[parent], h[i] = h[i], h[parent]
		i = parent
	}
}

func (q *rankQueue) pop() (rank uint32, at int32) {
	h := *q
	top, last := h[0], len(h)-1
	h[0] = h[last]
	h = h[:last]
	*q = h
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			break
		}
		if child+1 < last && h[child+1] < h[child] {
			child++
		}
		if h[i] <= h[child] {
			break
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
	return uint32(top >> 32), int32(uint32(top))
}

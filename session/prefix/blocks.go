package prefix

import "container/heap"

// Blocks is the baseline of serving engines: an entry with KV cache and state for every full block
// of input and output. The hit is the longest run of cached blocks from the start that leaves a
// token to compute. All blocks of a request get its time. Eviction is LRU, of equals the one
// furthest from the start: so no block is evicted before its successors.
type Blocks struct {
	size       int // tokens of a block
	bytes      int64
	stateBytes int64 // of bytes
	reused     Reused
	capacity   int64
	blocks     map[blockKey]*block
	queue      blockQueue
	made       int
	evictions  int
}

// block is an entry. Blocks of one hash and parent are a chain.
type block struct {
	tokens *Tokens // its block number is index
	index  int
	parent int // number of the block before it
	number int // from 1, in order of creation
	hash   uint64
	next   *block
	time   float64
	queued float64 // its key in the queue, which may be an earlier time
	read   bool    // its rows were part of a hit
	used   bool    // its state was
}

type blockKey struct {
	parent int
	hash   uint64
}

// NewBlocks returns an empty cache of blocks of size tokens, at least 1, with a capacity in bytes.
func NewBlocks(m Model, capacity int64, size int) *Blocks {
	return &Blocks{size: size, bytes: m.Bytes(size, true), stateBytes: m.StateBytes, capacity: capacity, blocks: map[blockKey]*block{}}
}

// Bytes returns the bytes of all blocks.
func (b *Blocks) Bytes() int64 { return int64(len(b.queue)) * b.bytes }

// Evictions returns the number of evicted blocks.
func (b *Blocks) Evictions() int { return b.evictions }

// Serve looks a request up and adds its blocks. It returns the hit.
func (b *Blocks) Serve(r Request) int {
	tokens, present, parent := &r.Tokens, 0, 0
	most := max(r.InputLen-1, 0) / b.size
	var last *block // of the hit
	for i := range tokens.n / b.size {
		key := blockKey{parent, b.hash(*tokens, i)}
		x := b.find(key, *tokens, i)
		if x != nil {
			present++
			x.time = r.At
			if present <= most {
				last = x
				b.reused.read(x, b.size)
			}
		} else {
			x = b.add(key, tokens, i, r.At)
		}
		parent = x.number
	}
	if last != nil && !last.used {
		last.used = true
		b.reused.StatesUsed++
	}
	for b.Bytes() > b.capacity {
		b.evict()
	}
	return min(present, most) * b.size
}

// hash returns the FNV-1a hash of the ids of block i.
func (b *Blocks) hash(t Tokens, i int) uint64 {
	h := uint64(14695981039346656037)
	from, to := i*b.size, (i+1)*b.size
	for r := t.run(from); from < to; r++ {
		id := t.id(r, from)
		for end := min(t.end(r), to); from < end; from++ {
			h = (h ^ uint64(id)) * 1099511628211
			id++
		}
	}
	return h
}

// find returns the block of these tokens, or nil.
func (b *Blocks) find(key blockKey, t Tokens, i int) *block {
	x := b.blocks[key]
	for x != nil && agree(t, *x.tokens, i*b.size, (i+1)*b.size) < (i+1)*b.size {
		x = x.next
	}
	return x
}

func (b *Blocks) add(key blockKey, t *Tokens, i int, now float64) *block {
	b.made++
	b.reused.States++
	b.reused.CacheTokens += int64(b.size)
	x := &block{tokens: t, index: i, parent: key.parent, number: b.made, hash: key.hash, next: b.blocks[key], time: now, queued: now}
	b.blocks[key] = x
	heap.Push(&b.queue, x)
	return x
}

// evict evicts the least recent block. It updates times in the queue, which are never later than
// the real ones.
func (b *Blocks) evict() {
	x := b.queue[0]
	for ; x.queued != x.time; x = b.queue[0] {
		x.queued = x.time
		heap.Fix(&b.queue, 0)
	}
	heap.Pop(&b.queue)
	b.evictions++
	key := blockKey{x.parent, x.hash}
	if first := b.blocks[key]; first != x {
		for first.next != x {
			first = first.next
		}
		first.next = x.next
	} else if x.next != nil {
		b.blocks[key] = x.next
	} else {
		delete(b.blocks, key)
	}
}

// blockQueue is a heap with the next block to evict at its top.
type blockQueue []*block

func (q blockQueue) Len() int      { return len(q) }
func (q blockQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q blockQueue) Less(i, j int) bool {
	a, b := q[i], q[j]
	switch {
	case a.queued != b.queued:
		return a.queued < b.queued
	case a.index != b.index:
		return a.index > b.index
	}
	return a.number < b.number
}

// Push and Pop are for container/heap.
func (q *blockQueue) Push(x any) { *q = append(*q, x.(*block)) }
func (q *blockQueue) Pop() any {
	end := len(*q) - 1
	x := (*q)[end]
	(*q)[end] = nil
	*q = (*q)[:end]
	return x
}

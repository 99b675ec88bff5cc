package lowering

import "github.com/krait-ml/krait/graph"

// Blocks is how engines keep a model's share on a rank that have blocks of one size for
// everything: one is the rows that a layer's caches have of some tokens, or a layer's
// states. The i-th layers of all groups share a tensor, so that a number of a block is good
// in all of them. What moves between such engines is listed by descriptors: each part of a
// block, K and V of rows and the fields of states, has one in each tensor.
type Blocks struct {
	Tokens     int   `json:"tokens"`               // whose rows take at least as much as states, in whole pages
	Row        int64 `json:"row_bytes"`            // of a token in a layer's caches
	State      int64 `json:"state_bytes"`          // of a layer
	Bytes      int64 `json:"block_bytes"`          // of a block
	Pad        int64 `json:"padding_bytes"`        // of a block that has states
	Tensors    int   `json:"tensors"`              // that the groups share
	Caches     int   `json:"layers_with_caches"`   // layers
	States     int   `json:"layers_with_states"`   // layers
	CacheParts int   `json:"cache_descriptors"`    // of a block, in all tensors
	StateParts int   `json:"state_descriptors"`    // likewise
	Ratio      int   `json:"physical_per_logical"` // pages, which kernels see, of a block; states are not divided
}

// layer is what a rank keeps in a block of the model: its states, or a token's rows of its caches.
type layer struct {
	bytes int64
	parts int // that move by themselves
}

// layers lists what a rank keeps of states, or of caches, by block.
func (e *End) layers(rank int, caches, same bool) map[string]layer {
	list := map[string]layer{}
	for i := range e.States.Buffers {
		b, n := &e.States.Buffers[i], e.States.Bytes(rank, i)
		if b.Cache() != caches || n == 0 {
			continue
		}
		name, t := b.State()
		x := list[graph.BlockOf(name)]
		x.bytes += n
		switch {
		case b.Part == nil && !same:
			x.parts += fields(t)
		case b.Part == nil || !same || b.Part.Field == t.Dims[b.Part.Axis].Fields[0].Name:
			x.parts++
		}
		list[graph.BlockOf(name)] = x
	}
	return list
}

// largest is what blocks must have room for.
func largest(list map[string]layer) (x layer) {
	for _, l := range list {
		x.bytes, x.parts = max(x.bytes, l.bytes), max(x.parts, l.parts)
	}
	return x
}

// BlocksOf is how such an engine would keep a rank's share, with rows in pages of a number of
// tokens. Where the other end has as many ranks, states of a layer move as they are; else by
// the fields in which they are cut.
func (e *End) BlocksOf(rank int, same bool) Blocks {
	states, caches := e.layers(rank, false, same), e.layers(rank, true, same)
	state, row := largest(states), largest(caches)
	b := Blocks{Row: row.bytes, State: state.bytes, Caches: len(caches), States: len(states), Ratio: 1}
	if b.Bytes = state.bytes; b.Caches > 0 {
		page := row.bytes * int64(e.PageTokens)
		b.Ratio = int(max(1, (state.bytes+page-1)/page))
		b.Tokens, b.Bytes = b.Ratio*e.PageTokens, int64(b.Ratio)*page
	}
	if b.States > 0 {
		b.Pad = b.Bytes - state.bytes
	}
	if b.Tensors = min(b.Caches, b.States); b.Tensors == 0 {
		b.Tensors = max(b.Caches, b.States)
	}
	b.CacheParts, b.StateParts = row.parts*b.Tensors, state.parts*b.Tensors
	return b
}

// fields is how many parts of a state are cut apart: those of its packed axis.
func fields(t graph.Type) int {
	for _, d := range t.Dims {
		if len(d.Fields) > 1 {
			return len(d.Fields)
		}
	}
	return 1
}

// Request is what a sequence takes of such blocks.
type Request struct {
	Rows        int   `json:"blocks_of_rows"`   // in each tensor of each group of layers with caches
	States      int   `json:"blocks_of_states"` // one for each group of layers with states
	Bytes       int64 `json:"bytes"`            // of all of them
	Descriptors int   `json:"descriptors"`      // that list them
}

// Request is the memory of a sequence of a number of tokens, but for blocks whose rows are there
// already.
func (b *Blocks) Request(tokens, have int) Request {
	var r Request
	groups := func(layers int) int { return (layers + max(1, b.Tensors) - 1) / max(1, b.Tensors) }
	each := 0 // of a layer with caches
	if b.Caches > 0 {
		each = (tokens+b.Tokens-1)/b.Tokens - have/b.Tokens
	}
	r.Rows, r.States = each*groups(b.Caches), groups(b.States)
	r.Bytes = b.Bytes * int64(each*b.Caches+b.States)
	r.Descriptors = b.CacheParts*b.Ratio*r.Rows + b.StateParts*r.States
	return r
}

// Pool numbers the descriptors of a pool of blocks: those of rows first, part by part and
// page by page, then those of states, part by part and block by block.
type Pool struct {
	CacheParts, StateParts int // as [Blocks] has them
	Blocks                 int // of the pool
	Ratio                  int // pages of a block
}

// CacheID is the descriptor of a part of a page of rows: block b has the pages from
// b times the ratio on.
func (p *Pool) CacheID(part, page int) int { return part*p.Blocks*p.Ratio + page }

// StateID is the descriptor of a part of a block of states.
func (p *Pool) StateID(part, block int) int {
	return p.CacheParts*p.Blocks*p.Ratio + part*p.Blocks + block
}

// Len is how many descriptors there are.
func (p *Pool) Len() int { return p.StateID(p.StateParts, 0) }

//go:build amd64 || arm64

package cpu

import (
	"math"
	"sync"
	"unsafe"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// farElements of a cache and more do not stay in a core's cache from step to step.
const farElements = 1 << 17

// queryBlock is how many tokens' scores there is room for: of a head, or one of all heads.
const queryBlock = 24

// attention is the plain one with products by tiles. Of a block of keys, which are
// transposed, and values, all tokens and heads of the group are computed; a score's sum,
// and an output's over the keys of a block, is taken apart at fixed places, and goes no
// further than the token may look, so that no row depends on others.
func (t *tiling) attention(c *kernels.Call, lo, hi int) {
	w := lookings.Get().(*looking)
	defer w.giveBack()
	q, k, v, keys, values, seg, past := &c.Args[0], &c.Args[1], &c.Args[2], &c.Args[3], &c.Args[4], &c.Args[5], c.Args[6].I32
	size := q.Unit
	held := k.Cols / size
	shared := max(1, q.Full/max(1, k.Full))
	for unit := lo; unit < hi; unit++ {
		s, group := unit/held, unit%held
		start, tokens, slot := seg.Segment(s)
		from := k.Start() + group*size
		a, b := kernels.Held(keys, from, size)
		x, z := kernels.Held(q, from*shared, size*shared)
		if a == b || tokens == 0 {
			continue
		}
		for i := range tokens {
			to, at, _ := keys.Cached(s, slot, int(past[s])+i)
			t.states.write(&to, at+a, k.Row(start + i)[group*size:][:b-a])
			to, at, _ = values.Cached(s, slot, int(past[s])+i)
			t.states.write(&to, at+a, v.Row(start + i)[from-v.Start():][:b-a])
		}
		if here, end, row := q.Here(start, tokens); x < z && here < end {
			w.tiling, w.scale = t, float32(c.Attrs.Float("scale"))
			w.keys, w.values, w.seq, w.slot, w.at = keys, values, s, slot, a
			w.first, w.tokens, w.heads, w.size, w.cols = int(past[s])+here, end-here, (z-x)/size, size, padded(size)
			w.group(headRows(q, row, x), headRows(&c.Results[0], row, x))
		}
	}
}

// headRows are the rows of a tensor from one on, and elements of them from one on.
func headRows(x *kernels.Tensor, row, element int) matrix {
	return matrix{x.F32[row*x.Stride+element:], x.Stride, 1}
}

// looking is the memory of attention, for a sequence and a group of heads.
type looking struct {
	tiling                            *tiling
	scale                             float32
	keys, values                      *kernels.Tensor
	seq, slot, at                     int // whose rows, and from which element of a row on
	first, tokens, heads, size, cols  int
	base, room                        int       // the block of keys
	k, v                              matrix    // of a block: keys transposed, values
	out                               matrix    // tokens, heads·cols apart, before they are divided
	keyRows, valueRows, wide, results []float32 // memory of these, and of keys in 16 bits
	far                               bool      // the caches are large
	runs                              []float32 // per token and head: its largest score, the sum, and how the sum before faded
	scores                            [queryBlock * keyBlock]float32
}

var lookings = sync.Pool{New: func() any { return new(looking) }}

// giveBack keeps memory, and nothing of a model's.
func (w *looking) giveBack() {
	w.keys, w.values, w.v, w.out = nil, nil, matrix{}, matrix{}
	lookings.Put(w)
}

// runSize is that of an entry of runs.
const runSize = 3

func (w *looking) run(token, head, what int) []float32 {
	return w.runs[(token*w.heads+head)*runSize+what:]
}

func (w *looking) group(q, y matrix) {
	w.far = (w.first+w.tokens)*w.keys.Stride > farElements
	sized(&w.runs, w.tokens*w.heads*runSize)
	for i := 0; i < len(w.runs); i += runSize {
		w.runs[i], w.runs[i+1] = float32(math.Inf(-1)), 0
	}
	w.out = y
	if w.cols != w.size {
		w.out = matrix{sized(&w.results, w.tokens*w.heads*w.cols), w.heads * w.cols, 1}
	}
	for w.base = 0; w.base < w.first+w.tokens; w.base += keyBlock {
		w.room = min(keyBlock, w.first+w.tokens-w.base)
		if rest := w.first + w.tokens - w.base - keyBlock; rest > 0 && w.far {
			w.ahead(w.keys, min(rest, keyBlock))
			w.ahead(w.values, min(rest, keyBlock))
		}
		w.block()
		if w.tokens == 1 {
			for h := 0; h < w.heads; h += queryBlock {
				w.one(matrix{q.at[h*w.size:], w.size, 1}, h, min(queryBlock, w.heads-h))
			}
			continue
		}
		for i := max(0, w.base-w.first); i < w.tokens; i += queryBlock {
			for h := range w.heads {
				w.many(matrix{q.at[i*q.row+h*w.size:], q.row, 1}, h, i, min(queryBlock, w.tokens-i))
			}
		}
	}
	w.finish(y)
}

// block brings the block's keys and values.
func (w *looking) block() {
	from := w.rows(w.keys, &w.wide, w.size, true)
	w.k = matrix{sized(&w.keyRows, w.size*keyBlock), keyBlock, 1}
	transpose(w.k, from, w.room, w.size)
	w.v = w.rows(w.values, &w.valueRows, w.cols, w.cols == w.size && w.tokens*w.heads <= 2*tileColumns)
}

// rows are those of the block in a cache: where they lie, if that may be and they are one
// after another there, and else a copy in memory, with cols columns.
func (w *looking) rows(x *kernels.Tensor, memory *[]float32, cols int, there bool) matrix {
	if page, at, n := x.Cached(w.seq, w.slot, w.base); there && x.DType == graph.F32 && n >= w.room {
		return matrix{page.F32[at+w.at:], x.Stride, 1}
	}
	to := matrix{sized(memory, keyBlock*cols), cols, 1}
	if cols != w.size {
		clear(to.at)
	}
	for i := 0; i < w.room; {
		page, at, n := x.Cached(w.seq, w.slot, w.base+i)
		n = min(n, w.room-i)
		readRows(&page, matrix{to.at[i*cols:], cols, 1}, at+w.at, n, w.size)
		i += n
	}
	return to
}

// ahead prefetches a number of rows of the next block.
func (w *looking) ahead(x *kernels.Tensor, rows int) {
	for i := 0; i < rows; {
		page, at, n := x.Cached(w.seq, w.slot, w.base+keyBlock+i)
		n = min(n, rows-i)
		switch x.DType {
		case graph.F32:
			prefetch(&page.F32[at+w.at], x.Stride, n, w.size)
		case graph.F8:
			prefetch((*float32)(unsafe.Pointer(&page.U8[at+w.at])), x.Stride/4, n, (w.size+3)/4)
		default:
			prefetch((*float32)(unsafe.Pointer(&page.U16[at+w.at])), x.Stride/2, n, (w.size+1)/2)
		}
		i += n
	}
}

// one is of a token's heads, which see the whole block.
func (w *looking) one(q matrix, head, heads int) {
	s := matrix{w.scores[:], keyBlock, 1}
	w.tiling.sum(s, fading{}, q, w.k, heads, w.size, padded(w.room))
	for h := range heads {
		w.tiling.softmax(&s.at[h*keyBlock], w.room, w.scale, &w.run(0, head+h, 0)[0])
	}
	y := matrix{w.out.at[head*w.cols:], w.cols, 1}
	w.tiling.sum(y, w.fades(0, head, runSize), s, w.v, heads, w.room, w.cols)
}

// fades are how the outputs so far fade, of a token and head on, step numbers apart.
func (w *looking) fades(token, head, step int) fading {
	if w.base == 0 {
		return fading{}
	}
	return fading{w.run(token, head, 2), step}
}

// many is of a head and tokens, each of which sees a key more than the one before it,
// until that is the whole block.
func (w *looking) many(q matrix, head, token, tokens int) {
	s := matrix{w.scores[:], keyBlock, 1}
	sees := w.first + token + 1 - w.base // keys that the first token sees
	n := min(keyBlock, sees+tokens-1)
	w.tiling.sum(s, fading{}, q, w.k, tokens, w.size, padded(n))
	for i := range tokens {
		w.tiling.softmax(&s.at[i*keyBlock], min(keyBlock, sees+i), w.scale, &w.run(token+i, head, 0)[0])
	}
	for from := 0; from < n; from += tileSums {
		some := max(0, from+1-sees)       // the first token that sees any of these keys
		all := max(0, from+tileSums-sees) // and that sees all
		w.weigh(s, head, token, some, min(all, tokens), from, sees+some-from, 1)
		w.weigh(s, head, token, all, tokens, from, tileSums, 0)
	}
}

// weigh adds k values from one on, more for later tokens, to the outputs of tokens lo to
// hi after one.
func (w *looking) weigh(s matrix, head, token, lo, hi, from, k, more int) {
	if lo >= hi {
		return
	}
	fades := whole
	if from == 0 {
		fades = w.fades(token+lo, head, w.heads*runSize)
	}
	y := matrix{w.out.at[(token+lo)*w.out.row+head*w.cols:], w.out.row, 1}
	x := matrix{w.v.at[from*w.v.row:], w.v.row, 1}
	w.tiling.add(y, fades, matrix{s.at[lo*keyBlock+from:], keyBlock, 1}, x, hi-lo, k, more, w.cols)
}

// finish divides by the sums.
func (w *looking) finish(y matrix) {
	for h := range w.heads {
		out := matrix{w.out.at[h*w.cols:], w.out.row, 1}
		_ = out.at[(w.tokens-1)*out.row+w.cols-1]
		w.tiling.divide(&out.at[0], out.row, &out.at[0], out.row, &w.run(0, h, 1)[0], w.heads*runSize, w.tokens, w.cols)
		for i := 0; i < w.tokens && w.cols != w.size; i++ {
			copy(y.at[i*y.row+h*w.size:][:w.size], out.at[i*out.row:])
		}
	}
}

//go:build amd64 || arm64

package cpu

import (
	"math"
	"sync"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// ssdScan is the plain one, with chunks of the same tokens. In chunks the state lies transposed, so
// that channels are in the lanes of vectors; the recurrence of tokens that make no chunk has states
// there. Of a multiplication per token, channel and state, the recurrence takes three, the matrix
// form two, and as many more as there are tokens in half a chunk, per token and channel.
func (t *tiling) ssdScan(c *kernels.Call, lo, hi int) {
	heads := c.Args[1].Cols
	w := scans.Get().(*scanning)
	defer scans.Put(w)
	for lo < hi {
		seq := lo / heads
		end := min(hi, (seq+1)*heads)
		w.sequence(t, c, seq, lo%heads, lo%heads+end-lo)
		lo = end
	}
}

// scanning is the memory of a scan in chunks.
type scanning struct {
	scores      []float32 // C_i·B_j of all chunks, for a group
	b           []float32 // B of a chunk, transposed
	kept        []float32 // a state that is kept in 16 bits
	state       []float32 // the state, transposed
	x, weighted []float32 // those of a chunk, padded, and times their weights
	sums        []float32 // C h of a chunk

	total, negative, zero  [ssdChunk]float64
	dt, fade, weight, last [ssdChunk]float32
	gates                  [ssdChunk * ssdChunk]float32
}

var scans = sync.Pool{New: func() any { return new(scanning) }}

// sequence scans heads from to to of a sequence.
func (w *scanning) sequence(t *tiling, c *kernels.Call, seq, from, to int) {
	dt, state := &c.Args[1], &c.Args[5]
	size, n := state.Dims[2], state.Dims[3]
	groups := kernels.GroupsOf(dt, &c.Args[3], n)
	start, tokens, slot := c.Args[6].Segment(seq)
	chunked := tokens
	if tokens%ssdChunk < ssdLeast {
		chunked -= tokens % ssdChunk
	}
	group := -1
	for head := from; head < to; head++ {
		s := ssdHead{
			x: &c.Args[0], dt: dt, b: &c.Args[3], c: &c.Args[4], y: &c.Results[0],
			head: head, size: size, n: n, group: groups.Of(head) * n,
			rate: c.Args[2].Vector()[head],
		}
		if chunked > 0 && s.group != group {
			group = s.group
			w.score(t, &s, start, chunked)
		}
		at := slot*state.Stride + head*size*n
		if tokens == 1 && state.DType == graph.BF16 && t.recurBF16 != nil && n%t.states.lanes == 0 {
			d, decay := s.step(start)
			t.recurBF16(&state.U16[at : at+size*n][0], &s.bAt(start)[0], &s.cAt(start)[0], &s.xAt(start)[0], &s.yAt(start)[0], size, n, d, decay)
			continue
		}
		if state.DType == graph.F32 {
			s.h = state.F32[at : at+size*n]
		} else {
			s.h = sized(&w.kept, size*n)
			t.states.read(state, s.h, at)
		}
		if chunked > 0 {
			w.chunks(t, &s, start, chunked)
		}
		w.recur(t, &s, start+chunked, tokens-chunked)
		if state.DType != graph.F32 {
			t.states.write(state, at, s.h)
		}
	}
}

// recur is the plain one.
func (w *scanning) recur(t *tiling, s *ssdHead, at, q int) {
	for ; q > 0; at, q = at+1, q-1 {
		d, decay := s.step(at)
		t.recur(&s.h[0], &s.bAt(at)[0], &s.cAt(at)[0], &s.xAt(at)[0], &s.yAt(at)[0], s.size, s.n, d, decay)
	}
}

// step is a token's, and the decay that it gives.
func (s *ssdHead) step(at int) (d, decay float32) {
	d = s.dt.Row(at)[s.head]
	return d, float32(math.Exp(float64(d) * float64(s.rate)))
}

// score has the products of the chunks, a square each.
func (w *scanning) score(t *tiling, s *ssdHead, at, tokens int) {
	sized(&w.scores, (tokens+ssdChunk-1)*ssdChunk)
	for i := 0; i < tokens; i += ssdChunk {
		q := min(ssdChunk, tokens-i)
		b := matrix{sized(&w.b, s.n*ssdChunk), ssdChunk, 1}
		transpose(b, s.from(s.b, at+i), q, s.n)
		t.sum(matrix{w.scores[i*ssdChunk:], ssdChunk, 1}, fading{}, s.from(s.c, at+i), b, q, s.n, ssdChunk)
	}
}

// from is b or c from a token on.
func (s *ssdHead) from(x *kernels.Tensor, t int) matrix {
	return matrix{x.F32[t*x.Stride+s.group:], x.Stride, 1}
}

// chunks scans the tokens in the matrix form.
func (w *scanning) chunks(t *tiling, s *ssdHead, at, tokens int) {
	cols := padded(s.size)
	sized(&w.state, s.n*cols)
	if cols != s.size {
		clear(w.state)
	}
	state, rows := matrix{w.state, cols, 1}, matrix{s.h, s.n, 1}
	transpose(state, rows, s.size, s.n)
	for i := 0; i < tokens; i += ssdChunk {
		w.chunk(t, s, state, at+i, min(ssdChunk, tokens-i), w.scores[i*ssdChunk:], tokens-i >= 2*ssdChunk)
	}
	transpose(rows, state, s.n, s.size)
}

// chunk is ssdHead's. In it are C h, a product of q × n × size; what tokens add to later
// ones, a triangle; and what they add to the state, n × q × size.
func (w *scanning) chunk(t *tiling, s *ssdHead, state matrix, at, q int, scores []float32, ahead bool) {
	w.decay(t, s, at, q, scores)
	cols := state.row
	x := matrix{s.x.F32[at*s.x.Stride+s.head*s.size:], s.x.Stride, 1}
	y := matrix{s.y.F32[at*s.y.Stride+s.head*s.size:], s.y.Stride, 1}
	weighted, sums := w.rows(&w.weighted, cols), w.rows(&w.sums, cols)
	if cols != s.size {
		x, y = w.rows(&w.x, cols), sums
		for i := range q {
			clear(x.at[i*cols+copy(x.at[i*cols:], s.xAt(at+i)) : (i+1)*cols])
		}
	}
	t.scaled(weighted, x, w.weight[:], q, cols)
	b, from := s.from(s.b, at), s.from(s.c, at)
	var before fading
	for i := 0; i < s.n; i += tileSums { // a part of the state that stays in the nearest cache
		n := min(tileSums, s.n-i)
		part := matrix{state.at[i*cols:], cols, 1}
		t.add(sums, before, matrix{from.at[i:], from.row, 1}, part, q, n, 0, cols)
		t.add(part, fading{w.last[:], 0}, matrix{b.at[i:], 1, b.row}, weighted, n, q, 0, cols)
		before = whole
		if r := i / tileSums * 4; ahead && r < ssdChunk {
			prefetch(&s.x.F32[(at+ssdChunk+r)*s.x.Stride+s.head*s.size], s.x.Stride, 4, s.size)
			prefetch(&s.y.F32[(at+ssdChunk+r)*s.y.Stride+s.head*s.size], s.y.Stride, 4, s.size)
		}
	}
	t.scaled(y, sums, w.fade[:], q, cols)
	t.add(y, whole, matrix{w.gates[:], ssdChunk, 1}, x, q, 1, 1, cols)
	if cols != s.size {
		for i := range q {
			copy(s.yAt(at+i), y.at[i*cols:])
		}
	}
}

// rows is memory for the rows of a chunk.
func (w *scanning) rows(buf *[]float32, cols int) matrix {
	return matrix{sized(buf, ssdChunk*cols), cols, 1}
}

// decay makes the factors of a chunk; see ssdHead.chunk.
func (w *scanning) decay(t *tiling, s *ssdHead, at, q int, scores []float32) {
	var sum float64
	for i := range q {
		d := s.dt.F32[(at+i)*s.dt.Stride+s.head]
		rate := float64(d) * float64(s.rate)
		if rate < -256 {
			rate = -256
		}
		sum += rate
		w.total[i], w.negative[i], w.dt[i] = sum, -sum, d
	}
	t.decays(&w.fade[0], &ones[0], &w.zero[0], &w.negative[0], &ones[0], 1)
	w.last[0] = w.fade[q-1]
	t.decays(&w.weight[0], &ones[0], &w.total[q-1], &w.total[0], &w.dt[0], 1)
	_ = scores[:q*ssdChunk]
	t.decays(&w.gates[0], &scores[0], &w.total[0], &w.total[0], &w.dt[0], q)
}

package cpu

import (
	"sync"

	"github.com/krait-ml/krait/kernels"
)

// deltaChunk is how many tokens the WY form takes together, and deltaFew those that take steps.
const (
	deltaChunk = 16
	deltaFew   = 8
)

// deltaChunks is the gated delta rule of a head in the WY form (Yang et al. 2024, section 3.3), a
// few tokens at a time, by products of matrices with columns in lanes.
type deltaChunks struct {
	*tiling
	rule  *deltaRule
	lanes *lanewises
	pairs func(w, decay, k, q, keys, queries *float32, row, rows, cols int)

	cols            int       // of the state, padded
	s, state        []float32 // the state, in its place or padded
	kt              []float32 // keys of a chunk, transposed
	keys, queries   []float32 // k_i·k_j and q_i·k_j of all chunks of a sequence, for a group
	group, from, to int       // that these are of
	known, out      []float32 // Sᵀk, then what is written; Sᵀq
	weighted, spare []float32 // what is written times weights; a row that no one reads

	total, negative, zero [deltaChunk]float64
	products              []float32 // of decays of rows, and keys and queries times these
	deltaTerms
}

// deltaTerms is what the tokens of a chunk read of the state at its beginning, of each other, and
// add to the state at its end. Decays of all rows of a state are numbers of tokens, and decays of
// each row are in the keys and queries.
type deltaTerms struct {
	readK, readQ, writeK matrix
	last                 fading              // of the state
	fade, weight, scales [deltaChunk]float32 // from the beginning; to the end; scale times fade
	ofKeys, ofQueries    [deltaChunk * deltaChunk]float32
}

// chunkedDelta is the scan of prompts by chunks, and of other tokens by the steps of the rule.
func chunkedDelta(of *deltaChunks) kernels.Set {
	pool := sync.Pool{New: func() any { w := *of; return &w }}
	return kernels.Set{"delta_scan": {Units: deltaUnits, Run: func(c *kernels.Call, lo, hi int) {
		w := pool.Get().(*deltaChunks)
		w.group = -1
		for unit := lo; unit < hi; unit++ {
			h, start, tokens, kept := deltaHeadOf(c, unit)
			h.deltaRule = w.rule
			chunked := 0
			if h.n > 0 && h.size > 0 {
				chunked = tokens
				if tokens%deltaChunk < deltaFew {
					chunked -= tokens % deltaChunk
				}
			}
			w.chunks(&h, start, chunked)
			h.steps(start+chunked, tokens-chunked)
			kept.put()
		}
		pool.Put(w)
	}}}
}

// chunks takes a head past tokens.
func (w *deltaChunks) chunks(h *deltaHead, start, tokens int) {
	if tokens == 0 {
		return
	}
	w.cols, w.s = padded(h.size), h.s
	if w.cols != h.size {
		w.s = sized(&w.state, h.n*w.cols)
		clear(w.s)
		for i := range h.n {
			copy(w.s[i*w.cols:], h.s[i*h.size:(i+1)*h.size])
		}
	}
	if h.per == 1 && (w.group != h.group || w.from != start || w.to != start+tokens) {
		w.score(h, start, tokens)
	}
	for _, rows := range []*[]float32{&w.known, &w.out, &w.weighted, &w.spare} {
		clear(sized(rows, deltaChunk*w.cols))
	}
	for i := 0; i < tokens; i += deltaChunk {
		w.chunk(h, start+i, min(deltaChunk, tokens-i), i*deltaChunk)
	}
	for i := 0; w.cols != h.size && i < h.n; i++ {
		copy(h.s[i*h.size:(i+1)*h.size], w.s[i*w.cols:])
	}
}

// rows are those of memory with the columns of the state, padded.
func (w *deltaChunks) rows(at []float32) matrix { return matrix{at, w.cols, 1} }

// score multiplies keys and queries of the group with the keys of their chunks.
func (w *deltaChunks) score(h *deltaHead, start, tokens int) {
	w.group, w.from, w.to = h.group, start, start+tokens
	sized(&w.keys, (tokens+deltaChunk-1)*deltaChunk)
	sized(&w.queries, (tokens+deltaChunk-1)*deltaChunk)
	for i := 0; i < tokens; i += deltaChunk {
		q := min(deltaChunk, tokens-i)
		kt := matrix{sized(&w.kt, h.n*deltaChunk), deltaChunk, 1}
		transpose(kt, h.rowsOf(h.k, start+i), q, h.n)
		w.sum(matrix{w.keys[i*deltaChunk:], deltaChunk, 1}, fading{}, h.rowsOf(h.k, start+i), kt, q, h.n, deltaChunk)
		w.sum(matrix{w.queries[i*deltaChunk:], deltaChunk, 1}, fading{}, h.rowsOf(h.q, start+i), kt, q, h.n, deltaChunk)
	}
}

// rowsOf is keys or queries from a token on.
func (h *deltaHead) rowsOf(x *kernels.Tensor, t int) matrix {
	return matrix{x.F32[t*x.Stride+h.group:], x.Stride, 1}
}

// chunk takes q tokens together. With a_i the sum of log decays up to token i,
//
//	x_i = beta_i (v_i - exp(a_i) Sᵀk_i - Σ_{j<i} exp(a_i - a_j) (k_i·k_j) x_j)
//	y_i = scale (exp(a_i) Sᵀq_i + Σ_{j≤i} exp(a_i - a_j) (q_i·k_j) x_j)
//	S   = exp(a_q) S + Σ_j exp(a_q - a_j) k_j x_jᵀ
//
// With a decay for each row, the exponentials of a row stand before its term in each product.
func (w *deltaChunks) chunk(h *deltaHead, t, q, scores int) {
	if h.per == 1 {
		w.decay(h, t, q, scores)
	} else {
		w.decayRows(h, t, q)
	}
	k, from := w.readK, w.readQ
	x, out, weighted := w.rows(w.known), w.rows(w.out), w.rows(w.weighted)
	var by fading
	for i := 0; i < h.n; i += tileSums {
		n, part := min(tileSums, h.n-i), w.rows(w.s[i*w.cols:])
		w.add(x, by, matrix{k.at[i:], k.row, 1}, part, q, n, 0, w.cols)
		w.add(out, by, matrix{from.at[i:], from.row, 1}, part, q, n, 0, w.cols)
		by = whole
	}
	for i := range q {
		row := w.known[i*w.cols : (i+1)*w.cols]
		d := deltaToken{fade: w.fade[i], beta: h.beta.Row(t + i)[h.head]}
		w.rule.value(row[:h.size], w.spare, h.vAt(t+i), row, &d, 0)
		if i == 0 {
			continue
		}
		gates := w.ofKeys[i*deltaChunk : i*deltaChunk+i]
		for j := range gates {
			gates[j] *= -d.beta
		}
		w.add(w.rows(row), whole, matrix{gates, deltaChunk, 1}, x, 1, i, 0, w.cols)
	}
	y := out
	if w.cols == h.size {
		y = matrix{h.y.F32[t*h.y.Stride+h.head*h.size:], h.y.Stride, 1}
	}
	w.tiling.scaled(y, out, w.scales[:], q, w.cols)
	w.add(y, whole, matrix{w.ofQueries[:], deltaChunk, 1}, x, q, 1, 1, w.cols)
	for i := 0; w.cols != h.size && i < q; i++ {
		copy(h.yAt(t+i), y.at[i*w.cols:])
	}
	w.tiling.scaled(weighted, x, w.weight[:], q, w.cols)
	for i := 0; i < h.n; i += tileSums {
		n, part := min(tileSums, h.n-i), w.rows(w.s[i*w.cols:])
		w.add(part, fading{w.last.by[i*w.last.step:], w.last.step}, matrix{w.writeK.at[i:], 1, w.writeK.row}, weighted, n, q, 0, w.cols)
	}
}

// decay makes the terms of a chunk where all rows of a state decay alike.
func (w *deltaChunks) decay(h *deltaHead, t, q, scores int) {
	var sum float64 // differences of large sums would lose an f32's digits
	for i := range q {
		// What decays to nothing in one token is gone: see ssdHead.chunk.
		if g := float64(h.g.Row(t + i)[h.head]); g < -256 {
			sum -= 256
		} else {
			sum += g
		}
		w.total[i], w.negative[i] = sum, -sum
	}
	w.decays(&w.fade[0], &ones[0], &w.zero[0], &w.negative[0], &ones[0], 1)
	w.decays(&w.weight[0], &ones[0], &w.total[q-1], &w.total[0], &ones[0], 1)
	w.readK, w.readQ, w.writeK = h.rowsOf(h.k, t), h.rowsOf(h.q, t), h.rowsOf(h.k, t)
	w.last = fading{w.fade[q-1:], 0}
	for i, v := range w.fade {
		w.scales[i] = h.scale * v
	}
	_, _ = w.keys[scores:scores+q*deltaChunk], w.queries[scores:scores+q*deltaChunk]
	w.decays(&w.ofKeys[0], &w.keys[scores], &w.total[0], &w.total[0], &ones[0], q)
	w.decays(&w.ofQueries[0], &w.queries[scores], &w.total[0], &w.total[0], &ones[0], q)
	for i := range q {
		row := w.ofQueries[i*deltaChunk : i*deltaChunk+i+1]
		for j := range row {
			row[j] *= h.scale
		}
	}
}

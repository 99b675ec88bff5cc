package cpu

// decayRows makes the terms of a chunk where each row of a state has its decay. They are products
// of single decays, of which none is above 1, where differences of log decays would take an
// exponential for each row and pair of tokens.
func (w *deltaChunks) decayRows(h *deltaHead, t, q int) {
	n := h.n
	all := sized(&w.products, (2*q+4)*n)
	row := func(i int) []float32 { return all[i*n : (i+1)*n] }
	readK, readQ, rest := all[:q*n], all[q*n:2*q*n], 2*q
	decay, negative, one, product := row(rest), row(rest+1), row(rest+2), row(rest+3)
	fillOnes(one)
	fillOnes(product)
	keys := matrix{sized(&w.kt, q*n), n, 1} // those before a token, times the decays up to it
	for i := range q {
		k, query, read := h.kAt(t+i), h.qAt(t+i), i*n
		h.negExp(negative, h.gAt(t+i))
		w.lanes.times(decay, negative, nil, nil, -1, 0)
		w.lanes.mul(product, product, decay, nil, 0, 0)
		w.lanes.mul(readK[read:read+n], product, k, nil, 0, 0)
		w.lanes.mul(readQ[read:read+n], product, query, nil, 0, 0)
		copy(keys.at[i*n:], k)
		ofKeys, ofQueries := w.ofKeys[i*deltaChunk:][:i+1], w.ofQueries[i*deltaChunk:][:i+1]
		w.pairs(&keys.at[0], &decay[0], &k[0], &query[0], &ofKeys[0], &ofQueries[0], n, i, n)
		w.pairs(&keys.at[i*n], &one[0], &k[0], &query[0], &ofKeys[i], &ofQueries[i], n, 1, n)
		for j := range ofQueries {
			ofQueries[j] *= h.scale
		}
	}
	w.readK, w.readQ, w.writeK = matrix{readK, n, 1}, matrix{readQ, n, 1}, keys
	w.last = fading{product, 1}
	fillOnes(w.fade[:])
	fillOnes(w.weight[:])
	for i := range w.scales {
		w.scales[i] = h.scale
	}
}

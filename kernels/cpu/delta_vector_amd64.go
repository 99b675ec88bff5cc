package cpu

import "github.com/krait-ml/krait/kernels"

var (
	_ = kernels.Register(avx2, chunkedDelta(&deltaChunks{tiling: &tilingAVX2, lanes: &lanesAVX2, pairs: deltaPairsAVX2,
		rule: deltaOf(&lanesAVX2, deltaReadAVX2, deltaValueAVX2, deltaWriteAVX2)}))
	_ = kernels.Register(avx512, chunkedDelta(&deltaChunks{tiling: &tilingAVX512, lanes: &lanesAVX512, pairs: deltaPairsAVX512,
		rule: deltaOf(&lanesAVX512, deltaReadAVX512, deltaValueAVX512, deltaWriteAVX512)}))
)

// deltaOf makes the steps of the gated delta rule of assembly, which checks no bounds.
func deltaOf(l *lanewises,
	read func(s, known, out, k, q *float32, row, rows, cols int),
	value func(known, y, v, out *float32, fade, beta, fresh, scale float32, cols int),
	write func(s, x, k, decay *float32, step, row, rows, cols int),
) *deltaRule {
	return &deltaRule{
		negExp: func(y, x []float32) { l.negExp(y, x, nil, nil, 0, 0) },
		read: func(s []float32, row int, known, out, k, q []float32) {
			n, cols := len(k), len(known)
			_, _, _ = s[(n-1)*row+cols-1], out[cols-1], q[n-1]
			read(&s[0], &known[0], &out[0], &k[0], &q[0], row, n, cols)
		},
		value: func(known, y, v, out []float32, d *deltaToken, scale float32) {
			n := len(known)
			_, _, _ = y[n-1], v[n-1], out[n-1]
			value(&known[0], &y[0], &v[0], &out[0], d.fade, d.beta, d.fresh, scale, n)
		},
		write: func(s []float32, row int, x, k []float32, d *deltaToken) {
			n, cols := len(k), len(x)
			_, _ = s[(n-1)*row+cols-1], d.decay[(n-1)*d.step]
			write(&s[0], &x[0], &k[0], &d.decay[0], d.step, row, n, cols)
		},
	}
}

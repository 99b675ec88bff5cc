//go:build amd64 || arm64

package cpu

// tiling is what an instruction set has for products of small matrices and what goes with
// them; see the generators in gen.
type tiling struct {
	columns    int // of a wide tile
	wide, tile multiplier
	decays     func(y, s *float32, top, a *float64, m *float32, rows int)
	softmax    func(s *float32, n int, scale float32, run *float32)
	recur      func(h, b, c, x, y *float32, rows, n int, dt, decay float32)
	recurBF16  func(h *uint16, b, c, x, y *float32, rows, n int, dt, decay float32) // of rows that fill vectors; nil: by recur
	scale      scaler
	divide     scaler
	states     *converter
}

type (
	multiplier func(a *float32, ar, ak int, x *float32, xs int, y *float32, ys int, by *float32, bs, rows, k, more int)
	scaler     func(y *float32, ys int, x *float32, xs int, by *float32, bs, rows, cols int)
)

const (
	tileColumns = 16 // of the narrowest tile; scratch memory is padded to multiples of it
	tileSums    = 32 // products in a row, before they are added to others
)

// padded is the size of rows of scratch memory for n columns.
func padded(n int) int { return (n + tileColumns - 1) / tileColumns * tileColumns }

// matrix is memory in which element (i, k) is at i·row + k·col.
type matrix struct {
	at       []float32
	row, col int
}

// fading is what rows of a result are multiplied with before sums are added: a number
// each, one for all, or none, and then the sums take their place.
type fading struct {
	by   []float32
	step int
}

var (
	ones  = func() (v [tileColumns]float32) { fillOnes(v[:]); return v }()
	whole = fading{ones[:], 0}
)

func fillOnes(v []float32) {
	for i := range v {
		v[i] = 1
	}
}

// add sets y[r] = by[r] y[r] + Σ_k a[r, k] x[k], over k + r·more elements, in order.
// The columns are a multiple of 16.
func (t *tiling) add(y matrix, by fading, a, x matrix, rows, k, more, cols int) {
	last := k - 1 + more*(rows-1) // the assembly checks no bounds
	_ = a.at[(rows-1)*a.row+last*a.col]
	_, _ = x.at[last*x.row+cols-1], y.at[(rows-1)*y.row+cols-1]
	var from *float32
	if by.by != nil {
		_ = by.by[(rows-1)*by.step]
		from = &by.by[0]
	}
	for j := 0; j < cols; {
		run, n := t.tile, tileColumns
		if cols-j >= t.columns {
			run, n = t.wide, t.columns
		}
		run(&a.at[0], a.row, a.col, &x.at[j], x.row, &y.at[j], y.row, from, by.step, rows, k, more)
		j += n
	}
}

// sum is add for long sums, which are taken apart at fixed places.
func (t *tiling) sum(y matrix, by fading, a, x matrix, rows, k, cols int) {
	for i := 0; i < k; i += tileSums {
		n := min(tileSums, k-i)
		t.add(y, by, matrix{a.at[i*a.col:], a.row, a.col}, matrix{x.at[i*x.row:], x.row, x.col}, rows, n, 0, cols)
		by = whole
	}
}

// scaled sets y[r] = x[r] by[r], for a multiple of 16 columns.
func (t *tiling) scaled(y, x matrix, by []float32, rows, cols int) {
	_, _, _ = x.at[(rows-1)*x.row+cols-1], y.at[(rows-1)*y.row+cols-1], by[rows-1]
	t.scale(&y.at[0], y.row, &x.at[0], x.row, &by[0], 1, rows, cols)
}

// transpose sets dst[c][r] = src[r][c].
func transpose(dst, src matrix, rows, cols int) {
	_, _ = src.at[(rows-1)*src.row+cols-1], dst.at[(cols-1)*dst.row+rows-1]
	r, c := rows&^7, cols&^7
	if r > 0 && c > 0 {
		transposeSquares(&src.at[0], src.row, &dst.at[0], dst.row, r, c)
	} else {
		r, c = 0, 0
	}
	for i := range rows {
		from := c
		if i >= r {
			from = 0
		}
		for j := from; j < cols; j++ {
			dst.at[j*dst.row+i] = src.at[i*src.row+j]
		}
	}
}

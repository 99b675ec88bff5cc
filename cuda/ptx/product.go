package ptx

// Product returns the matrix a[m k] · b[n k]ᵀ, of f32, as the tensor cores of a GPU of a compute
// capability sum it if their accumulators hold all of k. The elements of a and b are numbers of 16
// bits, or of tf32.
func Product(capability [2]int, a, b []float32, m, n, k int, tf32 bool) []float32 {
	t := tensorCoreOf(capability)
	step := t.terms / 4
	if tf32 {
		step /= 2
	}
	right, out := make([]factors, n), make([]float32, m*n)
	for j := range right {
		right[j] = factorsOf(b[j*k:][:k], step)
	}
	for i := range m {
		left := factorsOf(a[i*k:][:k], step)
		for j := range right {
			out[i*n+j] = float32(t.product(&left, &right[j], step))
		}
	}
	return out
}

// factors is a row of a matrix, with zeros up to a whole step of tensor cores.
type factors struct {
	quads    []quad
	infinite bool // an element is infinite or NaN
}

func factorsOf(row []float32, step int) factors {
	o := factors{quads: make([]quad, (len(row)+4*step-1)/(4*step)*step)}
	for i, v := range row {
		o.quads[i/4][i%4] = factorOf(float64(v))
		o.infinite = o.infinite || v-v != 0
	}
	return o
}

// product returns the sum of the products of two rows.
func (t tensorCore) product(a, b *factors, step int) (sum float64) {
	if a.infinite || b.infinite {
		for i := range a.quads {
			for e := range 4 {
				sum += a.quads[i][e].v * b.quads[i][e].v
			}
		}
		return sum
	}
	for i := 0; i < len(a.quads); i += step {
		sum = t.sum(sum, a.quads[i:i+step], b.quads[i:i+step])
	}
	return sum
}

//go:build amd64 || arm64

package cpu

// assembled is a function of the generator in gen, which takes n elements of each row. Elements do
// not mind where in a vector they are.
func assembled(f func(y, a, b, c *float32, n int, p, q float64)) lanewise {
	return func(y, a, b, c []float32, p, q float64) {
		if n := len(y); n > 0 {
			f(&y[0], first(a, n), first(b, n), first(c, n), n, p, q)
		}
	}
}

// first is where the first of n elements is: the assembly checks no bounds.
func first(x []float32, n int) *float32 {
	if x == nil {
		return nil
	}
	return &x[:n][0]
}

func assembledSum(f func(x *float32, n int) float64) func(x []float32) float64 {
	return func(x []float32) float64 {
		if len(x) == 0 {
			return 0
		}
		return f(&x[0], len(x))
	}
}

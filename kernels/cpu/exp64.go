package cpu

import "math"

// exp64 cuts each power of two into this many steps, equal factors.
const (
	expBits  = 5
	expSteps = 1 << expBits
)

// fractions holds 2^(i/expSteps).
var fractions = func() (table [expSteps]float64) {
	for i := range table {
		table[i] = math.Exp2(float64(i) / expSteps)
	}
	return table
}()

// exp64 is e to the power of x for x at most 0, with a relative error below
// 1e-11, and 0 where that is below 1e-299. It is faster than math.Exp, which
// would take most of the time of choosing a token.
func exp64(x float64) float64 {
	if !(x >= -690) {
		return math.Exp(min(x, -1e3)) // 0, or a NaN
	}
	// e^x = 2^(n/steps) e^r, with |r| so small that a short power series will do.
	n := int(x*(expSteps*math.Log2E) - 0.5)
	r := x - float64(n)*(math.Ln2/expSteps)
	whole, part := n>>expBits, n&(expSteps-1)
	power := math.Float64frombits(uint64(whole+1023) << 52)
	return power * fractions[part] * (1 + r*(1+r*(1./2+r*(1./6+r*(1./24)))))
}

package cpu

import "math"

// expInto sets dst[i] = exp(s·x[i]), to about 2 units in the last place; results below the smallest
// normal number are 0. Range reduction by powers of two and a polynomial of degree 7, after Cody
// and Waite (1980); the coefficients are those of Moshier's Cephes expf.
func expInto(dst, x []float32, s float32) {
	const (
		log2e      = 1.44269504088896341
		ln2Hi      = 0.693359375
		ln2Lo      = -2.12194440e-4
		roundMagic = 3 << 22 // adding it rounds to an integer, which the low bits then hold
		magicBits  = 0x4B400000
	)
	x = x[:len(dst)]
	for i := range dst {
		v := s * x[i]
		if !(v > -87.3) || v > 88.3 {
			dst[i] = expEdge(v)
			continue
		}
		k := v*log2e + roundMagic
		pow := math.Float32frombits(uint32(int32(math.Float32bits(k))-magicBits+127) << 23)
		k -= roundMagic
		r := v - k*ln2Hi - k*ln2Lo
		p := float32(1.9875691500e-4)
		p = p*r + 1.3981999507e-3
		p = p*r + 8.3334519073e-3
		p = p*r + 4.1665795894e-2
		p = p*r + 1.6666665459e-1
		p = p*r + 5.0000001201e-1
		dst[i] = (p*r*r + r + 1) * pow
	}
}

// expEdge is exp where it leaves the normal numbers, and of a NaN.
func expEdge(v float32) float32 {
	if v <= -87.3 {
		return 0
	}
	return float32(math.Exp(float64(v)))
}

package common

// Exp2 is a series of 2^r for r between -1/2 and 1/2, a minimax one in f32, with a relative error
// of 2^-27.
var Exp2 = []float32{1, 0x1.62e432p-1, 0x1.ebfbe6p-3, 0x1.c6adaap-5, 0x1.3b2178p-7, 0x1.5fc10cp-10, 0x1.4c1f26p-13}

// Exp is a series of e^r for r between -log(2)/2 and log(2)/2, Log1p of log(1+w)/w for w between 0
// and 1, and Tail of what gelu says. They interpolate at the zeros of Chebyshev's polynomials.
var (
	Exp = []float64{1, 1, 0x1.00000028b7ad0p-1, 0x1.555555676c0dfp-3, 0x1.5554ac342f79ep-5, 0x1.1110c5ed95239p-7,
		0x1.6d75e5bb47f01p-10, 0x1.a152097a5fd28p-13}
	Log1p = []float64{0x1.fffffffed8c7bp-1, -0x1.fffffd65a93acp-2, 0x1.5554d749ef487p-2, -0x1.ffed11a358664p-3,
		0x1.98da7a155e551p-3, -0x1.50ca34d7e598bp-3, 0x1.1280b7c71ae34p-3, -0x1.9cf36293f2432p-4, 0x1.041b9d1381107p-4,
		-0x1.e83ede10ee73fp-6, 0x1.247963d998a1cp-7, -0x1.485b9225a061ep-10}
	Tail = []float64{0x1.ea392a9acfd30p-4, 0x1.ea260e2f94606p-4, 0x1.bec8be046f5ccp-4, 0x1.62b9f6d298b98p-4,
		0x1.e34c192fe8c12p-5, 0x1.113d3150a2e73p-5, -0x1.60ba090b22f25p-5, 0x1.bb18949132041p-4, -0x1.b4b1e2c48bbd0p-3,
		0x1.766d26fd034b1p-3, -0x1.2f109823f80d7p-4, 0x1.85bf665d33b49p-7}
)

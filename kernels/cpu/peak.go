package cpu

import "encoding/binary"

// Peak is what a core does at best with an instruction set: kernels are measured against it.
type Peak struct {
	ISA string
	// Read reads data, as fast as it goes. A rest of less than Turn bytes may be left.
	Read func(data []byte)
	Turn int
	// Multiply computes n times as many floating-point operations as FLOPs says, in
	// registers: multiplications whose results are added.
	Multiply func(n int)
	FLOPs    int
}

// peaks lists those in assembly, each better than those before it.
var peaks []Peak

// BestPeak is that of the best instruction set that can be used here and has one. AMX has none of
// its own: what it does depends on the format of weights, and others take AVX-512.
func BestPeak() Peak {
	best := Peak{plain, readPlain, 64, multiplyPlain, 2 * 8}
	for _, p := range peaks {
		for _, name := range ISAs() {
			if p.ISA == name {
				best = p
			}
		}
	}
	return best
}

func readPlain(data []byte) {
	var s [4]uint64
	for ; len(data) >= 64; data = data[64:] {
		d := data[:64]
		for i := 0; i < 64; i += 32 {
			s[0] |= binary.LittleEndian.Uint64(d[i:])
			s[1] |= binary.LittleEndian.Uint64(d[i+8:])
			s[2] |= binary.LittleEndian.Uint64(d[i+16:])
			s[3] |= binary.LittleEndian.Uint64(d[i+24:])
		}
	}
	for _, v := range s {
		consume(v)
	}
}

func multiplyPlain(n int) {
	var a, b, c, d, e, f, g, h float32
	x := float32(n)
	for range n {
		a += x * a
		b += x * b
		c += x * c
		d += x * d
		e += x * e
		f += x * f
		g += x * g
		h += x * h
	}
	consume(uint64(a + b + c + d + e + f + g + h))
}

// consume keeps the compiler from leaving out unused results.
//
//go:noinline
func consume(uint64) {}

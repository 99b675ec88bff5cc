package sim

import (
	"encoding/binary"
	"math"

	"github.com/x448/float16"

	"github.com/krait-ml/krait/cuda/driver"
)

// load widens numbers.
func load(f driver.Format, b []byte, into []float32) {
	le := binary.LittleEndian
	switch f {
	case driver.F32:
		for i := range into {
			into[i] = math.Float32frombits(le.Uint32(b[4*i:]))
		}
	case driver.TF32:
		for i := range into {
			into[i] = tf32(math.Float32frombits(le.Uint32(b[4*i:])))
		}
	case driver.BF16:
		for i := range into {
			into[i] = math.Float32frombits(uint32(le.Uint16(b[2*i:])) << 16)
		}
	case driver.F16:
		for i := range into {
			into[i] = float16.Frombits(le.Uint16(b[2*i:])).Float32()
		}
	}
}

// store rounds numbers to the nearest.
func store(f driver.Format, b []byte, from []float32) {
	le := binary.LittleEndian
	switch f {
	case driver.F32, driver.TF32:
		for i, x := range from {
			le.PutUint32(b[4*i:], math.Float32bits(x))
		}
	case driver.BF16:
		for i, x := range from {
			le.PutUint16(b[2*i:], bf16(x))
		}
	case driver.F16:
		for i, x := range from {
			le.PutUint16(b[2*i:], float16.Fromfloat32(x).Bits())
		}
	}
}

// tf32 keeps 10 bits of the fraction.
func tf32(x float32) float32 {
	bits := math.Float32bits(x)
	if bits>>23&0xff == 0xff { // infinite, or not a number
		return x
	}
	return math.Float32frombits((bits + 1<<12) &^ (1<<13 - 1))
}

// bf16 keeps 7 bits of the fraction, ties to even.
func bf16(x float32) uint16 {
	bits := math.Float32bits(x)
	if x != x {
		return uint16(bits>>16) | 1<<6
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}

package graph

import (
	"encoding/binary"
	"math"
)

// Folders that are published in 8 and 4 bits keep codes and scales in tensors of their own. Krait
// lays them together, so that a rank's blocks are all that it reads, and a row is cut where it
// likes. Codes of 4 bits lie as in ggml's blocks: of 32 elements, the lower halves of 16 bytes are
// the first ones. Numbers of several bytes are little-endian.
//
//	FP8_128, FP8_32     f32 scale, a code a byte      E4M3(code)·scale
//	NVFP4               f32 second, 8 scales, codes   E2M1(code)·(E4M3(scale)·second), a scale per 16
//	MXFP4               scale, codes                  E2M1(code)·2^(scale−127)
//	INT4_128, INT4_32   f32 scale, zero, codes        code·scale − zero·scale
//
// E4M3 and E2M1 are those of OCP's 8-bit floating point 1.0 and microscaling formats 1.0.

// Parts are the numbers of a block of FP8_128 and the formats after it.
type Parts struct {
	Codes  []byte  // a byte each; zeros fill the block
	Scale  float32 // the second one of NVFP4; MXFP4 has none
	Scales []byte  // of NVFP4, 8, E4M3; of MXFP4, 1, E8M0
	Zero   byte    // INT4: the code that stands for 0
}

// Pack lays parts in a block.
func (d DType) Pack(b []byte, p *Parts) {
	at := 4
	if d == MXFP4 {
		at = 0
	} else {
		binary.LittleEndian.PutUint32(b, math.Float32bits(p.Scale))
	}
	switch d {
	case NVFP4, MXFP4:
		at += copy(b[at:], p.Scales)
	case INT4_128, INT4_32:
		b[at] = p.Zero
		at++
	default:
		clear(b[at+copy(b[at:], p.Codes):])
		return
	}
	var codes [MaxBlockLen]byte
	for i := copy(codes[:], p.Codes); i < d.Format().Elems; i++ {
		codes[i] = p.Zero
	}
	for k := range d.Format().Elems / 32 {
		packNibbles(b[at+16*k:], codes[32*k:])
	}
}

func single(b []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b)) }

// PowerOfTwo is what a scale of E8M0, such as MXFP4 has, stands for: 255 is NaN.
func PowerOfTwo(code byte) float32 {
	switch code {
	case 0:
		return 0x1p-127
	case 255:
		return float32(math.NaN())
	}
	return math.Float32frombits(uint32(code) << 23)
}

// E4M3Values are the numbers that codes of E4M3 stand for; 0x7f and 0xff are NaN.
var E4M3Values = func() (values [256]float32) {
	for code := range 128 {
		v := math.Ldexp(float64(8+code%8), code/8-10)
		switch {
		case code < 8:
			v = math.Ldexp(float64(code), -9)
		case code == 127:
			v = math.NaN()
		}
		values[code], values[128+code] = float32(v), float32(math.Copysign(v, -1))
	}
	return values
}()

func fp8(to []float32, b []byte) {
	scale := single(b)
	for i, code := range b[4:][:len(to)] {
		to[i] = E4M3Values[code] * scale
	}
}

func nvfp4(to []float32, b []byte) {
	var scales [16]float32
	NVFP4.PartScales(&scales, b)
	levels := NVFP4.Levels()
	for i, q := range b[12:76] {
		k, i := i/16, i%16
		to[32*k+i] = levels[q&15] * scales[2*k]
		to[32*k+16+i] = levels[q>>4] * scales[2*k+1]
	}
}

// encodeParts rounds to the nearest codes, with scales at which the largest magnitude is the
// largest number, or near it.
func encodeParts(d DType, b []byte, x []float32, most float32) {
	p := Parts{Codes: make([]byte, len(x))}
	switch d {
	case FP8_128, FP8_32:
		p.Scale = most / 448
		for i, v := range x {
			p.Codes[i] = ToE4M3(over(v, p.Scale))
		}
	case NVFP4:
		p.Scale, p.Scales = most/(6*448), make([]byte, 8)
		for k := range p.Scales {
			part := x[16*k:][:16]
			p.Scales[k] = ToE4M3(over(largestOf(part), 6*p.Scale))
			toLevels(p.Codes[16*k:], part, E4M3Values[p.Scales[k]]*p.Scale)
		}
	case MXFP4:
		_, exponent := math.Frexp(float64(most)) // the largest number is 6, of exponent 2
		p.Scales = []byte{byte(min(max(exponent-3+127, 0), 254))}
		toLevels(p.Codes, x, PowerOfTwo(p.Scales[0]))
	default:
		scale, least := fitAffine(x, importance(x), 15, true)
		p.Scale = float32(scale)
		if scale != 0 {
			p.Zero = byte(min(max(math.Round(least/scale), 0), 15))
		}
		for i, v := range x {
			p.Codes[i] = byte(min(max(math.Round(float64(over(v, p.Scale)))+float64(p.Zero), 0), 15))
		}
	}
	d.Pack(b, &p)
}

// over is v / scale; 0 where that is 0.
func over(v, scale float32) float32 {
	if scale == 0 {
		return 0
	}
	return v / scale
}

func largestOf(x []float32) (most float32) {
	for _, v := range x {
		most = max(most, v, -v)
	}
	return most
}

// ToE4M3 is the code nearest to v, of two the even one; beyond 448 that of 448, and of a NaN a NaN.
func ToE4M3(v float32) byte {
	const least, toLeast = 0x1p-6, 0x1p9 // the least normal number; what makes denormals whole
	bits := math.Float32bits(v)
	sign := byte(bits >> 24 & 0x80)
	switch size := math.Float32frombits(bits &^ (1 << 31)); {
	case v != v:
		return sign | 0x7f
	case size >= 448:
		return sign | 0x7e
	case size < least:
		return sign | byte(math.RoundToEven(float64(size)*toLeast))
	}
	bits &^= 1 << 31
	bits += 1<<19 - 1 + bits>>20&1
	return sign | byte(bits>>20-120<<3)
}

// toLevels are the codes of E2M1 nearest to x / scale, of two the even one.
func toLevels(codes []byte, x []float32, scale float32) {
	levels := NVFP4.Levels()
	for i, v := range x {
		size, code := float32(math.Abs(float64(over(v, scale)))), byte(0)
		for code < 7 {
			middle := (levels[code] + levels[code+1]) / 2
			if size < middle || size == middle && code%2 == 0 {
				break
			}
			code++
		}
		if math.Signbit(float64(v)) {
			code |= 8
		}
		codes[i] = code
	}
}

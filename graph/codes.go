package graph

// HasCodes reports whether elements are whole numbers of 8 bits times scales: those of ggml's
// formats, which [DType.Codes] takes apart.
func (d DType) HasCodes() bool { return d >= Q8 && d <= Q6_K }

// Codes takes a block apart, for integer products: element i is
// codes[i]·scales[i/part] + least[i/part], of parts of as many elements as it returns.
func (d DType) Codes(codes *[MaxBlockLen]int8, scales, least *[16]float32, b []byte) (part int) {
	clear(least[:])
	switch d {
	case Q8:
		scales[0] = half(b)
		for i, q := range b[2:BlockBytes] {
			codes[i] = int8(q)
		}
	case Q4_K, Q5_K:
		low, high := b[16:], []byte(nil)
		if d == Q5_K {
			low, high = b[48:], b[16:48]
		}
		d.PartScales(scales, b)
		for k := range 8 {
			least[k] = -scales[8+k]
			for i := range 32 {
				codes[32*k+i] = int8(nibbles(low, high, k, i))
			}
		}
	case Q6_K:
		d.PartScales(scales, b)
		for i := range MaxBlockLen {
			codes[i] = int8(six(b, i)) - 32
		}
		return 16
	default:
		for k := range d.Format().Elems / 32 {
			levels, high := d.Levels(), uint32(0)
			var numbers []byte
			numbers, high, scales[k], least[k] = d.coded(b, k)
			for i, q := range numbers[:16] {
				codes[32*k+i] = int8(levels[q&15]) + int8(high>>i&1<<4)
				codes[32*k+16+i] = int8(levels[q>>4]) + int8(high>>(i+16)&1<<4)
			}
		}
	}
	return 32
}

// nibbles is element i of part k of a block of Q4_K or, with fifth bits, of Q5_K.
func nibbles(low, high []byte, k, i int) byte {
	v := low[k/2*32+i] >> (k % 2 * 4) & 15
	if high != nil {
		v |= high[i] >> k & 1 << 4
	}
	return v
}

// six is element i of a block of Q6_K, plus 32.
func six(b []byte, i int) byte {
	n, k, at := i/128, i/32%4, i%32
	return b[n*64+k%2*32+at]>>(k/2*4)&15 | b[128+n*32+at]>>(2*k)&3<<4
}

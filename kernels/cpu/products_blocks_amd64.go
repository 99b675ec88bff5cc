package cpu

import (
	"encoding/binary"
	"maps"
	"math"
	"sync"
	"unsafe"

	"github.com/krait-ml/krait/graph"
	"github.com/x448/float16"
	"golang.org/x/sys/cpu"
)

var (
	blocksAVX2 = map[graph.DType]blockWeights{
		graph.Q8: {widen: widenBlocksAVX2}, graph.Q4_K: {widen: widenQ4K}, graph.Q5_K: {widen: widenQ5K}, graph.Q6_K: {widen: widenQ6K},
		graph.Q4_0: byCode(graph.Q4_0, 0, widenFoursAVX2), graph.Q4_1: byCode(graph.Q4_1, 0, widenFoursOffAVX2),
		graph.Q5_0: byCode(graph.Q5_0, 0, widenFivesAVX2), graph.Q5_1: byCode(graph.Q5_1, 0, widenFivesOffAVX2),
		graph.IQ4_NL: byCode(graph.IQ4_NL, graph.MinusZero, widenFoursAVX2), graph.IQ4_XS: {widen: widenIQ4XS},
		graph.FP8_128: byE4M3(graph.FP8_128), graph.FP8_32: byE4M3(graph.FP8_32), graph.NVFP4: {widen: widenNVFP4},
		graph.MXFP4: byPart(graph.MXFP4), graph.INT4_128: byPart(graph.INT4_128), graph.INT4_32: byPart(graph.INT4_32),
	}
	q8AVX512 = blockWeights{[]tile[byte]{gemmQ8x4x1AVX512, gemmQ8x4x2AVX512, gemmQ8x4x3AVX512, gemmQ8x4x4AVX512, gemmQ8x4x5AVX512, gemmQ8x4x6AVX512}, widenBlocksAVX512, spreadBlocksAVX512}
)

// blocksWide is for AVX-512, of which the oldest processors do not have all.
func blocksWide() map[graph.DType]blockWeights {
	wide := maps.Clone(blocksAVX2)
	if cpu.X86.HasAVX512VNNI {
		wide[graph.Q8] = q8AVX512
	}
	return wide
}

func widenQ4K(to *float32, from *byte, n int) { widenParts(graph.Q4_K, to, from, n) }
func widenQ5K(to *float32, from *byte, n int) { widenParts(graph.Q5_K, to, from, n) }
func widenQ6K(to *float32, from *byte, n int) { widenParts(graph.Q6_K, to, from, n) }

// widenParts widens n blocks of 256 whose parts have scales.
func widenParts(d graph.DType, to *float32, from *byte, n int) {
	f := d.Format()
	in, out := unsafe.Slice(from, n*f.Bytes), unsafe.Slice(to, n*f.Elems)
	var scales [16]float32
	for i := range n {
		block, numbers := in[i*f.Bytes:][:f.Bytes], &out[i*f.Elems]
		switch d.PartScales(&scales, block); d {
		case graph.Q4_K:
			widenQ4KAVX2(numbers, &block[0], &scales[0])
		case graph.Q5_K:
			widenQ5KAVX2(numbers, &block[0], &scales[0])
		default:
			widenQ6KAVX2(numbers, &block[0], &scales[0])
		}
	}
}

// codes is what widens elements that are a level times a scale: the levels of codes, the numbers of
// lanes, what is added where blocks do not say it, and the scales of the parts of a block.
type codes struct {
	levels [16]float32
	lanes  [8]uint32
	least  float32
	scales [16]float32
}

// byCode is for a format whose blocks have 32 elements, each a level times a scale.
func byCode(d graph.DType, least float32, widen func(to *float32, block *byte, n int, scales *float32)) blockWeights {
	c := codes{levels: *d.Levels(), lanes: [8]uint32{0, 1, 2, 3, 4, 5, 6, 7}, least: least}
	return blockWeights{widen: func(to *float32, from *byte, n int) { widen(to, from, n, &c.levels[0]) }}
}

// widenIQ4XS widens n blocks of 8 parts.
func widenIQ4XS(to *float32, from *byte, n int) {
	f := graph.IQ4_XS.Format()
	in, out := unsafe.Slice(from, n*f.Bytes), unsafe.Slice(to, n*f.Elems)
	c := codes{levels: *graph.IQ4_XS.Levels(), least: graph.MinusZero}
	for ; len(in) > 0; in, out = in[f.Bytes:], out[f.Elems:] {
		graph.IQ4_XS.PartScales(&c.scales, in)
		widenScaledAVX2(&out[0], &in[8], 8, &c.levels[0])
	}
}

// widenNVFP4 widens n blocks of 4 parts with two scales each.
func widenNVFP4(to *float32, from *byte, n int) {
	f := graph.NVFP4.Format()
	in, out := unsafe.Slice(from, n*f.Bytes), unsafe.Slice(to, n*f.Elems)
	c := codes{levels: *graph.NVFP4.Levels(), least: graph.MinusZero}
	for ; len(in) > 0; in, out = in[f.Bytes:], out[f.Elems:] {
		graph.NVFP4.PartScales(&c.scales, in)
		widenHalvesAVX2(&out[0], &in[12], 4, &c.levels[0])
	}
}

// byPart is for a format of few bytes before its codes, with a scale and a least number of all
// parts.
func byPart(d graph.DType) blockWeights {
	f := d.Format()
	parts := f.Elems / 32
	return blockWeights{widen: func(to *float32, from *byte, n int) {
		in, out := unsafe.Slice(from, n*f.Bytes), unsafe.Slice(to, n*f.Elems)
		c := codes{levels: *d.Levels()}
		for ; len(in) > 0; in, out = in[f.Bytes:], out[f.Elems:] {
			var numbers []byte
			numbers, c.scales[0], c.least = d.Part(in)
			for k := 1; k < parts; k++ {
				c.scales[k] = c.scales[0]
			}
			widenScaledAVX2(&out[0], &numbers[0], parts, &c.levels[0])
		}
	}}
}

// byE4M3 is for an f32 scale and a code a byte.
func byE4M3(d graph.DType) blockWeights {
	f := d.Format()
	return blockWeights{widen: func(to *float32, from *byte, n int) {
		in, out := unsafe.Slice(from, n*f.Bytes), unsafe.Slice(to, n*f.Elems)
		for ; len(in) > 0; in, out = in[f.Bytes:], out[f.Elems:] {
			scale := math.Float32frombits(binary.LittleEndian.Uint32(in))
			fromE4M3AVX2(&out[0], &in[4], &scale, f.Elems)
		}
	}}
}

// blockScales has for each f16 what it is in f32, and that times -3·2²², once fillScales
// was called.
var (
	blockScales [1 << 16][2]float32
	fillScales  = sync.OnceFunc(func() {
		for i := range blockScales {
			s := float16.Frombits(uint16(i)).Float32()
			blockScales[i] = [2]float32{s, s * (-3 << 22)}
		}
	})
)

package cpu

import (
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

var (
	_ = kernels.Register(neon, lanesNEON.kernels())
	_ = kernels.Register(neon, (&norms{assembledSum(squaresNEON), &lanesNEON}).kernels())
	_ = kernels.Register(neon, convertNEON.kernels())
	_ = kernels.Register(neon, (&convolver{addSilu: lanesNEON.addSilu, states: &convertNEON}).kernels()) // silu has one value
	_ = kernels.Register(neon, productsNEON.kernels(&shortNEON))
	_ = kernels.Register(neon, kernels.Set{
		"selective_scan": {Units: scanUnits, Run: (&scanner{scanNEON, nil, &tilingNEON}).run},
		"ssd_scan":       {Units: ssdUnits, Run: tilingNEON.ssdScan},
		"attention":      {Units: attentionUnits, Run: tilingNEON.attention},
	})
)

var lanesNEON = lanewises{
	add:         assembled(addNEON),
	mul:         assembled(mulNEON),
	times:       assembled(timesNEON),
	addMul:      assembled(addMulNEON),
	addTimes:    assembled(addTimesNEON),
	relu:        assembled(reluNEON),
	relu2:       assembled(relu2NEON),
	clamp:       assembled(clampNEON),
	norm:        assembled(normNEON),
	weigh:       assembled(weighNEON),
	gelu:        assembled(geluNEON),
	geluTanh:    assembled(geluTanhNEON),
	silu:        assembled(siluNEON),
	siluMul:     assembled(siluMulNEON),
	addSilu:     assembled(addSiluNEON),
	softplus:    assembled(softplusNEON),
	addSoftplus: assembled(addSoftplusNEON),
	negExp:      assembled(negExpNEON),
}

var productsNEON = products{
	lanes: 8, fewPasses: 4,
	row:  []tile[float32]{gemmF32x1x1NEON, gemmF32x1x2NEON, gemmF32x1x3NEON},
	f32:  []tile[float32]{gemmF32x4x1NEON, gemmF32x4x2NEON, gemmF32x4x3NEON},
	bf16: narrow{[]tile[uint16]{gemmBF16x4x1NEON, gemmBF16x4x2NEON, gemmBF16x4x3NEON}, widenBF16NEON, nil},
	f16:  narrow{[]tile[uint16]{gemmF16x4x1NEON, gemmF16x4x2NEON, gemmF16x4x3NEON}, widenF16NEON, nil},

	blocks: map[graph.DType]blockWeights{graph.Q8: {widen: widenBlocksNEON}},
}

var shortNEON = shortProducts{
	lanes: 4, pack: packShortNEON,
	f32:  []shortProduct[float32]{{3, nil, shortF32x3NEON}, {1, shortF32x1NEON, nil}},
	bf16: []shortProduct[uint16]{{3, nil, shortBF16x3NEON}, {1, shortBF16x1NEON, nil}},
	f16:  []shortProduct[uint16]{{3, nil, shortF16x3NEON}, {1, shortF16x1NEON, nil}},
}

var tilingNEON = tiling{
	columns: tileColumns, wide: tile16NEON, tile: tile16NEON,
	decays: decaysNEON, softmax: softmaxNEON, recur: recurNEON, scale: scaleRowsNEON, divide: divideRowsNEON, states: &convertNEON,
}

var (
	convertNEON      = converter{lanes: 8, fromBF16: widenBF16NEON, fromF16: widenF16NEON, toBF16: roundBF16NEON, toF16: roundF16NEON, blocks: &bytesCodec{}}
	transposeSquares = transposeNEON
)

// readRows reads rows of n elements, from the one at index at on.
func readRows(x *kernels.Tensor, dst matrix, at, rows, n int) {
	for i := range rows {
		convertNEON.read(x, dst.at[i*dst.row:][:n], at+i*x.Stride)
	}
}

// prefetch leaves that to the processor.
func prefetch(_ *float32, _, _, _ int) {}

// fillScales: nothing here has the scales in a table.
func fillScales() {}

func init() {
	peaks = []Peak{peakOf("neon", 8, readNEON, multiplyNEON)} // vectors are two registers
	integerProducts["neon"] = &plainIntegers
}

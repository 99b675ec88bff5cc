package cpu

import (
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

func init() {
	peaks = []Peak{peakOf("avx2", 8, readAVX2, multiplyAVX2), peakOf("avx512", 16, readAVX512, multiplyAVX512)}
}

var productsAVX2 = products{
	lanes: 8, fewPasses: panelTokens, // all that do not go through panels
	panels: &panelsAVX2,
	row:    []tile[float32]{gemmF32x1x1AVX2, gemmF32x1x2AVX2, gemmF32x1x3AVX2},
	f32:    []tile[float32]{gemmF32x4x1AVX2, gemmF32x4x2AVX2, gemmF32x4x3AVX2},
	one:    streamF32AVX2,
	bf16:   narrow{[]tile[uint16]{gemmBF16x4x1AVX2, gemmBF16x4x2AVX2, gemmBF16x4x3AVX2}, widenBF16AVX2, streamBF16AVX2},
	f16:    narrow{[]tile[uint16]{gemmF16x4x1AVX2, gemmF16x4x2AVX2, gemmF16x4x3AVX2}, widenF16AVX2, streamF16AVX2},
	blocks: blocksAVX2,
}

var productsAVX512 = products{
	lanes: 16, fewPasses: 4,
	panels: &panelsAVX512,
	row:    []tile[float32]{gemmF32x1x1AVX512, gemmF32x1x2AVX512, gemmF32x1x3AVX512, gemmF32x1x4AVX512, gemmF32x1x5AVX512, gemmF32x1x6AVX512},
	f32:    []tile[float32]{gemmF32x4x1AVX512, gemmF32x4x2AVX512, gemmF32x4x3AVX512, gemmF32x4x4AVX512, gemmF32x4x5AVX512, gemmF32x4x6AVX512},
	one:    streamF32AVX512,
	bf16:   narrow{[]tile[uint16]{gemmBF16x4x1AVX512, gemmBF16x4x2AVX512, gemmBF16x4x3AVX512, gemmBF16x4x4AVX512, gemmBF16x4x5AVX512, gemmBF16x4x6AVX512}, widenBF16AVX512, streamBF16AVX512},
	f16:    narrow{[]tile[uint16]{gemmF16x4x1AVX512, gemmF16x4x2AVX512, gemmF16x4x3AVX512, gemmF16x4x4AVX512, gemmF16x4x5AVX512, gemmF16x4x6AVX512}, widenF16AVX512, streamF16AVX512},
	blocks: blocksWide(),
}

var (
	_ = kernels.Register(avx2, productsAVX2.kernels(&shortAVX2))
	_ = kernels.Register(avx512, productsAVX512.kernels(&shortAVX512))
)

var shortAVX2 = shortProducts{
	lanes: 4, pack: packShortAVX2, panel: shortPanelAVX2,
	f32:  []shortProduct[float32]{{3, nil, shortF32x3AVX2}, {1, shortF32x1AVX2, nil}},
	bf16: []shortProduct[uint16]{{3, nil, shortBF16x3AVX2}, {1, shortBF16x1AVX2, nil}},
	f16:  []shortProduct[uint16]{{3, nil, shortF16x3AVX2}, {1, shortF16x1AVX2, nil}},
}

var shortAVX512 = shortProducts{
	lanes: 8, pack: packShortAVX512, panel: shortPanelAVX512,
	f32:  []shortProduct[float32]{{6, nil, shortF32x6AVX512}, {3, nil, shortF32x3AVX512}, {1, shortF32x1AVX512, nil}},
	bf16: []shortProduct[uint16]{{6, nil, shortBF16x6AVX512}, {3, nil, shortBF16x3AVX512}, {1, shortBF16x1AVX512, nil}},
	f16:  []shortProduct[uint16]{{6, nil, shortF16x6AVX512}, {3, nil, shortF16x3AVX512}, {1, shortF16x1AVX512, nil}},
}

var (
	panelsAVX2   = panels{8, 2 << 20, [panelVectors]panelTile{panel1AVX2, panel2AVX2, panel3AVX2}, packRowsAVX2, packRowsBF16AVX2, packTokensAVX2, drainAVX2, panelTokens, kernels.ShortDepth}
	panelsAVX512 = panels{16, 1 << 20, [panelVectors]panelTile{panel1AVX512, panel2AVX512, panel3AVX512}, packRowsAVX512, packRowsBF16AVX512, packTokensAVX512, drainAVX512, panelTokens, kernels.ShortDepth}
)

var (
	_ = kernels.Register(avx2, kernels.Set{"selective_scan": {Units: scanUnits, Run: (&scanner{scanAVX2, scanStepAVX2, &tilingAVX2}).run}})
	_ = kernels.Register(avx512, kernels.Set{"selective_scan": {Units: scanUnits, Run: (&scanner{scanAVX512, scanStepAVX512, &tilingAVX512}).run}})
)

var (
	tilingAVX2 = tiling{
		columns: tileColumns, wide: tile16AVX2, tile: tile16AVX2,
		decays: decaysAVX2, softmax: softmaxAVX2, recur: recurAVX2, recurBF16: recurBF16AVX2, scale: scaleRowsAVX2, divide: divideRowsAVX2, states: &convertAVX2,
	}
	tilingAVX512 = tiling{
		columns: 64, wide: tile64AVX512, tile: tile16AVX512,
		decays: decaysAVX512, softmax: softmaxAVX512, recur: recurAVX512, recurBF16: recurBF16AVX512, scale: scaleRowsAVX512, divide: divideRowsAVX512, states: &convertAVX512,
	}
)

var (
	_ = kernels.Register(avx2, kernels.Set{"ssd_scan": {Units: ssdUnits, Run: tilingAVX2.ssdScan}})
	_ = kernels.Register(avx512, kernels.Set{"ssd_scan": {Units: ssdUnits, Run: tilingAVX512.ssdScan}})
)

var (
	_ = kernels.Register(avx2, kernels.Set{"attention": {Units: attentionUnits, Run: tilingAVX2.attention}})
	_ = kernels.Register(avx512, kernels.Set{"attention": {Units: attentionUnits, Run: tilingAVX512.attention}})
)

var (
	_ = kernels.Register(avx2, convertAVX2.kernels())
	_ = kernels.Register(avx512, convertAVX512.kernels())
)

var (
	convertAVX2   = converter{8, widenBF16AVX2, widenF16AVX2, roundBF16AVX2, roundF16AVX2, &bytesAVX2}
	convertAVX512 = converter{16, widenBF16AVX512, widenF16AVX512, roundBF16AVX512, roundF16AVX512, &bytesAVX512}
)

// Codes smaller than a byte, or with fields, are bound by memory with vectors of AVX2 already.
var (
	bytesAVX2 = bytesCodec{largestAVX2,
		[codecKinds]func(*byte, *float32, *float32, int){graph.Int8: toInt8AVX2, graph.Int4: toInt4AVX2, graph.E4M3: toE4M3AVX2, graph.E5M2: toE5M2AVX2},
		[codecKinds]func(*float32, *byte, *float32, int){graph.Int8: fromInt8AVX2, graph.Int4: fromInt4AVX2, graph.E4M3: fromE4M3AVX2, graph.E5M2: fromE5M2AVX2}}
	bytesAVX512 = bytesCodec{largestAVX512,
		[codecKinds]func(*byte, *float32, *float32, int){graph.Int8: toInt8AVX512, graph.Int4: toInt4AVX2, graph.E4M3: toE4M3AVX2, graph.E5M2: toE5M2AVX2},
		[codecKinds]func(*float32, *byte, *float32, int){graph.Int8: fromInt8AVX512, graph.Int4: fromInt4AVX2, graph.E4M3: fromE4M3AVX2, graph.E5M2: fromE5M2AVX2}}
)

// Kernels that move rows, for all sets.
var (
	transposeSquares = transposeAVX2
	prefetch         = prefetchAVX2
)

// readRows reads rows of n elements, from the one at index at on.
func readRows(x *kernels.Tensor, dst matrix, at, rows, n int) {
	wide := n &^ 7
	switch {
	case x.DType == graph.F8:
		for i := range rows {
			convertAVX2.read(x, dst.at[i*dst.row:][:n], at+i*x.Stride)
		}
		return
	case wide > 0 && x.DType != graph.F32:
		_, _ = dst.at[(rows-1)*dst.row+n-1], x.U16[at+(rows-1)*x.Stride+n-1]
		if x.DType == graph.F16 {
			widenRowsF16AVX2(&dst.at[0], dst.row, &x.U16[at], x.Stride, rows, wide)
		} else {
			widenRowsBF16AVX2(&dst.at[0], dst.row, &x.U16[at], x.Stride, rows, wide)
		}
	default:
		wide = 0
	}
	for i := 0; i < rows && wide < n; i++ {
		x.Read(dst.at[i*dst.row+wide:i*dst.row+n], at+i*x.Stride+wide)
	}
}

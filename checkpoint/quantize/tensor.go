package quantize

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/checkpoint/safetensors"
	"github.com/krait-ml/krait/graph"
)

// tensor is one of the new files.
type tensor struct {
	safetensors.Tensor                                  // what is written; without Data where make makes it
	make               func(lo, hi int) ([]byte, error) // rows of it; nil: it stays as it was
	note               string                           // of the metadata
}

// inBlocks is a matrix in 8-bit blocks.
func inBlocks(from graph.Array, name string, loss *checkpoint.Loss) []tensor {
	note, bytes := checkpoint.BlocksShape(from.Shape)
	make := func(lo, hi int) ([]byte, error) {
		rows := from.Rows(lo, hi)
		out, err := rows.Convert(graph.Q8)
		if err == nil {
			loss.Add(rows.Float32s(), out.Float32s())
		}
		return out.Data, err
	}
	return []tensor{{safetensors.Tensor{Name: name, DType: "U8", Shape: bytes}, make, note}}
}

// fp8Block is how many rows and columns have one scale in FP8, as published folders have it.
const fp8Block = 128

// fp8Matrix is a matrix [rows cols], or several, and the scales of its blocks.
type fp8Matrix struct {
	from         graph.Array
	rows, cols   int // of one matrix
	down, across int // blocks of one
	scales       func() ([]float32, error)
}

// inFP8 is a matrix as codes in E4M3 and scales, by which codes are multiplied, in
// NAME_scale_inv, as DeepSeek-V3 and transformers' finegrained_fp8 have them. A scale is a 448th of
// its block's largest magnitude, in f32, or 1 of zeros; a code is the nearest to element / scale.
func inFP8(from graph.Array, name string, loss *checkpoint.Loss) []tensor {
	last := len(from.Shape) - 1
	m := &fp8Matrix{from: from, rows: from.Shape[last-1], cols: from.Shape[last]}
	m.down, m.across = (m.rows+fp8Block-1)/fp8Block, (m.cols+fp8Block-1)/fp8Block
	m.scales = sync.OnceValues(m.findScales)
	codes := func(lo, hi int) ([]byte, error) { return m.codes(lo, hi, loss) }
	scales := func(lo, hi int) (out []byte, err error) {
		all, err := m.scales()
		if err != nil {
			return nil, err
		}
		for _, v := range all[lo*m.across : hi*m.across] {
			out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
		}
		return out, nil
	}
	shape := append(slices.Clone(from.Shape[:last-1]), m.down, m.across)
	return []tensor{
		{safetensors.Tensor{Name: name, DType: "F8_E4M3", Shape: from.Shape}, codes, ""},
		{safetensors.Tensor{Name: name + "_scale_inv", DType: "F32", Shape: shape}, scales, ""},
	}
}

// findScales finds all scales, a strip of blocks at a time.
func (m *fp8Matrix) findScales() (scales []float32, err error) {
	all := 1
	for _, n := range m.from.Shape[:len(m.from.Shape)-1] {
		all *= n
	}
	for begin := 0; begin < all; begin += m.rows {
		for row := 0; row < m.rows; row += fp8Block {
			most := make([]float32, m.across)
			lo, hi := begin+row, begin+min(row+fp8Block, m.rows)
			for i, v := range m.from.Rows(lo, hi).Float32s() {
				if v-v != 0 {
					return nil, fmt.Errorf("%s: row %d, column %d: %g is not a finite number", m.from.From, lo+i/m.cols, i%m.cols, v)
				}
				b := i % m.cols / fp8Block
				most[b] = max(most[b], v, -v)
			}
			for _, v := range most {
				if v /= 448; v == 0 {
					v = 1
				}
				scales = append(scales, v)
			}
		}
	}
	return scales, nil
}

// codes are rows in E4M3.
func (m *fp8Matrix) codes(lo, hi int, loss *checkpoint.Loss) ([]byte, error) {
	scales, err := m.scales()
	if err != nil {
		return nil, err
	}
	x := m.from.Rows(lo, hi).Float32s()
	out, rounded := make([]byte, len(x)), make([]float32, len(x))
	for i, v := range x {
		r, c := lo+i/m.cols, i%m.cols
		scale := scales[(r/m.rows*m.down+r%m.rows/fp8Block)*m.across+c/fp8Block]
		out[i] = graph.ToE4M3(v / scale)
		rounded[i] = graph.E4M3Values[out[i]] * scale
	}
	loss.Add(x, rounded)
	return out, nil
}

// size is the bytes that are written.
func (t *tensor) size() int64 {
	if t.make == nil {
		return int64(len(t.Data))
	}
	n := int64(t.bytes())
	for _, d := range t.Shape {
		n *= int64(d)
	}
	return n
}

// bytes is the size of an element, to which the files are aligned; 1 of blocks.
func (t *tensor) bytes() int {
	switch t.DType {
	case "F64", "I64", "U64":
		return 8
	case "F32", "I32", "U32":
		return 4
	case "F16", "BF16", "I16", "U16":
		return 2
	}
	return 1
}

func namesOf(tensors []tensor) []string {
	var out []string
	for _, t := range tensors {
		out = append(out, t.Name)
	}
	return out
}

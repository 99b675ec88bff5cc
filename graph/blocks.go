package graph

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/x448/float16"
)

// A block of Q8 is what GGUF calls Q8_0: a scale in f16, and BlockLen whole numbers
// of 8 bits; an element is scale · number. Each line of a tensor along its last axis
// is blocks of its own; what a line does not fill of its last one is 0.
const (
	BlockLen   = 32
	BlockBytes = 2 + BlockLen
)

// Blocks says how a line of a tensor of Q8 lies in what a rank holds of it. Blocks stay as they are
// in the file: of those in which the rank's runs begin or end, it has more than is its own.
type Blocks struct {
	Cols  int // elements of a line
	Count int // blocks of a line
	Spans []Span
}

// Span is a run of elements of a line that lies in blocks one after another.
type Span struct {
	At, Len int // the elements
	Block   int // which block of the line has the first
	Lead    int // the numbers before it in that block, which are not the rank's
	from    int // which block of the whole line that is
}

// count is how many blocks the span touches.
func (s Span) count() int {
	if s.Len == 0 {
		return 0
	}
	return (s.Lead + s.Len + BlockLen - 1) / BlockLen
}

// BlocksOf works out how the lines of what a rank holds lie: one span, or one for each
// run where the last axis is sharded.
func BlocksOf(t Type, ranks, rank int) *Blocks {
	last := len(t.Dims) - 1
	if t.Layout.Kind != Sharded || t.Layout.Axis != last {
		return blocksOf(t.Dims[last].Len())
	}
	b := &Blocks{}
	for _, r := range t.Extents(nil, ranks, rank) {
		s := Span{At: b.Cols, Len: r.Len, Block: b.Count, Lead: r.Start % BlockLen, from: r.Start / BlockLen}
		b.Cols, b.Count = b.Cols+s.Len, b.Count+s.count()
		b.Spans = append(b.Spans, s)
	}
	return b
}

// blocksOf is for whole lines.
func blocksOf(cols int) *Blocks {
	s := Span{Len: cols}
	return &Blocks{Cols: cols, Count: s.count(), Spans: []Span{s}}
}

// Bytes is the size of lines.
func (b *Blocks) Bytes(lines int) int { return lines * b.Count * BlockBytes }

// Read reads elements of data, from element at on, as f32: which they are exactly.
func (b *Blocks) Read(to []float32, data []byte, at int) {
	for len(to) > 0 {
		line, k := at/b.Cols, at%b.Cols
		n := min(len(to), b.Cols-k)
		b.readLine(to[:n], data[b.Bytes(line):b.Bytes(line+1)], k)
		to, at = to[n:], at+n
	}
}

// readLine reads elements of a line, from column k on.
func (b *Blocks) readLine(to []float32, line []byte, k int) {
	for _, s := range b.Spans {
		for len(to) > 0 && k < s.At+s.Len {
			at := s.Lead + k - s.At
			block := line[(s.Block+at/BlockLen)*BlockBytes:][:BlockBytes]
			n := min(len(to), s.At+s.Len-k, BlockLen-at%BlockLen)
			readBlock(to[:n], block, at%BlockLen)
			to, k = to[n:], k+n
		}
	}
}

func readBlock(to []float32, block []byte, at int) {
	d := blockScale(block).Float32()
	for i, q := range block[2+at:][:len(to)] {
		to[i] = d * float32(int8(q))
	}
}

func blockScale(block []byte) float16.Float16 {
	return float16.Frombits(binary.LittleEndian.Uint16(block))
}

// writeBlocks rounds lines of cols elements to blocks, which it appends to data. The
// scale is the largest magnitude / 127, rounded to the nearest f16, or the next larger
// one where 127 and a half of that would fall short of the magnitude; numbers are
// rounded to the nearest, halves away from 0. So each element is off by at most half
// of its scale. A value that is not finite, or beyond the range of scales, is an error.
func writeBlocks(data []byte, x []float32, cols int) ([]byte, error) {
	for line := 0; len(x) > 0; line++ {
		for k := 0; k < cols; k += BlockLen {
			n := min(BlockLen, cols-k)
			var err error
			if data, err = writeBlock(data, x[k:k+n]); err != nil {
				return nil, fmt.Errorf("row %d, columns %d to %d: %w", line, k, k+n-1, err)
			}
		}
		x = x[cols:]
	}
	return data, nil
}

func writeBlock(data []byte, x []float32) ([]byte, error) {
	var most float32
	for _, v := range x {
		if v-v != 0 {
			return nil, fmt.Errorf("%g is not a finite number", v)
		}
		most = max(most, float32(math.Abs(float64(v))))
	}
	scale := float16.Fromfloat32(most / 127)
	if scale.Float32()*127.5 < most {
		scale++ // the next larger f16
	}
	if scale.IsInf(0) {
		return nil, fmt.Errorf("%g is larger than an 8-bit block can hold", most)
	}
	data = binary.LittleEndian.AppendUint16(data, scale.Bits())
	d := float64(scale.Float32())
	for _, v := range x {
		q := 0.0
		if v != 0 {
			q = math.Round(float64(v) / d)
		}
		data = append(data, byte(int8(q)))
	}
	return append(data, make([]byte, BlockLen-len(x))...), nil
}

// toBlocks rounds a float array to Q8.
func (a Array) toBlocks() (Array, error) {
	if len(a.Shape) < 2 {
		return Array{}, fmt.Errorf("%s has shape %v; only matrices can be in blocks", a.From, a.Shape)
	}
	cols := a.Shape[len(a.Shape)-1]
	data, err := writeBlocks(make([]byte, 0, sizeOf(Q8, a.Shape)), a.Float32s(), cols)
	if err != nil {
		return Array{}, fmt.Errorf("%s: %w", a.From, err)
	}
	return Array{Q8, a.Shape, data, a.From}, nil
}

// check reports a scale that is not finite: its block makes no sense.
func (b *Blocks) check(a *Array) error {
	for at := 0; at < len(a.Data); at += BlockBytes {
		if a.Data[at+1]&0x7c == 0x7c {
			n := at / BlockBytes
			return fmt.Errorf("%s is damaged: the scale of a block is %g (block %d of row %d of what the rank holds)", a.From, blockScale(a.Data[at:]).Float32(), n%b.Count, n/b.Count)
		}
	}
	return nil
}

// cutBlocks is cut for Q8. Where the last axis is sharded, lines are cut at blocks.
func cutBlocks(data []byte, t Type, ranks, rank int) []byte {
	last := len(t.Dims) - 1
	cols := t.Dims[last].Len()
	if t.Layout.Kind != Sharded || t.Layout.Axis != last {
		t.Dims = append(append([]Dim(nil), t.Dims[:last]...), Size(blocksOf(cols).Bytes(1)))
		return cut(data, t, 1, ranks, rank)
	}
	b := BlocksOf(t, ranks, rank)
	line, out := blocksOf(cols).Bytes(1), make([]byte, 0, b.Bytes(t.Lines()))
	for ; len(data) > 0; data = data[line:] {
		for _, s := range b.Spans {
			out = append(out, data[s.from*BlockBytes:][:s.count()*BlockBytes]...)
		}
	}
	return out
}

// Lines is how many lines along its last axis a type without symbols has.
func (t Type) Lines() int {
	n := 1
	for _, d := range t.Dims[:len(t.Dims)-1] {
		n *= d.Len()
	}
	return n
}

// inBlocks reports why a type cannot be in blocks.
func (t Type) inBlocks() error {
	if len(t.Dims) < 2 || t.Layout.Kind == Partial {
		return fmt.Errorf("%s: only matrices can be in blocks", t)
	}
	for _, d := range t.Dims {
		if d.Sym != 0 {
			return fmt.Errorf("%s: only parameters can be in blocks", t)
		}
	}
	return nil
}

// sizeOf is the bytes of a tensor.
func sizeOf(d DType, shape []int) int {
	n := d.Bytes()
	if d == Q8 {
		last := len(shape) - 1
		n, shape = blocksOf(shape[last]).Bytes(1), shape[:last]
	}
	for _, size := range shape {
		n *= size
	}
	return n
}

// inBlocks reports a tensor whose blocks do not lie along the last axis of a parameter of type t.
func (s *Storage) inBlocks(a Array, t Type) error {
	n, last := len(t.Dims), len(a.Shape)-1
	if s.Perm == nil && n > 1 && last > 0 && a.Shape[last] == t.Dims[n-1].Len() {
		return nil
	}
	return fmt.Errorf("%s has shape %v, in blocks along the last axis, which is not that of the parameter, %s", a.From, a.Shape, t)
}

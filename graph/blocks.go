package graph

import "fmt"

// A block of Q8 is what GGUF calls Q8_0: a scale in f16, and BlockLen whole numbers
// of 8 bits; an element is scale · number. Each line of a tensor along its last axis
// is blocks of its own; what a line does not fill of its last one is 0.
const (
	BlockLen   = 32
	BlockBytes = 2 + BlockLen
)

// Blocks says how a line of a tensor in a block format lies in what a rank holds of it. Blocks stay
// as they are in the file: a rank has all of the blocks in which its runs begin or end.
type Blocks struct {
	DType  DType
	Format *Format
	Cols   int // elements of a line
	Count  int // blocks of a line
	Spans  []Span
}

// Span is a run of elements of a line that lies in blocks one after another.
type Span struct {
	At, Len int // the elements
	Block   int // which block of the line has the first
	Lead    int // the numbers before it in that block, which are not the rank's
	from    int // which block of the whole line that is
	count   int // the blocks that it touches
}

// add adds a run of the elements of a whole line.
func (b *Blocks) add(r Run) {
	s := Span{At: b.Cols, Len: r.Len, Block: b.Count, Lead: r.Start % b.Format.Elems, from: r.Start / b.Format.Elems}
	if r.Len > 0 {
		s.count = b.Format.Count(s.Lead + r.Len)
	}
	b.Cols, b.Count = b.Cols+s.Len, b.Count+s.count
	b.Spans = append(b.Spans, s)
}

// BlocksOf works out how the lines of what a rank holds lie: one span, or one for each
// run where the last axis is sharded.
func BlocksOf(t Type, ranks, rank int) *Blocks {
	last := len(t.Dims) - 1
	if t.Layout.Kind != Sharded || t.Layout.Axis != last {
		return blocksOf(t.DType, t.Dims[last].Len())
	}
	b := &Blocks{DType: t.DType, Format: t.DType.Format()}
	for _, r := range t.Extents(nil, ranks, rank) {
		b.add(r)
	}
	return b
}

// blocksOf is for whole lines.
func blocksOf(d DType, cols int) *Blocks {
	b := &Blocks{DType: d, Format: d.Format()}
	b.add(Run{Len: cols})
	return b
}

// Bytes is the size of lines.
func (b *Blocks) Bytes(lines int) int { return lines * b.Count * b.Format.Bytes }

// Read reads elements of data, from element at on, as f32.
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
	elems, bytes := b.Format.Elems, b.Format.Bytes
	for _, s := range b.Spans {
		for len(to) > 0 && k < s.At+s.Len {
			at := s.Lead + k - s.At
			n := min(len(to), s.At+s.Len-k, elems-at%elems)
			decodePart(b.DType, to[:n], line[(s.Block+at/elems)*bytes:][:bytes], at%elems)
			to, k = to[n:], k+n
		}
	}
}

// check reports a scale that is not finite: its block makes no sense.
func (b *Blocks) check(a *Array) error {
	size := b.Format.Bytes
	for at := 0; at < len(a.Data); at += size {
		for _, scale := range b.Format.Scales {
			if a.Data[at+scale+1]&0x7c == 0x7c {
				n := at / size
				return fmt.Errorf("%s is damaged: the scale of a block is %g (block %d of row %d of what the rank holds)", a.From, half(a.Data[at+scale:]), n%b.Count, n/b.Count)
			}
		}
	}
	return nil
}

// cutBlocks is cut for block formats. Where the last axis is sharded, lines are cut at blocks.
func cutBlocks(data []byte, t Type, ranks, rank int) []byte {
	last := len(t.Dims) - 1
	whole := blocksOf(t.DType, t.Dims[last].Len())
	if t.Layout.Kind != Sharded || t.Layout.Axis != last {
		t.Dims = append(append([]Dim(nil), t.Dims[:last]...), Size(whole.Bytes(1)))
		return cut(data, t, 1, ranks, rank)
	}
	b, size := BlocksOf(t, ranks, rank), whole.Format.Bytes
	line, out := whole.Bytes(1), make([]byte, 0, b.Bytes(t.Lines()))
	for ; len(data) > 0; data = data[line:] {
		for _, s := range b.Spans {
			out = append(out, data[s.from*size:][:s.count*size]...)
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
	if d.Quantized() {
		last := len(shape) - 1
		n, shape = blocksOf(d, shape[last]).Bytes(1), shape[:last]
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

package validate

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"unsafe"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// randomWeights has a tensor of random numbers for every name. Both graphs read
// theirs from it, so that a parameter in parts is the parameter of the source.
type randomWeights struct {
	seed   uint64
	run    int // see pattern
	mu     sync.Mutex
	made   map[string]func() graph.Array
	zeros  []byte   // memory for sparse tensors
	sparse []matrix // those that were made
}

// stored is a tensor of the file, as a parameter reads it.
type stored struct {
	name  string
	dtype graph.DType
	shape []int
}

// bytes is the size of the tensor; more than there is room for anywhere is as much.
func (s stored) bytes() int64 {
	n := float64(max(s.dtype.Bytes(), 2)) // blocks are less, but of a few columns
	for _, d := range s.shape {
		n *= float64(d)
	}
	return int64(min(n, 1<<50))
}

func (s stored) key() string { return fmt.Sprint(s.dtype, s.shape, s.name) }

// array makes the tensor, once. Weights with several axes are scaled so that what
// they are multiplied with keeps its size.
func (c *randomWeights) array(s stored) graph.Array {
	c.mu.Lock()
	get := c.made[s.key()]
	if get == nil {
		get = sync.OnceValue(func() graph.Array { return c.fill(s) })
		c.made[s.key()] = get
	}
	c.mu.Unlock()
	return get()
}

func (c *randomWeights) fill(s stored) graph.Array {
	if s.dtype.Quantized() {
		return c.blocks(s)
	}
	a := graph.Array{DType: s.dtype, Shape: s.shape, From: fmt.Sprintf("tensor %q", s.name)}
	random, n := newStream(c.seed, "tensor "+s.name), a.Elems()
	p := c.pattern(s)
	if !p.sparse {
		a.Data = make([]byte, n*s.dtype.Bytes())
		scale := float32(1)
		if len(s.shape) > 1 {
			scale = scaleOf(p.cols)
		}
		put := putTo(&a, random)
		inParts(n, func(lo, hi int) { put(lo, hi, scale) })
		return a
	}
	m := c.take(p, n/p.cols, s.dtype.Bytes())
	a.Data = m.data
	put := putTo(&a, random)
	m.visit(func(lo, hi int, scale float32) { put(lo, hi, scale) })
	return a
}

// putTo returns what sets some elements of an array to numbers of a standard deviation.
func putTo(a *graph.Array, random stream) func(lo, hi int, scale float32) {
	if a.DType == graph.F32 {
		data := numbers[float32](a.Data)
		return func(lo, hi int, scale float32) { random.fill(data[lo:hi], lo, scale) }
	}
	to := kernels.Tensor{DType: a.DType, U16: numbers[uint16](a.Data)}
	return func(lo, hi int, scale float32) {
		var some [1024]float32
		for ; lo < hi; lo += len(some) {
			part := some[:min(len(some), hi-lo)]
			random.fill(part, lo, scale)
			to.Write(lo, part)
		}
	}
}

// blocks rounds what the tensor is in f32, without zeros, to blocks.
func (c *randomWeights) blocks(s stored) graph.Array {
	to := s.dtype
	s.dtype = graph.F32
	dense := randomWeights{seed: c.seed, run: math.MaxInt}
	a, err := dense.fill(s).Convert(to)
	if err != nil {
		panic("BUG: " + err.Error()) // the numbers are finite
	}
	return a
}

// load is what a rank holds of a parameter. Neighbouring columns are a view, as neighbouring rows
// are.
func (c *randomWeights) load(v *graph.Value, ranks, rank int) (kernels.Tensor, error) {
	x := kernels.Describe(v.Type, ranks, rank)
	tensors, err := tensorsOf(v)
	if err != nil {
		return x, err
	}
	t, first := v.Type, 0
	if run, ok := columns(t, ranks, rank); ok {
		first, x.Stride = run.Whole, graph.RowElems(t.Dims)
		t.Layout = graph.Layout{}
	}
	a, err := v.Def.Storage.Load(v.Name, t, ranks, rank, func(name string) (graph.Array, error) {
		for _, s := range tensors {
			if s.name == name {
				return c.array(s), nil
			}
		}
		return graph.Array{}, fmt.Errorf("BUG: no tensor %q", name)
	})
	if err != nil {
		return x, err
	}
	switch x.DType {
	case graph.F32:
		x.F32 = numbers[float32](a.Data)[first:]
	case graph.F16, graph.BF16:
		x.U16 = numbers[uint16](a.Data)[first:]
	default:
		x.U8 = a.Data
	}
	return x, nil
}

// columns is the columns that a rank has of a matrix, if they are neighbours.
func columns(t graph.Type, ranks, rank int) (run graph.Stretch, ok bool) {
	if t.Layout.Kind != graph.Sharded || len(t.Dims) != 2 || t.DType.Quantized() {
		return run, false
	}
	p := graph.PiecesOf(t, ranks, rank)
	if p.Rows || len(p.List) != 1 {
		return run, false
	}
	return p.List[0], true
}

// tensorsOf lists the tensors that a parameter is read from, in the parameter's
// number format, so that nothing is rounded twice.
func tensorsOf(v *graph.Value) ([]stored, error) {
	if d := v.Type.DType; d != graph.F32 && d != graph.BF16 && d != graph.F16 && !d.Quantized() {
		return nil, skip(fmt.Sprintf("parameter %s is %s; there are random ones in f32, bf16, f16 and blocks", v.Name, v.Type))
	}
	s := v.Def.Storage
	if s == nil {
		s = graph.Stored(v.Name)
	}
	if len(s.Pieces) == 0 {
		return nil, errors.New("a storage without pieces")
	}
	var out []stored
	for _, p := range s.Pieces {
		shape, err := s.TensorShape(p.Tensor, v.Type)
		if err != nil {
			return nil, skip(fmt.Sprintf("parameter %s: %v", v.Name, err))
		}
		out = append(out, stored{p.Tensor, v.Type.DType, shape})
	}
	return out, nil
}

// bytesOf looks at numbers as the bytes that they are; the machine is little-endian.
func bytesOf[T float32 | uint16](x []T) []byte {
	if len(x) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&x[0])), len(x)*int(unsafe.Sizeof(x[0])))
}

// numbers is the inverse of bytesOf.
func numbers[T float32 | uint16](b []byte) []T {
	var zero T
	n := len(b) / int(unsafe.Sizeof(zero))
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&b[0])), n)
}

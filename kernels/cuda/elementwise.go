package cuda

import (
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

var _ = kernels.Register(Kernels, Set{
	"bias":          {launch: perChannel("add")},
	"scale":         {launch: scale},
	"add":           {launch: zip("add")},
	"mul":           {launch: zip("mul")},
	"times":         {launch: byNumber("times")},
	"plus":          {launch: byNumber("plus")},
	"silu":          {launch: each("silu")},
	"gelu":          {launch: each("gelu")},
	"gelu_tanh":     {launch: each("gelu_tanh")},
	"relu":          {launch: each("relu")},
	"relu2":         {launch: each("relu2"), accepts: allAccepted},
	"sigmoid":       {launch: each("sigmoid")},
	"tanh":          {launch: each("tanh")},
	"softplus":      {launch: each("softplus")},
	"neg_exp":       {launch: each("neg_exp")},
	"clamp":         {launch: clamp},
	"quantize":      {launch: convert},
	"dequantize":    {launch: convert},
	"silu_mul":      {launch: zip("silu_mul"), accepts: allAccepted},
	"bias_softplus": {launch: perChannel("bias_softplus")},
	"add_scaled":    {launch: addScaled},
})

// Functions of elements run in blocks of 256 threads with 4 columns each.
const (
	elementThreads = 256
	elementCols    = 4 * elementThreads
)

func elementGrid(rows, cols int) ([3]int, [3]int) {
	return [3]int{rows, ceilDiv(cols, elementCols), 1}, [3]int{elementThreads}
}

// shape gives rows and columns of tensors that have the same, as a single row
// where nothing lies between their rows, and whether they are aligned.
func shape(tensors ...*Tensor) (rows, cols int, vec bool) {
	rows, cols = tensors[0].Rows(), tensors[0].Cols
	whole := rows*cols <= maxGridYZ*elementCols
	first := true // rows are aligned
	for _, t := range tensors {
		whole = whole && t.Stride == t.Cols
		first = first && t.Ptr%16 == 0
	}
	if whole {
		return min(rows, 1), rows * cols, first
	}
	return rows, cols, aligned(tensors...)
}

// perElement launches a function of one tensor.
func (c *Call) perElement(function string, params ...any) error {
	return c.elements(function, &c.Results[0], &c.Args[0], params...)
}

func (c *Call) elements(function string, y, x *Tensor, params ...any) error {
	rows, cols, vec := shape(x, y)
	grid, block := elementGrid(rows, cols)
	c.launch("elementwise", function, grid, block, 0, append([]any{y.Ptr, y.stride(), x.Ptr, x.stride(), cols, vec}, params...)...)
	return nil
}

func each(function string) func(*Call) error {
	return func(c *Call) error { return c.perElement(c.Args[0].suffixed(function)) }
}

// byNumber launches a function of a tensor and of the number by.
func byNumber(function string) func(*Call) error {
	return func(c *Call) error { return c.perElement(function, float32(c.Attrs.Float("by"))) }
}

func clamp(c *Call) error {
	return c.perElement("clamp", float32(c.Attrs.Float("min")), float32(c.Attrs.Float("max")))
}

func convert(c *Call) error { return c.convert(&c.Results[0], &c.Args[0]) }

func (c *Call) convert(y, x *Tensor) error {
	if to, ok := y.DType.Codec(); ok {
		return c.blocks("encode_"+format(x.DType), to, ceilDiv(y.Cols, to.Block*elementThreads/32), y, x)
	}
	if from, ok := x.DType.Codec(); ok {
		return c.blocks("decode_"+format(y.DType), from, ceilDiv(y.Cols, elementThreads), y, x)
	}
	return c.elements("convert_"+format(x.DType)+"_"+format(y.DType), y, x)
}

// blocks launches what makes blocks of a codec, a warp each, or reads them, a thread for an
// element. Strides of tensors in blocks are in bytes.
func (c *Call) blocks(function string, codec graph.Codec, cols int, y, x *Tensor) error {
	c.launch("codec", function, [3]int{y.Rows(), cols, 1}, [3]int{elementThreads}, 0, y.Ptr, y.stride(), x.Ptr, x.stride(), y.Cols, codec.Block, int(codec.Kind))
	return nil
}

// allAccepted: operands and result together.
func allAccepted(c *Call) []int {
	var all []int
	for v := range len(c.Args) + len(c.Results) {
		all = append(all, v)
	}
	return c.together(all...)
}

// zip launches a function of two tensors.
func zip(function string) func(*Call) error {
	return func(c *Call) error {
		x, z, y := &c.Args[0], &c.Args[1], &c.Results[0]
		rows, cols, vec := shape(x, z, y)
		grid, block := elementGrid(rows, cols)
		c.launch("elementwise", x.suffixed(function), grid, block, 0, y.Ptr, y.stride(), x.Ptr, x.stride(), z.Ptr, z.stride(), cols, vec)
		return nil
	}
}

// perChannel launches a function of a tensor and of the same row everywhere.
func perChannel(function string) func(*Call) error {
	return func(c *Call) error {
		x, b, y := &c.Args[0], &c.Args[1], &c.Results[0]
		grid, block := elementGrid(y.Rows(), y.Cols)
		c.launch("elementwise", function, grid, block, 0, y.Ptr, y.stride(), x.Ptr, x.stride(), b.Ptr, int64(0), y.Cols, aligned(x, y) && b.Ptr%16 == 0)
		return nil
	}
}

func scale(c *Call) error {
	x, d, y := &c.Args[0], &c.Args[1], &c.Results[0]
	if d.Rows() == 0 {
		return nil
	}
	grid, block := elementGrid(y.Rows(), y.Cols)
	c.launch("elementwise", "scale", grid, block, 0, y.Ptr, y.stride(), x.Ptr, x.stride(), d.Ptr, y.Cols, y.Cols/d.Rows(), aligned(x, y))
	return nil
}

func addScaled(c *Call) error {
	x, z, d, y := &c.Args[0], &c.Args[1], &c.Args[2], &c.Results[0]
	if d.Rows() == 0 {
		return nil
	}
	grid, block := elementGrid(y.Rows(), y.Cols)
	c.launch("elementwise", "add_scaled", grid, block, 0,
		Struct{y.Ptr, y.stride(), x.Ptr, x.stride(), z.Ptr, z.stride(), d.Ptr, y.Cols, y.Cols / d.Rows(), aligned(x, z, y)})
	return nil
}

package cuda

import "github.com/krait-ml/krait/kernels"

// The selective scan in steps.
var _ = kernels.Register(Kernels, Set{
	"scan_terms":  {launch: scanTerms},
	"scan_prefix": {launch: scanPrefix},
	"scan_output": {launch: scanOutput},
})

func scanTerms(c *Call) error {
	u, dt, a, b, decay, input := &c.Args[0], &c.Args[1], &c.Args[2], &c.Args[3], &c.Results[0], &c.Results[1]
	n := a.Cols
	first, each, skip := groupsOf(&dt.Tensor, &b.Tensor, n)
	c.launch("scan_terms", "scan_terms", [3]int{u.Rows(), ceilDiv(decay.Cols, 256), 1}, [3]int{256}, 0,
		Struct{decay.Ptr, decay.stride(), input.Ptr, input.stride(), u.Ptr, u.stride(), dt.Ptr, dt.stride(), a.Ptr, a.stride(), b.Ptr, b.stride(),
			u.Cols, n, Struct{first, each, skip}})
	return nil
}

func scanPrefix(c *Call) error {
	decay, input, seg, products, sums := &c.Args[0], &c.Args[1], &c.Args[2], &c.Results[0], &c.Results[1]
	c.launch("scan_terms", "scan_prefix", [3]int{seg.Rows(), ceilDiv(decay.Cols, 128), 1}, [3]int{128}, 0,
		Struct{products.Ptr, products.stride(), sums.Ptr, sums.stride(), decay.Ptr, decay.stride(), input.Ptr, input.stride(), seg.Ptr, decay.Cols})
	return nil
}

func scanOutput(c *Call) error {
	products, sums, cc, state, seg, y := &c.Args[0], &c.Args[1], &c.Args[2], &c.Args[3], &c.Args[4], &c.Results[0]
	n := state.Dims[2]
	first, each, skip := groupsOf(&y.Tensor, &cc.Tensor, n)
	c.launch("scan_output_"+format(state.DType), "scan_output", [3]int{seg.Rows(), ceilDiv(y.Cols, 128), 1}, [3]int{128}, 0,
		Struct{y.Ptr, y.stride(), products.Ptr, products.stride(), sums.Ptr, sums.stride(), cc.Ptr, cc.stride(), state.Ptr, state.stride(), seg.Ptr,
			y.Cols, n, Struct{first, each, skip}})
	return nil
}

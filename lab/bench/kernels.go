package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/graph"
	cuda "github.com/krait-ml/krait/kernels/cuda"
	"github.com/krait-ml/krait/passes"
)

// KernelOptions configure a measurement of kernels.
type KernelOptions struct {
	Decode   []int // batch sizes of decode
	Batch    int   // sequences in prefill; 0: none
	Prompt   int   // tokens of each prompt, and of KV caches in decode
	Repeat   int   // runs on the CPU, after a warm-up run
	Progress func(Kernel)
}

// phases returns the batches to measure.
func (o *KernelOptions) phases() []phase {
	var list []phase
	for _, n := range o.Decode {
		list = append(list, phase{fmt.Sprintf("decode %d", n), n, 1, o.Prompt})
	}
	if o.Batch > 0 {
		list = append(list, phase{fmt.Sprintf("prompt %dx%d", o.Batch, o.Prompt), o.Batch, o.Prompt, 0})
	}
	return list
}

// Kernel is the time of an operation on a device, beside its roofline: the time to move operands
// and results once, or for the arithmetic.
type Kernel struct {
	Model    string  `json:"model"`
	Phase    string  `json:"phase"`  // "decode 8", "prompt 8x4096"
	Prompt   int     `json:"prompt"` // tokens of each sequence, before decode
	Op       string  `json:"op"`
	Name     string  `json:"name"`          // first value of this kind
	Count    int     `json:"count"`         // operations of this kind in a step
	Shapes   string  `json:"shapes"`        // of the operands
	Launch   string  `json:"launch"`        // the kernels' names
	Way      string  `json:"way,omitempty"` // variant, if there are several: see wayNames
	Time     float64 `json:"us"`
	Bytes    int64   `json:"bytes"`
	FLOPs    int64   `json:"flops"`
	Roofline float64 `json:"floor_us"`
	Bound    string  `json:"bound"` // memory or arithmetic
	Share    float64 `json:"share_of_floor"`
	Reads    Spread  `json:"reads_bytes_per_second,omitzero"` // of memory, in turns with runs on the CPU
	Error    string  `json:"error,omitempty"`
}

// ReadsOf returns the median of the kernels' medians, and the least and most read of all.
func ReadsOf(list []Kernel) Spread {
	var medians, ends []float64
	for i := range list {
		if s := list[i].Reads; s.Median > 0 {
			medians, ends = append(medians, s.Median), append(ends, s.Least, s.Most)
		}
	}
	return Spread{spreadOf(medians).Median, spreadOf(ends).Least, spreadOf(ends).Most}
}

// kernelBench measures the operations of one model in one phase.
type kernelBench struct {
	*gpu
	funcs   map[string]driver.Function
	modules map[string]driver.Module
	gemm    driver.GEMM // nil without cuBLAS
	rate    float64     // of memory

	model    string
	phase    phase
	progress func(Kernel)
}

// phase is a batch of prefill or decode.
type phase struct {
	name         string
	seqs, tokens int // tokens of each sequence
	past         int // tokens of each sequence before
}

func (p *phase) sizes() graph.Sizes {
	n, past := int64(p.tokens), int64(p.past)
	s := int64(p.seqs)
	return graph.Sizes{Tokens: s * n, Seqs: s, Rows: s, Cached: s * (n + past), Pairs: s * (n*past + n*(n+1)/2)}
}

// asOnGPU are the compile options for GPUs, which prefer few launches.
var asOnGPU = passes.Options{Fuse: passes.ForLaunches}

// Kernels measures each distinct operation of a model's graph, compiled as for a GPU, on the first
// device of a driver. Where a scan gives the product after it pieces within a step, it gives its
// result whole here, and the product takes it apart.
func Kernels(ctx context.Context, d driver.Driver, g *graph.Graph, model string, o KernelOptions) ([]Kernel, error) {
	g, err := passes.Compile(g, asOnGPU)
	if err != nil {
		return nil, err
	}
	var out []Kernel
	err = onGPU(d, func(v *gpu) error {
		b, err := newKernelBench(v, simulated(d))
		if err != nil {
			return err
		}
		defer b.close()
		b.model, b.progress = model, o.Progress
		for _, b.phase = range o.phases() {
			list, err := b.measure(ctx, g)
			if err != nil {
				return err
			}
			out = append(out, list...)
		}
		return nil
	})
	return out, err
}

func newKernelBench(v *gpu, small bool) (*kernelBench, error) {
	b := &kernelBench{gpu: v, funcs: map[string]driver.Function{}, modules: map[string]driver.Module{}}
	var err error
	if b.rate, err = v.bandwidth(small); err != nil {
		return nil, err
	}
	if b.gemm, err = v.GEMM(); err != nil {
		b.gemm = nil // cuBLAS is not measured
		return b, nil
	}
	return b, b.gemm.SetStream(v.stream)
}

func (b *kernelBench) close() {
	if b.gemm != nil {
		_ = b.gemm.Close()
	}
	for _, m := range b.modules {
		_ = m.Close()
	}
}

// distinct returns the operations of a graph that have kernels, one for each op and shape, with
// their counts. Experts are left out: with random weights the router would not choose some of them;
// so is what runs once, at load.
func distinct(g *graph.Graph, has func(op string) bool) (list []*graph.Node, counts []int) {
	seen := map[string]int{}
	for _, n := range g.Nodes {
		if !has(n.Op.Name) || strings.HasSuffix(n.Op.Name, "experts") || atLoad(n) {
			continue
		}
		key := n.Op.Name + shapes(n) + fmt.Sprint(n.Attrs)
		at, ok := seen[key]
		if !ok {
			at = len(list)
			seen[key] = at
			list, counts = append(list, n), append(counts, 0)
		}
		counts[at]++
	}
	return list, counts
}

// atLoad reports whether an operation is of parameters only.
func atLoad(n *graph.Node) bool {
	return !slices.ContainsFunc(n.Args, func(v *graph.Value) bool { return v.Def.Op.Name != "param" })
}

func shapes(n *graph.Node) string {
	var out []string
	for _, v := range n.Args {
		out = append(out, v.Type.String())
	}
	return strings.Join(out, ", ")
}

// measure measures all operations in the phase. The result of a failed operation is its error. A
// lost device ends the measurement.
func (b *kernelBench) measure(ctx context.Context, g *graph.Graph) ([]Kernel, error) {
	var out []Kernel
	list, counts := distinct(g, func(op string) bool { _, ok := cuda.Kernels[op]; return ok })
	for i, n := range list {
		seen, ways := map[string]bool{}, b.ways(n)
		for _, way := range ways {
			if err := ctx.Err(); err != nil {
				return out, err
			}
			k := costOf(n, &b.phase)
			k.Model, k.Count = b.model, counts[i]
			if len(ways) > 1 {
				k.Way = wayNames[way]
			}
			if err := b.one(n, way, &k); err != nil {
				k.Error = err.Error()
				if b.Synchronize() != nil {
					return out, err
				}
			}
			if seen[k.Launch] && way != sampled && k.Error == "" {
				continue // a variant before uses the same kernel here
			}
			seen[k.Launch] = true
			if b.progress != nil {
				b.progress(k)
			}
			out = append(out, k)
		}
	}
	return out, nil
}

// way is a variant of an operation.
type way int

const (
	exact   way = iota // Krait's kernels, in f32
	rounded            // Krait's kernels with --math bf16, of operands in f32
	library            // cuBLAS, the product alone
	pieces             // cuBLAS in f32, of activations taken apart
	greedy             // the highest logit
	sampled            // by temperature, top-k and top-p
)

var wayNames = [...]string{"f32", "bf16", "cuBLAS", "f32 by cuBLAS", "greedy", "sampled"}

// weightOf is the index of a product's weight among its operands.
var weightOf = map[string]int{"matmul": 1, "matmul_add": 1, "norm_matmul": 2, "norm_matmul_add": 2}

// ways returns the variants that differ.
func (b *kernelBench) ways(n *graph.Node) []way {
	_, product := weightOf[n.Op.Name]
	switch {
	case n.Op.Name == "choose":
		return []way{greedy, sampled}
	case b.phase.tokens == 1 || !product && n.Op.Name != "attention" && !strings.HasPrefix(n.Op.Name, "ssd_scan"):
		return []way{exact}
	case product && b.gemm != nil && n.Results[0].Type.Dims[0].Sym == graph.Tokens:
		return []way{exact, rounded, library, pieces}
	}
	return []way{exact, rounded}
}

func costOf(n *graph.Node, p *phase) Kernel {
	c, z := n.Cost(), p.sizes()
	return Kernel{Phase: p.name, Prompt: max(p.past, p.tokens), Op: n.Op.Name, Name: n.Results[0].Name, Shapes: shapes(n),
		Bytes: c.Read.At(z) + c.Write.At(z), FLOPs: c.FLOPs.At(z)}
}

// one measures a variant of an operation.
func (b *kernelBench) one(n *graph.Node, w way, k *Kernel) error {
	m := &memory{gpu: b.gpu}
	defer m.release()
	call, err := m.call(n, &b.phase, w)
	if err != nil {
		return err
	}
	on := b.Device()
	var work func() error
	call.Options = cuda.Options{Math: map[way]cuda.Math{rounded: cuda.BF16}[w], Shared: on.SharedMax, Split: cuda.SplitPays(on.Capability[0], on.Capability[1])}
	switch w {
	case library:
		work, err = b.product(call, weightOf[n.Op.Name], m, k)
	case pieces:
		work, err = b.productOfPieces(n, call, m, k)
	default:
		work, err = b.launches(n, call, m, k)
	}
	if err != nil {
		return err
	}
	took, err := b.time(work)
	if err != nil {
		return err
	}
	b.judge(k, w, took)
	return nil
}

// judge compares a time with the roofline of the device.
func (b *kernelBench) judge(k *Kernel, w way, took time.Duration) {
	k.Time = 1e3 * ms(took)
	k.Roofline, k.Bound = 1e6*float64(k.Bytes)/b.rate, "memory"
	rate, tensor := peak(b.Device())
	if w == rounded || w == library || w == pieces || strings.Contains(k.Launch, "mma") || strings.HasPrefix(k.Launch, "few_") {
		rate = tensor
	}
	if rate > 0 && 1e6*float64(k.FLOPs)/rate > k.Roofline {
		k.Roofline, k.Bound = 1e6*float64(k.FLOPs)/rate, "arithmetic"
	}
	if k.Time > 0 {
		k.Share = k.Roofline / k.Time
	}
}

// launches prepares Krait's kernels for a call.
func (b *kernelBench) launches(n *graph.Node, call *cuda.Call, m *memory, k *Kernel) (func() error, error) {
	kernel := cuda.Kernels[n.Op.Name]
	if err := m.workspace(call, kernel.Scratch(call)); err != nil {
		return nil, err
	}
	list, err := kernel.Launches(call)
	if err != nil {
		return nil, err
	}
	return b.issue(list, k)
}

// issue prepares launches, and adds their names to the kernels'.
func (b *kernelBench) issue(list []cuda.Launch, k *Kernel) (func() error, error) {
	funcs, configs := make([]driver.Function, len(list)), make([]driver.LaunchConfig, len(list))
	for i, l := range list {
		var err error
		if funcs[i], err = b.function(&l); err != nil {
			return nil, err
		}
		configs[i] = driver.LaunchConfig{Grid: l.Grid, Block: l.Block, Shared: l.Shared, Params: l.Params}
		if names := strings.Fields(k.Launch); !slices.Contains(names, l.Function) {
			k.Launch = strings.Join(append(names, l.Function), " ")
		}
	}
	return func() error {
		for i := range funcs {
			if err := b.stream.Launch(funcs[i], &configs[i]); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

// function finds a kernel.
func (b *kernelBench) function(l *cuda.Launch) (driver.Function, error) {
	key := l.Module + "." + l.Function
	if f, ok := b.funcs[key]; ok {
		return f, b.allow(f, l)
	}
	name, text := l.Source()
	m, ok := b.modules[name]
	if !ok {
		var err error
		if m, err = b.Module(cuda.Independent(text), l.Module); err != nil {
			return nil, err
		}
		b.modules[name] = m
	}
	f, err := m.Function(l.Function)
	if err != nil {
		return nil, err
	}
	b.funcs[key] = f
	return f, b.allow(f, l)
}

// allow raises a kernel's limit of shared memory for a launch.
func (b *kernelBench) allow(f driver.Function, l *cuda.Launch) error {
	if l.Shared <= 48<<10 {
		return nil
	}
	return f.SetMaxShared(int(l.Shared))
}

// product prepares a product by cuBLAS, with operands in the weight's format and without a norm
// before it.
func (b *kernelBench) product(call *cuda.Call, weight int, m *memory, k *Kernel) (func() error, error) {
	x, w, y := call.Args[0], &call.Args[weight], &call.Results[0]
	g := gemmOf(x.Ptr, w, y, call.Args[weight+1:])
	g.In = driver.TF32
	if w.DType != graph.F32 {
		g.In = map[graph.DType]driver.Format{graph.BF16: driver.BF16, graph.F16: driver.F16}[w.DType]
		x.DType = w.DType
		p, err := m.fill(&x, plain)
		if err != nil {
			return nil, err
		}
		g.A = p
	}
	k.Bytes, k.FLOPs = size(&x.Tensor)+size(&w.Tensor)+size(&y.Tensor), 2*int64(g.M)*int64(g.N)*int64(g.K)
	if g.Accumulate {
		k.Bytes += size(&y.Tensor)
	}
	k.Launch = "cuBLAS " + g.In.String()
	return func() error { return b.gemm.Gemm(g) }, nil
}

// gemmOf is the product of packed rows at an address with w, added to a sum, if there is one, which
// grows from run to run.
func gemmOf(x uint64, w, y *cuda.Tensor, sum []cuda.Tensor) *driver.GemmCall {
	if len(sum) > 0 {
		y = &sum[0]
	}
	return &driver.GemmCall{M: y.Rows(), N: w.Rows(), K: w.Cols, A: driver.Ptr(x), B: driver.Ptr(w.Ptr), C: driver.Ptr(y.Ptr),
		LDA: w.Cols, LDB: w.Stride, LDC: y.Stride, Accumulate: len(sum) > 0}
}

// productOfPieces prepares an operation as steps of many rows have it in default math, with its
// norm: the activations are taken apart, and cuBLAS multiplies each piece.
func (b *kernelBench) productOfPieces(n *graph.Node, call *cuda.Call, m *memory, k *Kernel) (func() error, error) {
	kernel := cuda.Kernels[n.Op.Name]
	call.Options.Library = true
	if err := m.workspace(call, kernel.Scratch(call)); err != nil {
		return nil, err
	}
	var products []*driver.GemmCall
	var list []cuda.Launch
	for _, part := range kernel.Parts(call) {
		if x := &part.Args[0]; x.InPieces {
			g := gemmOf(x.Ptr, &part.Args[1], &part.Results[0], part.Args[2:])
			g.In = driver.BF16
			products = append(products, g.OfPieces(cuda.Pieces)...)
			continue
		}
		more, err := part.Launches(part.Call)
		if err != nil {
			return nil, err
		}
		list = append(list, more...)
	}
	before, err := b.issue(list, k)
	if len(products) > 0 {
		k.Launch += " cuBLAS bf16"
	}
	return func() error {
		if err := before(); err != nil {
			return err
		}
		for _, g := range products {
			if err := b.gemm.Gemm(g); err != nil {
				return err
			}
		}
		return nil
	}, err
}

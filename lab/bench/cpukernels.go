package bench

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/krait-ml/krait/exec/cpu"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/quantile"
	"github.com/krait-ml/krait/kernels"
	isas "github.com/krait-ml/krait/kernels/cpu"
	"github.com/krait-ml/krait/passes"
)

// cpuBench measures the operations of one model on the CPU.
type cpuBench struct {
	isa      string
	set      kernels.Set
	workers  *cpu.Workers
	roofline Roofline
	rouse    kernels.Kernel // wakes all workers, which fall asleep while memory is read
	o        *KernelOptions
}

// CPUKernels is [Kernels] on the CPU, for the kernels of an instruction set, with the number of
// threads of the roofline. Where that reads memory, runs take turns with reads, and so find their
// operands in memory.
func CPUKernels(ctx context.Context, isa string, f Roofline, g *graph.Graph, model string, o KernelOptions) ([]Kernel, error) {
	set, err := isas.ForISA(isa)
	if err == nil {
		g, err = passes.Compile(g, passes.Options{})
	}
	if err != nil {
		return nil, err
	}
	b := &cpuBench{isa: isa, set: set, workers: cpu.NewWorkers(f.Threads), roofline: f, o: &o}
	defer b.workers.Close()
	b.rouse = kernels.Kernel{Units: func(*kernels.Call) int { return f.Threads }, Run: func(*kernels.Call, int, int) {
		for start := time.Now(); time.Since(start) < rouseTime; {
		}
	}}
	list, counts := distinct(g, func(op string) bool { _, ok := set[op]; return ok })
	var out []Kernel
	for _, p := range o.phases() {
		for i, n := range list {
			if err := ctx.Err(); err != nil {
				return out, err
			}
			k := costOf(n, &p)
			k.Model, k.Count = model, counts[i]
			if err := b.one(n, &p, &k); err != nil {
				k.Error = err.Error()
			}
			if o.Progress != nil {
				o.Progress(k)
			}
			out = append(out, k)
		}
	}
	return out, nil
}

// one measures an operation.
func (b *cpuBench) one(n *graph.Node, p *phase, k *Kernel) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("BUG: %v", v)
		}
	}()
	call, kernel, cost, z := hostCall(n, p), b.set[n.Op.Name], n.Cost(), p.sizes()
	if per := int(z.Tokens / max(1, z.Seqs)); len(call.Args) > 0 && call.Args[0].Rows() == int(z.Tokens) && per >= graph.PartBlock {
		for i := range int(z.Seqs) { // whole blocks of each prompt
			call.Wide = append(call.Wide, graph.Run{Start: i * per, Len: per / graph.PartBlock * graph.PartBlock})
		}
	}
	var list []time.Duration
	turns := turns{read: b.roofline.Read}
	for run := range max(1, b.o.Repeat) + 1 {
		if err := b.workers.Run(&b.rouse, call, rouseCost, z); err != nil {
			return err
		}
		start := time.Now()
		if err := b.workers.Run(&kernel, call, cost, z); err != nil {
			return err
		}
		took := max(time.Since(start), 1)
		if run == 0 { // does not count
			turns.start()
			continue
		}
		turns.add(took) // and what is read leaves none of the operands in a cache
		list = append(list, took)
	}
	k.Launch, k.Reads = b.isa, spreadOf(turns.reads)
	k.Time = 1e3 * ms(quantile.Median(list))
	memory, arithmetic := 1e3*least(k.Bytes, 0, cmp.Or(k.Reads.Median, b.roofline.Bytes), 0), 1e3*least(0, k.FLOPs, 0, b.roofline.FLOPs)
	k.Roofline, k.Bound = max(memory, arithmetic), map[bool]string{true: "arithmetic", false: "memory"}[arithmetic > memory]
	k.Share = cmp.Or(turns.share(k.Bytes, k.FLOPs, b.roofline.FLOPs), k.Roofline/k.Time)
	return nil
}

// rouseTime is enough to wake a worker.
const rouseTime = 100 * time.Microsecond

// rouseCost is large enough for all workers to take part.
var rouseCost = graph.Cost{FLOPs: graph.Const(1 << 30)}

// hostCall returns a call with filled operands and results, packed.
func hostCall(n *graph.Node, p *phase) *kernels.Call {
	c := &kernels.Call{Attrs: n.Attrs}
	for i, v := range n.Args {
		t := tensorOf(v.Type, p)
		f := numbersOf(n.Op.Name, i)
		if n.Op.Name == "choose" && i == 1 {
			f = zeros // greedy
		}
		fillHost(&t, v.Name, p, f)
		c.Args = append(c.Args, t)
	}
	for i, v := range n.Results {
		t := tensorOf(v.Type, p)
		fillHost(&t, v.Name, p, zeros)
		for _, pair := range n.Op.States {
			if pair.Result == i {
				t = c.Args[pair.Operand]
			}
		}
		c.Results = append(c.Results, t)
	}
	return c
}

func zeros(*rand.Rand) float32 { return 0 }

// fillHost allocates a tensor, and fills it with a repeated pattern.
func fillHost(t *kernels.Tensor, name string, p *phase, f numbers) {
	elems := size(t) / int64(t.DType.Bytes())
	if t.DType == graph.I32 {
		t.I32 = make([]int32, elems)
		copy(t.I32, intsOf(t.Rows(), name, p))
		return
	}
	pattern, r := make([]float32, min(elems, patternElems)), rand.New(rand.NewPCG(1, 2))
	for i := range pattern {
		pattern[i] = f(r)
	}
	if t.DType == graph.F32 {
		t.F32 = make([]float32, elems)
	} else {
		t.U16 = make([]uint16, elems)
	}
	for at := int64(0); at < elems; at += patternElems {
		t.Write(int(at), pattern[:min(elems-at, patternElems)])
	}
}

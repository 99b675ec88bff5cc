package cuda

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/exec/internal/operand"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	kernelscuda "github.com/krait-ml/krait/kernels/cuda"
	"github.com/krait-ml/krait/kernels/reference"
	"github.com/krait-ml/krait/lowering"
)

// onHost lists the launched operations without a kernel for GPUs, sorted. A simulated device runs
// them by their reference kernels, so that an operation can be tried there before its PTX is
// written; other devices refuse them.
func onHost(s *lowering.Schedule) (ops []string) {
	for _, list := range [][]lowering.Step{s.Init, s.Steps} {
		for i := range list {
			if st := &list[i]; st.Kind == lowering.Launch && !hasKernel(st) && !slices.Contains(ops, st.Op.Name) {
				ops = append(ops, st.Op.Name)
			}
		}
	}
	slices.Sort(ops)
	return ops
}

func hasKernel(st *lowering.Step) bool {
	_, ok := kernelscuda.Kernels[st.Op.Name]
	return ok
}

// Warnings says which operations of a schedule the device computes without a kernel for GPUs.
func (d *Device) Warnings(s *lowering.Schedule) (list []string) {
	for _, op := range onHost(s) {
		list = append(list, fmt.Sprintf("operation %s has no kernel for GPUs: the simulated device runs its reference kernel, on the host; a GPU would refuse the model (kernels/cuda.Register adds a kernel)", op))
	}
	return list
}

// hostable reports why the host cannot run a step of an operation.
func hostable(s *lowering.Schedule, st *lowering.Step) error {
	if _, ok := reference.Kernels[st.Op.Name]; !ok {
		return fmt.Errorf("it has no reference kernel either (kernels/reference.Register)")
	}
	for _, ref := range slices.Concat(st.Args, st.Results) {
		if b := &s.Buffers[ref.Buffer]; b.Space == lowering.Cache || b.Type.DType.InBlocks() {
			return fmt.Errorf("its operand %s lies in pages or blocks, which a simulated device's fallback to the reference kernel does not read", b.Name)
		}
	}
	return nil
}

// hostCall is a step that the host computes on copies of its tensors.
type hostCall struct {
	name          string
	op            *graph.Op
	attrs         graph.Attrs
	args, results []kernelscuda.Tensor
	state         []bool // by operand: slots that no sequence has used yet are not written
}

// onHost appends the action of a step that the host computes.
func (b *builder) onHost(c *call) {
	h := &hostCall{name: c.step.Name, op: c.step.Op, attrs: c.step.Attrs, args: slices.Clone(c.on.Args), results: slices.Clone(c.on.Results)}
	for i := range c.args {
		h.state = append(h.state, b.r.s.Buffers[c.args[i].Buffer].Space == lowering.State)
	}
	h.name += " (" + h.op.Name + " by its reference kernel)"
	b.actions = append(b.actions, action{kind: lowering.Launch, stream: c.step.Stream, name: c.step.Name,
		host: &driver.HostCall{Name: h.name, Reads: ranges(h.args), Writes: ranges(h.results), Work: h.run}})
}

// ranges lists the rows of tensors.
func ranges(tensors []kernelscuda.Tensor) (list []driver.Range) {
	for i := range tensors {
		t := &tensors[i]
		for row := range t.Rows() {
			list = append(list, driver.Range{At: rowAt(t, row), Bytes: int64(t.Cols * t.DType.Bytes())})
		}
	}
	return list
}

func rowAt(t *kernelscuda.Tensor, row int) driver.Ptr {
	return driver.Ptr(t.Ptr) + driver.Ptr(row*t.Stride*t.DType.Bytes())
}

// hostTensor is a copy of a tensor on the host, one row after another.
type hostTensor struct {
	kernels.Tensor
	data, before []byte // before: as it was read
}

func newHostTensor(t *kernelscuda.Tensor) *hostTensor {
	x := &hostTensor{Tensor: t.Tensor, data: make([]byte, t.Rows()*t.Cols*t.DType.Bytes())}
	x.Stride = x.Cols
	switch x.DType {
	case graph.F32:
		x.F32 = operand.View[float32](x.data)
	case graph.I32:
		x.I32 = operand.View[int32](x.data)
	case graph.F8:
		x.U8 = x.data
	default:
		x.U16 = operand.View[uint16](x.data)
	}
	return x
}

func (x *hostTensor) row(i int) (lo, hi int) {
	n := x.Cols * x.DType.Bytes()
	return i * n, (i + 1) * n
}

// run reads the operands, runs the reference kernel, and writes what it has changed. A result that
// lies over an operand, as a new state does, is the same copy.
func (h *hostCall) run(mem driver.HostMemory) error {
	call := kernels.Call{Attrs: h.attrs}
	at := map[uint64]*hostTensor{}
	for i := range h.args {
		t := &h.args[i]
		x := newHostTensor(t)
		for row := range t.Rows() {
			lo, hi := x.row(row)
			if err := mem.Read(rowAt(t, row), x.data[lo:hi]); err != nil && !h.state[i] {
				return err
			}
		}
		x.before = slices.Clone(x.data)
		at[t.Ptr] = x
		call.Args = append(call.Args, x.Tensor)
	}
	var results []*hostTensor
	for i := range h.results {
		t := &h.results[i]
		x := at[t.Ptr]
		if x == nil || x.Rows() != t.Rows() || x.Cols != t.Cols {
			x = newHostTensor(t)
		}
		results = append(results, x)
		call.Results = append(call.Results, x.Tensor)
	}
	k := reference.Kernels[h.op.Name]
	k.Prepare(&call)
	k.Run(&call, 0, k.Units(&call))
	for i, x := range results {
		for row := range x.Rows() {
			lo, hi := x.row(row)
			if x.before != nil && bytes.Equal(x.data[lo:hi], x.before[lo:hi]) {
				continue
			}
			if err := mem.Write(rowAt(&h.results[i], row), x.data[lo:hi]); err != nil {
				return err
			}
		}
	}
	return nil
}

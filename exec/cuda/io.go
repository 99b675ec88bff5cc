package cuda

import (
	"fmt"

	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/internal/operand"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/lowering"
)

// upload is an input on its way: from the caller's memory through pinned memory to
// the device; without a name, the table of pages.
type upload struct {
	name     string
	part     *graph.Pieces // what the rank holds, nil: all
	cols     int           // elements of a row of the whole
	stride   int           // of what the rank holds
	at, size int           // bytes of the rank's inputs
	segments bool          // the tables of trialKey
}

// download is a result on its way to pinned memory: rows with gaps, if it has them.
type download struct {
	output   int
	tensor   kernels.Tensor // on the host
	from     driver.Ptr
	at, size int
}

const ioAlign = 256

func roundUp(n int) int { return (n + ioAlign - 1) / ioAlign * ioAlign }

// localBytes is the size of the rank's share of a value for a batch.
func (r *rank) localBytes(t graph.Type, z graph.Sizes) int {
	return int(r.s.Local(t).Bytes().At(z))
}

// inputAt is where an input lies among the inputs.
func (r *rank) inputAt(buffer int, z graph.Sizes) int {
	at := 0
	for i, b := range r.s.Buffers[:buffer] {
		if b.Space == lowering.Input {
			at += roundUp(r.localBytes(r.s.Buffers[i].Type, z))
		}
	}
	return at
}

// span is the elements from the first of an output to its last.
func span(t *kernels.Tensor) int {
	if t.Rows() == 0 || t.Cols == 0 {
		return 0
	}
	return (t.Rows()-1)*t.Stride + t.Cols
}

// outputTensor is output i as the device has it.
func (r *rank) outputTensor(i int, z graph.Sizes) kernels.Tensor {
	r.outputs[i].Resize(&graph.Batch{Sizes: z}, r.machine.slots, r.machine.tokens())
	return r.outputs[i].Tensor
}

// ioBytes is the memory of all inputs and outputs of a batch, also those that it does not ask for:
// memory that moves invalidates programs.
func (r *rank) ioBytes(key programKey) (in, out int) {
	z := key.z
	in = r.segmentsAt(z) + key.segmentsBytes()
	if r.s.Rank > 0 || key.trial.replay {
		return in, 0 // all ranks have the same outputs
	}
	for i := range r.outputs {
		t := r.outputTensor(i, z)
		out += roundUp(span(&t) * t.DType.Bytes())
	}
	return in, out
}

// io lists the uploads and downloads of the program.
func (b *builder) io() {
	r := b.r
	if n := b.key.segmentsBytes(); n > 0 {
		b.uploads = append(b.uploads, upload{segments: true, at: r.segmentsAt(b.z), size: n})
	}
	if b.key.trial.replay { // what a step has put out stays
		return
	}
	for i, buf := range r.s.Buffers {
		if buf.Space != lowering.Input || !r.runs(b.key, buf.For) {
			continue
		}
		f := upload{name: buf.Name, at: r.inputAt(i, b.z), size: r.localBytes(buf.Type, b.z), cols: graph.RowElems(buf.Type.Dims), stride: graph.RowElems(r.s.Local(buf.Type).Dims)}
		if buf.Type.Layout.Kind == graph.Sharded {
			part := graph.PiecesOf(buf.Type, r.s.Ranks, r.s.Rank)
			f.part = &part
		}
		b.uploads = append(b.uploads, f)
	}
	if n := r.tableBytes(b.z); n > 0 {
		b.uploads = append(b.uploads, upload{at: r.tableAt(b.z), size: n})
	}
	at := 0
	for i := range r.outputs {
		if !r.runs(b.key, []int{i}) {
			continue
		}
		o := download{output: i, tensor: r.outputTensor(i, b.z), at: at}
		o.size = span(&o.tensor) * o.tensor.DType.Bytes()
		o.from = driver.Ptr(r.tensor(&r.outputs[i], &graph.Batch{Sizes: b.z}, nil).Ptr)
		at += roundUp(o.size)
		b.outputs = append(b.outputs, o)
	}
}

// fill copies the inputs of a batch to pinned memory.
func (p *program) fill(w *exec.Work) error {
	for _, f := range p.uploads {
		to := p.rank.inputsHost.data[f.at : f.at+f.size]
		if f.segments {
			p.rank.machine.trials.fillSegments(to, p.key)
			continue
		}
		if f.name == "" {
			p.rank.fillTable(to, w.BlockTables)
			continue
		}
		in := w.Input(f.name)
		if f.part == nil {
			if len(in.Data) != f.size {
				return fmt.Errorf("BUG: input %s has %d bytes, the program %d", f.name, len(in.Data), f.size)
			}
			copy(to, in.Data)
			continue
		}
		f.part.Cut(to, in.Data, f.cols, f.stride, in.Type.DType.Bytes())
	}
	return nil
}

// copyIn puts the copies of inputs, and of states before trials, into the stream.
func (p *program) copyIn() error {
	for _, f := range p.uploads {
		if f.size == 0 {
			continue
		}
		if err := p.rank.compute.CopyIn(p.rank.inputs.ptr+driver.Ptr(f.at), p.rank.inputsHost.data[f.at:f.at+f.size]); err != nil {
			return err
		}
	}
	return p.rank.copyStates(p.key)
}

// copyOut puts the copies of outputs into the stream.
func (p *program) copyOut() error {
	for _, o := range p.outputs {
		if o.size == 0 {
			continue
		}
		if err := p.rank.compute.CopyOut(p.rank.outputsHost.data[o.at:o.at+o.size], o.from); err != nil {
			return err
		}
	}
	return nil
}

// results returns the outputs of a step, from the first rank. Outputs that were not asked for have
// no data.
func (p *program) results() []kernels.Tensor {
	list := p.rank.machine.results
	clear(list)
	for i := range p.outputs {
		o := &p.outputs[i]
		t := o.tensor
		data := p.rank.outputsHost.data[o.at : o.at+o.size]
		switch t.DType {
		case graph.F32:
			t.F32 = operand.View[float32](data)
		case graph.F16, graph.BF16:
			t.U16 = operand.View[uint16](data)
		case graph.I32:
			t.I32 = operand.View[int32](data)
		}
		list[o.output] = t
	}
	return list
}

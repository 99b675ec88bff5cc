package bench

import (
	"encoding/binary"
	"math"
	"math/rand/v2"

	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	cuda "github.com/krait-ml/krait/kernels/cuda"
	"github.com/x448/float16"
)

// memory is the device memory of a call's tensors.
type memory struct {
	*gpu
	list []driver.Ptr
}

func (m *memory) alloc(bytes int64) (driver.Ptr, error) {
	if bytes == 0 {
		return 0, nil
	}
	p, err := m.Alloc(bytes)
	if err == nil {
		m.list = append(m.list, p)
	}
	return p, err
}

func (m *memory) release() {
	_ = m.stream.Synchronize() // after an error a kernel may still run
	for _, p := range m.list {
		_ = m.Release(p)
	}
}

// call returns a call with filled operands, and results. Tensors are packed, unlike the views of
// packed axes in models.
func (m *memory) call(n *graph.Node, p *phase, w way) (*cuda.Call, error) {
	c := &cuda.Call{Attrs: n.Attrs}
	for i, v := range n.Args {
		t := cuda.Tensor{Tensor: tensorOf(v.Type, p)}
		var at driver.Ptr
		var err error
		switch {
		case v.Type.DType == graph.I32:
			at, err = m.ints(&t.Tensor, v.Name, p)
		case v.Type.Ragged() && v.Type.Equal(n.Args[i-1].Type): // values share the KV pages of keys
			keys := &c.Args[i-1]
			t.Pages, t.InPage, at = keys.Pages, pageTokens*t.Stride*t.DType.Bytes(), driver.Ptr(keys.Ptr)
		case v.Type.Ragged():
			at, err = m.paged(&t, numbersOf(n.Op.Name, i))
		default:
			f := numbersOf(n.Op.Name, i)
			if n.Op.Name == "choose" && i == 1 {
				f = choiceRows(w == sampled)
			}
			at, err = m.fill(&t, f)
		}
		if err != nil {
			return nil, err
		}
		t.Ptr = uint64(at)
		c.Args = append(c.Args, t)
	}
	for i, v := range n.Results {
		t := cuda.Tensor{Tensor: tensorOf(v.Type, p)}
		for _, pair := range n.Op.States {
			if pair.Result == i {
				from := &c.Args[pair.Operand]
				t.Ptr, t.Pages, t.InPage = from.Ptr, from.Pages, from.InPage
			}
		}
		if t.Ptr == 0 {
			at, err := m.alloc(size(&t.Tensor))
			if err != nil {
				return nil, err
			}
			t.Ptr = uint64(at)
		}
		c.Results = append(c.Results, t)
	}
	return c, nil
}

// workspace gives a call scratch memory, and counters at 0 of the blocks that have arrived.
func (m *memory) workspace(c *cuda.Call, bytes int64) error {
	scratch, err := m.alloc(bytes)
	if err != nil {
		return err
	}
	arrivals, err := m.alloc(4 * cuda.MaxArrivals)
	if err != nil {
		return err
	}
	c.Scratch, c.Arrivals = uint64(scratch), uint64(arrivals)
	return m.stream.Fill(arrivals, 0, 4*cuda.MaxArrivals)
}

// pageTokens is the tokens of a KV page.
const pageTokens = 128

// paged allocates KV pages with numbers for keys and values, and their block table.
func (m *memory) paged(t *cuda.Tensor, f numbers) (table driver.Ptr, err error) {
	t.Pages = &kernels.Pages{Tokens: pageTokens}
	pages := t.Dims[0] * ((t.Dims[1] + pageTokens - 1) / pageTokens)
	all := *t
	all.Dims[0], all.Dims[1] = pages, 2*pageTokens
	at, err := m.fill(&all, f)
	if err != nil {
		return 0, err
	}
	var b []byte
	for i := range pages {
		b = binary.LittleEndian.AppendUint64(b, uint64(at)+uint64(i*2*pageTokens*t.Stride*t.DType.Bytes()))
	}
	if table, err = m.alloc(int64(len(b))); err != nil {
		return 0, err
	}
	return table, m.stream.CopyIn(table, b)
}

// tensorOf returns a packed tensor of a type. States have a slot per sequence; KV caches have the
// phase's tokens.
func tensorOf(typ graph.Type, p *phase) kernels.Tensor {
	z := p.sizes()
	t := kernels.Tensor{DType: typ.DType, Cols: 1, Axis: len(typ.Dims) - 1}
	for i := range t.Dims {
		t.Dims[i] = 1
	}
	for i, d := range typ.Dims {
		switch {
		case d.Sym == graph.Cached:
			t.Dims[i] = p.past + p.tokens
		case d.Sym != 0:
			t.Dims[i] = int(z.Of(d.Sym))
		default:
			t.Dims[i] = d.Len()
		}
		if i > 1 || i == 1 && !typ.Ragged() {
			t.Cols *= t.Dims[i]
		}
	}
	t.Stride = t.Cols
	if last := typ.Dims[len(typ.Dims)-1]; last.Sym == 0 {
		t.Full, t.Unit = last.Len(), 1
		if len(last.Fields) > 0 {
			t.Unit = last.Fields[0].Grain()
		}
	}
	return t
}

func size(t *kernels.Tensor) int64 {
	n := int64(t.DType.Bytes())
	for _, d := range t.Dims {
		n *= int64(d)
	}
	return n
}

// numbers draws the elements of a tensor.
type numbers func(r *rand.Rand) float32

func plain(r *rand.Rand) float32    { return 2*r.Float32() - 1 }
func positive(r *rand.Rand) float32 { return 0.001 + 0.1*r.Float32() }
func negative(r *rand.Rand) float32 { return -1 - 15*r.Float32() }

// ratesOf is the operand of a scan with its rates, and stepsOf that with its time steps, for scans
// without a softplus; of the delta rule, log decays and betas.
var (
	ratesOf = map[string]int{"selective_scan": 2, "ssd_scan": 2, "selective_scan_gated": 3, "selective_scan_projected": 4, "ssd_scan_gated": 3, "delta_scan": 3}
	stepsOf = map[string]int{"selective_scan": 1, "ssd_scan": 1, "delta_scan": 4}
)

// numbersOf returns the numbers for an operand. Scans need positive time steps and negative rates.
func numbersOf(op string, operand int) numbers {
	if ratesOf[op] == operand && operand > 0 {
		return negative
	}
	if stepsOf[op] == operand && operand > 0 {
		return positive
	}
	switch op {
	case "rms_rows", "rms_scale", "group_rms_scale":
		if operand == 1 {
			return positive
		}
	}
	return plain
}

// choiceRows returns the rows that select greedy or sampled choice.
func choiceRows(draw bool) numbers {
	row := make([]float32, graph.ChoiceUniformRest+1)
	if draw {
		row[graph.ChoiceTemperature], row[graph.ChoiceTopK], row[graph.ChoiceTopP], row[graph.ChoiceUniform] = 0.8, 50, 0.95, 0.5
	}
	at := -1
	return func(*rand.Rand) float32 {
		at = (at + 1) % len(row)
		return row[at]
	}
}

// patternElems is the number of elements to draw; larger tensors repeat them.
const patternElems = 1 << 16

// fill allocates a tensor and fills it with numbers.
func (m *memory) fill(t *cuda.Tensor, f numbers) (driver.Ptr, error) {
	total := size(&t.Tensor)
	at, err := m.alloc(total)
	if err != nil || total == 0 {
		return at, err
	}
	elems := int64(t.DType.Bytes())
	pattern := draw(t.DType, int(min(patternElems, total/elems)), f)
	if err := m.stream.CopyIn(at, pattern); err != nil {
		return 0, err
	}
	for done := int64(len(pattern)); done < total; done *= 2 {
		if err := m.stream.Copy(at+driver.Ptr(done), at, min(done, total-done)); err != nil {
			return 0, err
		}
	}
	return at, nil
}

func draw(d graph.DType, n int, f numbers) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	var b []byte
	for range n {
		v := f(r)
		switch d {
		case graph.F16:
			b = binary.LittleEndian.AppendUint16(b, float16.Fromfloat32(v).Bits())
		case graph.BF16:
			b = binary.LittleEndian.AppendUint16(b, uint16(math.Float32bits(v)>>16))
		default:
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
	}
	return b
}

// ints allocates an integer input of a name, with its values for the batch.
func (m *memory) ints(t *kernels.Tensor, name string, p *phase) (driver.Ptr, error) {
	at, err := m.alloc(size(t))
	if err != nil {
		return 0, err
	}
	var b []byte
	for _, v := range intsOf(t.Rows(), name, p) {
		b = binary.LittleEndian.AppendUint32(b, uint32(v))
	}
	return at, m.stream.CopyIn(at, b)
}

// intsOf returns the rows of an integer input of a name for the batch.
func intsOf(rows int, name string, p *phase) (list []int32) {
	for i := range rows {
		switch name {
		case "seg": // first token, tokens, slot
			list = append(list, int32(i*p.tokens), int32(p.tokens), int32(i))
		case "rows": // the last token of each sequence
			list = append(list, int32((i+1)*p.tokens-1))
		case "past":
			list = append(list, int32(p.past))
		default: // token ids
			list = append(list, 0)
		}
	}
	return list
}

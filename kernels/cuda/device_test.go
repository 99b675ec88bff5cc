package cuda

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"sync"
	"testing"

	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/cuda/ptx"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"pgregory.net/rapid"
)

// kernel names a kernel in the interpreter, as it is or as it is launched before the launch before
// it has ended.
type kernel struct {
	module, function string
	depends          bool
}

// parsed are the kernels that have run: for each, a function that parses it alone, once, as drivers
// load it.
var parsed sync.Map

func (k kernel) entry() (*ptx.Entry, error) {
	parse, _ := parsed.LoadOrStore(k, sync.OnceValues(func() (*ptx.Entry, error) {
		name, text := (&Launch{Module: k.module, Function: k.function}).Source()
		if text == nil {
			return nil, fmt.Errorf("there is no kernel %s in a module %s", k.function, k.module)
		}
		if k.depends {
			text = Dependent(text)
		}
		m, err := ptx.Parse(name, string(text))
		if err != nil {
			return nil, err
		}
		e, ok := m.Entry(k.function)
		if !ok {
			return nil, fmt.Errorf("module %s has no kernel %s", k.module, k.function)
		}
		return e, nil
	}))
	return parse.(func() (*ptx.Entry, error))()
}

// device is a memory to run kernels in.
type device struct {
	t   fataler
	mem memory
	gpu *gpu // nil: the interpreter

	pages    map[uint64]*pages // of caches, by the address of the table
	counters uint64            // see Call.Arrivals; 0: not yet
}

type fataler interface {
	Helper()
	Cleanup(func())
	Fatal(...any)
	Fatalf(string, ...any)
}

// newDevice is the device of KRAIT_TEST_DEVICE, or the interpreter.
func newDevice(t fataler) *device {
	t.Helper()
	if planOnly != nil {
		return newPlanner(t)
	}
	if onDevice == "" {
		return newInterpreter(t)
	}
	g, err := theGPU()
	if err != nil {
		t.Fatalf("%s", driver.Explain(err))
	}
	m := &gpuMemory{gpu: g}
	t.Cleanup(m.release)
	return &device{t: t, mem: m, gpu: g}
}

// newInterpreter is for tests of faults, of which a GPU knows few and after which it
// is of no use.
func newInterpreter(t fataler) *device {
	m := memories.Get().(*interpreted)
	t.Cleanup(m.release)
	return &device{t: t, mem: m}
}

// interpreted is a memory of the interpreter. It serves one test after the other, as
// launches use again what those before have left: registers and shared memory.
type interpreted struct {
	*ptx.Memory
	mine []uint64
}

var memories = sync.Pool{New: func() any { return &interpreted{Memory: ptx.NewMemory(1 << 28)} }}

func (m *interpreted) Alloc(bytes int64) (uint64, error) {
	at, err := m.Memory.Alloc(bytes)
	if err == nil {
		m.mine = append(m.mine, at)
	}
	return at, err
}

func (m *interpreted) release() {
	for _, at := range m.mine {
		if err := m.Free(at); err != nil {
			panic("BUG: " + err.Error())
		}
	}
	m.mine = m.mine[:0]
	memories.Put(m)
}

// run launches kernels one after the other, some of them as dependent launches.
func (d *device) run(launches []Launch, seed uint64) {
	d.t.Helper()
	for _, l := range launches {
		if planOnly != nil {
			planOnly[l.Module+"."+l.Function] = true
			continue
		}
		if err := d.launch(l, seed); err != nil {
			d.t.Fatalf("%s on %v blocks of %v: %v", l.Function, l.Grid, l.Block, err)
		}
	}
	if m, ok := d.mem.(*gpuMemory); ok {
		if err := m.finish(); err != nil {
			d.t.Fatal(err)
		}
	}
}

func (d *device) launch(l Launch, seed uint64) error {
	depends := asDependent(l.Module+"."+l.Function, seed)
	e, err := kernel{l.Module, l.Function, depends}.entry()
	if err != nil {
		d.t.Fatal(err)
	}
	if len(l.Params) != e.ParamBytes() {
		d.t.Fatalf("%s takes %d bytes of parameters, not %d", l.Function, e.ParamBytes(), len(l.Params))
	}
	if d.gpu != nil {
		return d.gpu.launch(&l, depends)
	}
	on := launchOf(l, seed)
	on.Dependent = depends
	err = e.Run(context.Background(), d.mem.(*interpreted).Memory, on)
	if err != nil && depends {
		err = fmt.Errorf("as a dependent launch: %w", err)
	}
	return err
}

// asDependent counts a launch, and reports whether it is to be a dependent one: the first is, the
// second is not, and then those of odd seeds are.
func asDependent(kernel string, seed uint64) bool {
	launched.Lock()
	defer launched.Unlock()
	depends := seed%2 == 1
	switch n := launched.count[kernel]; {
	case n == 0:
		depends = true
	case launched.dependent[kernel] == n:
		depends = false
	}
	launched.count[kernel]++
	launched.families[family(kernel)] = true
	if depends {
		launched.dependent[kernel]++
	}
	return depends
}

// launchOf is a launch on the GPU of the table that gives a thread most registers.
func launchOf(l Launch, seed uint64) ptx.Launch {
	out := ptx.Launch{Shared: int(l.Shared), Params: l.Params, Seed: seed}
	for _, c := range registerGPUs {
		out.Registers = max(out.Registers, Registers(l.Module, l.Function, c))
	}
	for i := range l.Grid {
		out.Grid[i], out.Block[i] = int(l.Grid[i]), int(l.Block[i])
	}
	return out
}

// alloc gives memory that was never written.
func (d *device) alloc(bytes int) uint64 {
	d.t.Helper()
	addr, err := d.mem.Alloc(int64(max(1, bytes)))
	if err != nil {
		d.t.Fatal(err)
	}
	return addr
}

// arrivals gives counters that are 0.
func (d *device) arrivals() uint64 {
	d.t.Helper()
	if d.counters == 0 {
		d.counters = d.alloc(4 * MaxArrivals)
		if err := d.mem.Write(d.counters, make([]byte, 4*MaxArrivals)); err != nil {
			d.t.Fatal(err)
		}
	}
	return d.counters
}

// empty is a tensor of which nothing is written, some elements into an
// allocation that it fills to the end.
func (d *device) empty(t *kernels.Tensor, offset int) Tensor {
	size := t.DType.Bytes()
	elems := offset
	if rows := allRows(t); rows > 0 && t.Cols > 0 {
		elems += (rows-1)*t.Stride + t.Cols
	}
	out := Tensor{Tensor: *t, Ptr: d.alloc(elems*size) + uint64(offset*size)}
	out.F32, out.U16, out.U8, out.I32 = nil, nil, nil, nil
	return out
}

// upload copies the rows of a tensor, and nothing of what lies between them.
func (d *device) upload(t *kernels.Tensor, offset int) Tensor {
	d.t.Helper()
	if t.Blocks != nil {
		return d.uploadBlocks(t)
	}
	out := d.empty(t, offset)
	d.write(out, t)
	return out
}

// write copies the rows of a tensor to one that lies as it does.
func (d *device) write(to Tensor, t *kernels.Tensor) {
	d.t.Helper()
	if _, planned := d.mem.(*addresses); planned {
		return
	}
	for i := range allRows(t) {
		if t.Cols > 0 {
			if err := d.mem.Write(d.row(to, i, t.Stride), rowBytes(t, i)); err != nil {
				d.t.Fatal(err)
			}
		}
	}
}

// download reads rows into a tensor like to.
func (d *device) download(from Tensor, to *kernels.Tensor) {
	d.t.Helper()
	if planOnly != nil {
		return
	}
	for i := range allRows(to) {
		data := rowBytes(to, i)
		if len(data) == 0 {
			continue
		}
		if err := d.mem.Read(d.row(from, i, to.Stride), data); err != nil {
			d.t.Fatalf("row %d of %d: %v", i, allRows(to), err)
		}
		for j := range to.Cols {
			switch at := i*to.Stride + j; to.DType {
			case graph.F32:
				to.F32[at] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*j:]))
			case graph.I32:
				to.I32[at] = int32(binary.LittleEndian.Uint32(data[4*j:]))
			case graph.F8:
				to.U8[at] = data[j]
			default:
				to.U16[at] = binary.LittleEndian.Uint16(data[2*j:])
			}
		}
	}
}

// allRows counts the rows of a tensor; a cache has some per slot.
func allRows(t *kernels.Tensor) int {
	n := t.Dims[0]
	for _, d := range t.Dims[1:] {
		n *= d
	}
	return n / max(1, t.Cols)
}

func rowBytes(t *kernels.Tensor, i int) []byte {
	b := make([]byte, 0, t.Cols*t.DType.Bytes())
	for at := i * t.Stride; at < i*t.Stride+t.Cols; at++ {
		switch t.DType {
		case graph.F32:
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(t.F32[at]))
		case graph.I32:
			b = binary.LittleEndian.AppendUint32(b, uint32(t.I32[at]))
		case graph.F8:
			b = append(b, t.U8[at])
		default:
			b = binary.LittleEndian.AppendUint16(b, t.U16[at])
		}
	}
	return b
}

// clone copies a tensor's memory, too.
func clone(t *kernels.Tensor) kernels.Tensor {
	out := *t
	out.F32, out.U16, out.I32 = append([]float32(nil), t.F32...), append([]uint16(nil), t.U16...), append([]int32(nil), t.I32...)
	out.U8 = append([]byte(nil), t.U8...)
	return out
}

// values reads all elements as float64.
func values(t *kernels.Tensor) []float64 {
	out := make([]float64, 0, allRows(t)*t.Cols)
	buf := make([]float32, t.Cols)
	for i := range allRows(t) {
		if t.DType == graph.I32 {
			for _, v := range t.I32[i*t.Stride : i*t.Stride+t.Cols] {
				out = append(out, float64(v))
			}
			continue
		}
		t.Read(buf, i*t.Stride)
		for _, v := range buf {
			out = append(out, float64(v))
		}
	}
	return out
}

// same compares within a share of the largest magnitude, which counts as 1 at
// least; a share of 0 means to the last bit, but for the sign of 0.
func same(t fataler, what string, got, want *kernels.Tensor, share float64) {
	t.Helper()
	if planOnly != nil {
		return
	}
	a, b := values(got), values(want)
	if len(a) != len(b) {
		t.Fatalf("%s has %d elements, want %d", what, len(a), len(b))
	}
	scale := 1.0
	for _, v := range b {
		scale = math.Max(scale, math.Abs(v))
	}
	for i := range b {
		if d := math.Abs(a[i] - b[i]); !(d <= share*scale) {
			t.Fatalf("%s, row %d, column %d: %g, want %g (off by %g of %g)", what, i/max(1, want.Cols), i%max(1, want.Cols), a[i], b[i], d, scale)
		}
	}
}

// sameKept is same for a state: what is kept in 16 bits may be rounded to the next
// number, where the middle between two is near, some 1 of 1000 times.
func sameKept(t fataler, got, want *kernels.Tensor, share float64) {
	t.Helper()
	place := map[graph.DType]float64{graph.F16: 0x1p-10, graph.BF16: 0x1p-7, graph.F8: 0x1p-3}[want.DType]
	if place == 0 {
		same(t, "state", got, want, share)
		return
	}
	if planOnly != nil {
		return
	}
	a, b, apart := values(got), values(want), 0
	for i := range b {
		d := math.Abs(a[i] - b[i])
		if !(d <= share+place*math.Abs(b[i])) {
			t.Fatalf("state, row %d, column %d: %g, want %g in %s", i/max(1, want.Cols), i%max(1, want.Cols), a[i], b[i], want.DType)
		}
		if d > 0 {
			apart++
		}
	}
	if apart > 2+len(b)/50 {
		t.Fatalf("%d of %d elements of a state are rounded otherwise", apart, len(b))
	}
}

// deviceCall puts a call's tensors on the device. The results that are states
// are the memory of their operands; offsets says how many elements into its
// allocation each tensor begins.
func (d *device) deviceCall(op *graph.Op, c *kernels.Call, states map[int]Tensor, offset func() int) *Call {
	d.t.Helper()
	out := &Call{Attrs: c.Attrs, Results: make([]Tensor, len(c.Results))}
	for i := range c.Args {
		if s, ok := states[i]; ok {
			out.Args = append(out.Args, s)
			continue
		}
		if op.Name == "attention" && isState(op, i) {
			states[i] = d.paged(&c.Args[i], states[i-1], offset)
			out.Args = append(out.Args, states[i])
			continue
		}
		t := d.upload(&c.Args[i], offset())
		if isState(op, i) {
			states[i] = t
		}
		t.Fixed = !isState(op, i)
		out.Args = append(out.Args, t)
	}
	for i := range c.Results {
		out.Results[i] = d.empty(&c.Results[i], offset())
	}
	for _, p := range op.States {
		from := &out.Args[p.Operand]
		to := &out.Results[p.Result]
		to.Ptr, to.Pages, to.InPage = from.Ptr, from.Pages, from.InPage
	}
	if op.Name == "attention" {
		d.turn(&out.Args[3], &c.Args[5])
	}
	return out
}

func isState(op *graph.Op, operand int) bool {
	for _, p := range op.States {
		if p.Operand == operand {
			return true
		}
	}
	return false
}

// compute runs a call and returns the launches.
func (d *device) compute(op *graph.Op, c *Call, seed uint64) []Launch {
	d.t.Helper()
	launches := d.plan(op, c)
	d.run(launches, seed)
	return launches
}

// plan gives a call its scratch and returns the launches.
func (d *device) plan(op *graph.Op, c *Call) []Launch {
	d.t.Helper()
	k := Kernels[op.Name]
	if d.gpu != nil && c.Options.Shared == 0 {
		c.Options.Shared = d.gpu.Device().SharedMax
	}
	if n := k.Scratch(c); n > 0 {
		c.Scratch = d.alloc(int(n))
	}
	c.Arrivals = d.arrivals()
	launches, err := k.Launches(c)
	if err != nil {
		d.t.Fatal(err)
	}
	return launches
}

func findOp(t fataler, name string) *graph.Op {
	for _, op := range graph.Ops() {
		if op.Name == name {
			return op
		}
	}
	t.Fatalf("there is no operation %s", name)
	return nil
}

var _ fataler = (*rapid.T)(nil)
var _ fataler = (*testing.T)(nil)

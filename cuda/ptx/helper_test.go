package ptx

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
)

// A rig is a device to run kernels on.
type rig struct {
	t   testing.TB
	mem *Memory
}

func newRig(t testing.TB) rig { return rig{t, NewMemory(1 << 30)} }

func (r rig) alloc(bytes int) uint64 {
	r.t.Helper()
	addr, err := r.mem.Alloc(int64(bytes))
	if err != nil {
		r.t.Fatal(err)
	}
	return addr
}

// put allocates and writes a slice of numbers.
func (r rig) put(values any) uint64 {
	r.t.Helper()
	data, err := binary.Append(nil, binary.LittleEndian, values)
	if err != nil {
		r.t.Fatal(err)
	}
	addr := r.alloc(len(data))
	if err := r.mem.Write(addr, data); err != nil {
		r.t.Fatal(err)
	}
	return addr
}

// get reads into a slice of numbers.
func (r rig) get(addr uint64, values any) {
	r.t.Helper()
	data := make([]byte, binary.Size(values))
	if err := r.mem.Read(addr, data); err != nil {
		r.t.Fatal(err)
	}
	if _, err := binary.Decode(data, binary.LittleEndian, values); err != nil {
		r.t.Fatal(err)
	}
}

func (r rig) floats(addr uint64, n int) []float32 {
	r.t.Helper()
	v := make([]float32, n)
	r.get(addr, v)
	return v
}

func (r rig) words(addr uint64, n int) []uint64 {
	r.t.Helper()
	v := make([]uint64, n)
	r.get(addr, v)
	return v
}

// params packs arguments as the kernel wants them.
func params(t testing.TB, e *Entry, args ...any) []byte {
	t.Helper()
	if len(args) != len(e.Params()) {
		t.Fatalf("%d arguments for kernel %s, which has %d", len(args), e.Name(), len(e.Params()))
	}
	block := make([]byte, e.ParamBytes())
	for i, p := range e.Params() {
		data, err := binary.Append(nil, binary.LittleEndian, args[i])
		if err != nil || len(data) != p.Size {
			t.Fatalf("argument %d of kernel %s is %T, of %d bytes", i, e.Name(), args[i], p.Size)
		}
		copy(block[p.Offset:], data)
	}
	return block
}

// parse parses text that must be good.
func parse(t testing.TB, text string) *Module {
	t.Helper()
	m, err := Parse("test", text)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func entry(t testing.TB, m *Module, name string) *Entry {
	t.Helper()
	e, ok := m.Entry(name)
	if !ok {
		t.Fatalf("there is no kernel %s", name)
	}
	return e
}

// run launches a kernel with blocks and threads in x.
func (r rig) run(e *Entry, blocks, threads int, args ...any) error {
	r.t.Helper()
	return r.launch(e, Launch{Grid: [3]int{blocks, 1, 1}, Block: [3]int{threads, 1, 1}, Params: params(r.t, e, args...)})
}

func (r rig) launch(e *Entry, l Launch) error {
	return e.Run(context.Background(), r.mem, l)
}

func (r rig) mustRun(e *Entry, blocks, threads int, args ...any) {
	r.t.Helper()
	if err := r.run(e, blocks, threads, args...); err != nil {
		r.t.Fatal(err)
	}
}

// header is what a module of PTX begins with.
const header = ".version 7.8\n.target sm_90\n.address_size 64\n"

// kernel wraps a body in a kernel named k with registers to use: %p, %h (16
// bits), %r (32) and %d (64). The lines of the body are numbered from bodyLine.
func kernel(params, body string) string {
	return header + ".visible .entry k(" + params + ")\n{\n" +
		".reg .pred %p<16>; .reg .b16 %h<16>; .reg .b32 %r<32>; .reg .b64 %d<32>;\n" + body + "\nret;\n}\n"
}

const bodyLine = 7

// A wantFault is what a fault must be.
type wantFault struct {
	kind          FaultKind
	line          int // of the body, from 0
	block, thread int // x
	text          string
}

func (want wantFault) check(t *testing.T, err error) {
	t.Helper()
	var f *Fault
	if !errors.As(err, &f) {
		t.Fatalf("got %v, want a fault of kind %s", err, want.kind)
	}
	got := wantFault{f.Kind, f.Line - bodyLine, f.Block[0], f.Thread[0], want.text}
	if got != want || !strings.Contains(f.Error(), want.text) {
		t.Errorf("got kind %q in line %d, block %d, thread %d:\n%v\nwant kind %q in line %d, block %d, thread %d: …%s…",
			got.kind, got.line, got.block, got.thread, f, want.kind, want.line, want.block, want.thread, want.text)
	}
}

// An operation is one instruction to be tested: its text, with destination %z
// and operands %x, %y and %w, and their widths.
type operation struct {
	text       string
	z, x, y, w int
}

// registers of each width hold any type.
func (o operation) kernel() string {
	var b strings.Builder
	b.WriteString(header + ".visible .entry k(.param .u64 out, .param .u64 in, .param .u32 n)\n{\n")
	b.WriteString(".reg .pred %out; .reg .b32 %i, %n, %c; .reg .b64 %at, %a; .reg .b64 %v<4>;\n")
	for i, width := range []int{o.z, o.x, o.y, o.w} {
		if width > 1 {
			fmt.Fprintf(&b, ".reg .b%d %%%c;\n", width, "zxyw"[i])
		} else if width == 1 {
			fmt.Fprintf(&b, ".reg .pred %%%c;\n", "zxyw"[i])
		}
	}
	b.WriteString(`mov.u32 %i, %ctaid.x; mov.u32 %n, %ntid.x; mov.u32 %c, %tid.x;
mad.lo.u32 %i, %i, %n, %c;
ld.param.u32 %n, [n];
setp.ge.u32 %out, %i, %n;
@%out ret;
ld.param.u64 %at, [in];
mad.wide.u32 %a, %i, 24, %at;
ld.global.u64 %v1, [%a]; ld.global.u64 %v2, [%a+8]; ld.global.u64 %v3, [%a+16];
`)
	for i, width := range []int{o.x, o.y, o.w} {
		name := "xyw"[i]
		switch width {
		case 1:
			fmt.Fprintf(&b, "setp.ne.u64 %%%c, %%v%d, 0;\n", name, i+1)
		case 64:
			fmt.Fprintf(&b, "mov.b64 %%%c, %%v%d;\n", name, i+1)
		case 16, 32:
			fmt.Fprintf(&b, "cvt.u%d.u64 %%%c, %%v%d;\n", width, name, i+1)
		}
	}
	b.WriteString(o.text + "\n")
	switch o.z {
	case 1:
		b.WriteString("selp.u64 %v0, 1, 0, %z;\n")
	case 64:
		b.WriteString("mov.b64 %v0, %z;\n")
	default:
		fmt.Fprintf(&b, "cvt.u64.u%d %%v0, %%z;\n", o.z)
	}
	b.WriteString("ld.param.u64 %at, [out];\nmad.wide.u32 %a, %i, 8, %at;\nst.global.u64 [%a], %v0;\nret;\n}\n")
	return b.String()
}

// run runs the instruction for all operands, a thread for each.
func (o operation) run(t testing.TB, operands [][3]uint64) []uint64 {
	t.Helper()
	m, err := Parse(o.text, o.kernel())
	if err != nil {
		t.Fatalf("%s: %v", o.text, err)
	}
	return runOperation(t, entry(t, m, "k"), operands)
}

func runOperation(t testing.TB, e *Entry, operands [][3]uint64) []uint64 {
	t.Helper()
	r := newRig(t)
	n := len(operands)
	in, out := r.put(operands), r.alloc(8*n)
	r.mustRun(e, (n+63)/64, min(n, 64), out, in, uint32(n))
	return r.words(out, n)
}

func f32bits(x float32) uint64 { return uint64(math.Float32bits(x)) }

func testdata(t testing.TB, name string) *Module {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	m, err := Parse(name, string(text))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

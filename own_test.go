package krait

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/cuda/sim"
	"github.com/krait-ml/krait/exec/cuda"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/kernels"
	kernelscpu "github.com/krait-ml/krait/kernels/cpu"
	kernelscuda "github.com/krait-ml/krait/kernels/cuda"
	"github.com/krait-ml/krait/kernels/reference"
	"github.com/krait-ml/krait/lab/optest"
)

// squarePTX is y = x x of a row per block of the grid's first axis, 128 columns per block of its
// second.
const squarePTX = `
.version 7.0
.target sm_80
.address_size 64
.visible .entry square(.param .u64 y, .param .u64 ystride, .param .u64 x, .param .u64 xstride, .param .u32 cols)
{
	.reg .pred %p;
	.reg .f32 %f;
	.reg .b32 %r<6>;
	.reg .b64 %d<12>;
	mov.u32 %r0, %ctaid.y;
	mov.u32 %r1, %tid.x;
	shl.b32 %r2, %r0, 7;
	add.u32 %r3, %r2, %r1;
	ld.param.u32 %r4, [cols];
	setp.ge.u32 %p, %r3, %r4;
	@%p bra DONE;
	mov.u32 %r5, %ctaid.x;
	cvt.u64.u32 %d0, %r5;
	cvt.u64.u32 %d1, %r3;
	ld.param.u64 %d2, [xstride];
	mul.lo.s64 %d3, %d0, %d2;
	add.s64 %d3, %d3, %d1;
	shl.b64 %d3, %d3, 2;
	ld.param.u64 %d4, [x];
	add.s64 %d4, %d4, %d3;
	ld.global.f32 %f, [%d4];
	mul.f32 %f, %f, %f;
	ld.param.u64 %d5, [ystride];
	mul.lo.s64 %d6, %d0, %d5;
	add.s64 %d6, %d6, %d1;
	shl.b64 %d6, %d6, 2;
	ld.param.u64 %d7, [y];
	add.s64 %d7, %d7, %d6;
	st.global.f32 [%d7], %f;
DONE:
	ret;
}
`

func init() {
	for _, name := range []string{"test_square", "test_square_cpu"} {
		graph.RegisterOp(graph.Op{Name: name, Doc: "x x", Rule: graph.MustParseRule("* -> *"), Operands: "a", InPlace: []int{0}, Work: []string{"1"}})
		reference.Register(name, func(c *kernels.Call) {
			reference.Fill(c, func(i, j int) float64 { x := reference.At(&c.Args[0], i, j); return x * x })
		})
		kernelscpu.Register(name, kernels.PerRow(func(y, x []float32) {
			for j, v := range x {
				y[j] = v * v
			}
		}))
	}
	kernelscuda.Register("test_square", kernelscuda.Own{PTX: []byte(squarePTX), Launch: func(c *kernelscuda.Call) error {
		y, x := &c.Results[0], &c.Args[0]
		c.Add("square", [3]int{y.Rows(), (y.Cols + 127) / 128, 1}, [3]int{128, 1, 1}, 0, y.Ptr, int64(y.Stride), x.Ptr, int64(x.Stride), y.Cols)
		return nil
	}})
}

// squared is a model with an operation of its own.
func squared(t *testing.T, op string, o Options) (*Model, error) {
	t.Helper()
	const vocab, width = 40, 150
	b := graph.New("squared")
	ids := b.Input("ids", graph.TypeOf(graph.I32, graph.Symbol(graph.Tokens)))
	rows := b.Input("rows", graph.TypeOf(graph.I32, graph.Symbol(graph.Rows)))
	table := b.Param("table", graph.TypeOf(graph.F32, graph.Units(vocab, 1), graph.Size(width)), nil)
	up := b.Param("up", graph.TypeOf(graph.F32, graph.Units(width, 1), graph.Size(width)), nil)
	down := b.Param("down", graph.TypeOf(graph.F32, graph.Size(width), graph.Units(width, 1)), nil)
	h := b.Embedding("e", ids, table)
	h = b.Add("h", h, b.MatMul("out", b.Map("act", op, b.MatMul("in", h, up)), down))
	b.Output("logits", b.MatMul("logits", b.SelectRows("last", h, rows), table))
	g, err := b.Graph()
	if err != nil {
		t.Fatal(err)
	}
	arrays := map[string]graph.Array{}
	for name, shape := range map[string][]int{"table": {vocab, width}, "up": {width, width}, "down": {width, width}} {
		values := make([]float32, shape[0]*shape[1])
		for i := range values {
			values[i] = float32((i*7919+len(name)*31)%101-50) / 400
		}
		arrays[name] = graph.ArrayOf(values, shape...)
	}
	return New(g, Tensors(arrays), nil, o)
}

// TestOwnOperation: an operation with kernels for CPU and GPU runs on both, split and whole.
func TestOwnOperation(t *testing.T) {
	optest.Check(t, "test_square")
	var want []float32
	for _, ranks := range []int{1, 3} {
		for device, o := range map[string]Options{"cpu": {}, "reference": {Reference: true}, "cuda-sim": {Device: &cuda.Device{Driver: sim.New(sim.Options{NoBLAS: true})}}} {
			o.Sharding.Ranks = ranks
			m, err := squared(t, "test_square", o)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			s := newSequence(t, m)
			got, err := s.Step(t.Context(), 3, 1, 4, 1, 5)
			if err != nil {
				t.Fatal(err)
			}
			if want == nil {
				want = slices.Clone(got)
			}
			if d := apart(got, want); d > 1e-4 {
				t.Errorf("%s, %d ranks: logits are %g off", device, ranks, d)
			}
		}
	}
}

// TestOwnOperationOnHost: the simulated device computes an operation without a kernel for GPUs by
// its reference kernel, in eager and in captured steps, and says so; a GPU refuses it, by name.
func TestOwnOperationOnHost(t *testing.T) {
	for i, ranks := range []int{1, 3} {
		for k, math := range []kernelscuda.Math{kernelscuda.F32, kernelscuda.BF16} {
			if i != k && goldens.Few(t) {
				continue
			}
			gpu := &cuda.Device{Driver: sim.New(sim.Options{NoBLAS: true, Ordered: true, Capability: [2]int{9, 0}}), Math: math}
			var got [2]*Generation
			for i, o := range []Options{{}, {Device: gpu}} {
				o.Sharding.Ranks = ranks
				m, err := squared(t, "test_square_cpu", o)
				if err != nil {
					t.Fatal(err)
				}
				defer m.Close()
				if said := strings.Contains(strings.Join(m.Warnings, "; "), "operation test_square_cpu has no kernel for GPUs"); said != (i == 1) {
					t.Errorf("warnings: %q", m.Warnings)
				}
				if got[i], err = m.GenerateIDs(t.Context(), []int{3, 1, 4}, Generate{MaxTokens: 6}); err != nil {
					t.Fatal(err)
				}
			}
			if !slices.Equal(got[0].IDs, got[1].IDs) {
				t.Errorf("%d ranks, math %v: %v, want %v", ranks, math, got[1].IDs, got[0].IDs)
			}
		}
	}
	_, err := squared(t, "test_square_cpu", Options{Device: &cuda.Device{Driver: apartDriver{sim.New(sim.Options{NoBLAS: true})}}})
	if err == nil || !strings.Contains(err.Error(), "operation test_square_cpu has no kernel for GPUs, only for the CPU") {
		t.Error(err)
	}
}

// apartDriver is a driver whose devices have memory that the host does not reach, as GPUs.
type apartDriver struct{ driver.Driver }

func (d apartDriver) Devices() ([]driver.DeviceInfo, error) {
	list, err := d.Driver.Devices()
	for i := range list {
		list[i].HostReaches = false
	}
	return list, err
}

// TestOwnModule runs the tests of the module in examples, which is none of this one's packages:
// an operation and a family of its own. Nothing is fetched; where this module's
// dependencies change, `go mod tidy` in its folder follows.
func TestOwnModule(t *testing.T) {
	if !goldens.All() {
		t.Skip("it builds another module: CI does, with KRAIT_TEST_ALL")
	}
	for _, dir := range []string{"examples/ownmodule", "examples/ownmodule/leaky", "examples/ownmodule/gru"} {
		if _, err := os.ReadDir(dir); err != nil { // go test runs it again where one of these files changed
			t.Fatal(err)
		}
	}
	c := exec.Command("go", "test", "-C", "examples/ownmodule", "./...")
	c.Env = append(os.Environ(), "GOPROXY=off", "GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=readonly", "GOWORK=off")
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v (after a change of go.mod: cd examples/ownmodule && go mod tidy)\n%s", err, out)
	}
}

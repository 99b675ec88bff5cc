package exec_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/checkpoint/safetensors"
	"github.com/krait-ml/krait/cuda/sim"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/cpu"
	"github.com/krait-ml/krait/exec/cuda"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/kernels"
	kernelscpu "github.com/krait-ml/krait/kernels/cpu"
	"github.com/krait-ml/krait/kernels/reference"
	"github.com/krait-ml/krait/lowering"
)

// goldenOp is a case of testdata/golden/ops: one operation, computed in float64
// by code of other projects.
type goldenOp struct {
	Op        string
	Softplus  bool      `json:"delta_softplus"`
	Softplus2 bool      `json:"dt_softplus"`
	Limit     []float64 `json:"dt_limit"`
	Groups    int       `json:"groups"`
	Before    *bool     `json:"norm_before_gate"`
	Eps       float64   `json:"eps"`
	SiLU      bool      `json:"silu"`
	L2Norm    bool      `json:"l2norm"`
	Scale     float64   `json:"scale"`
	Raw       bool      `json:"gates_from_raw"`
	Negative  bool      `json:"allow_neg_eigval"`
	After     []int     `json:"states_after"`
	name      string
	file      *safetensors.File
	b         *graph.Builder
	inputs    map[string]graph.Array
	params    map[string]graph.Array
}

// goldenOps are the cases of each file: one that is gone must not pass.
var goldenOps = map[string][]string{
	"ops": {
		"conv.k3_nobias", "conv.k4", "conv.k4_short", "conv.k4_state",
		"norm.gate_then_norm", "norm.gate_then_norm_g4", "norm.norm_then_gate_g2", "norm.plain",
		"sel.full", "sel.groups", "sel.h0", "sel.one", "sel.plain", "sel.state", "sel.wide",
		"ssd.g1", "ssd.g4", "ssd.limit", "ssd.one", "ssd.plain",
	},
	"delta": {
		"delta.five", "delta.l130", "delta.l64", "delta.no_decay", "delta.no_l2norm", "delta.one",
		"delta.raw_gates", "delta.strong_decay", "delta.zero_state",
		"norm.head_norm_then_gate", "norm.zero_centred",
	},
	"kda": {
		"kda.five", "kda.l130", "kda.l64", "kda.neg_eigval", "kda.one", "kda.raw_gates",
		"kda.strong_decay", "kda.zero_state",
	},
}

// casesOf are the cases that have tensors.
func casesOf(f *safetensors.File) []string {
	names := map[string]bool{}
	for _, name := range f.Names() {
		names[name[:strings.LastIndexByte(name, '.')]] = true
	}
	return slices.Sorted(maps.Keys(names))
}

func TestGoldenOps(t *testing.T) {
	for file, names := range goldenOps {
		index, f := openGoldenOps(t, file)
		defer f.Close()
		if got := slices.Sorted(maps.Keys(index)); !slices.Equal(got, names) || !slices.Equal(casesOf(f), names) {
			t.Fatalf("%s.json has the cases %q, %[1]s.safetensors the tensors of %q, want %q", file, got, casesOf(f), names)
		}
		for _, name := range names {
			c := *index[name]
			c.name, c.file = name, f
			for device, set := range everySet(t) {
				t.Run(name+"/"+device, func(t *testing.T) {
					c.run(t, &cpu.Device{Kernels: set}, nil, sevens, c.After)
				})
			}
			if c.Op == "gated_delta_rule" || c.Op == "kda" {
				t.Run(name+"/cuda-sim", func(t *testing.T) {
					cuts := [][]int{c.After}
					if goldens.All() {
						cuts = append(cuts, nil, sevens)
					}
					c.run(t, &cuda.Device{Driver: sim.New(sim.Options{})}, cuts...)
				})
			}
		}
	}
}

// openGoldenOps opens a file of cases.
func openGoldenOps(t *testing.T, name string) (map[string]*goldenOp, *safetensors.File) {
	path := "../testdata/golden/ops/" + name
	data, err := os.ReadFile(path + ".json")
	if err != nil {
		t.Fatal(err)
	}
	var index struct{ Cases map[string]*goldenOp }
	if err := json.Unmarshal(data, &index); err != nil {
		t.Fatal(err)
	}
	f, err := safetensors.Open(path + ".safetensors")
	if err != nil {
		t.Fatal(err)
	}
	return index.Cases, f
}

// everySet is the kernels of each instruction set of this machine, and the reference.
func everySet(t testing.TB) map[string]kernels.Set {
	sets := map[string]kernels.Set{"reference": reference.Kernels}
	for _, isa := range kernelscpu.ISAs() {
		set, err := kernelscpu.ForISA(isa)
		if err != nil {
			t.Fatal(err)
		}
		sets[isa] = set
	}
	return sets
}

// run builds the case as a graph, runs it cut in each way, and compares results and states.
func (c *goldenOp) run(t *testing.T, device exec.Device, ways ...[]int) {
	for _, cuts := range ways {
		c.b, c.inputs, c.params = graph.New(c.name), map[string]graph.Array{}, map[string]graph.Array{}
		state := map[string]func(seg *graph.Value) string{
			"selective_scan": c.selectiveScan, "ssd": c.ssd, "rms_norm": c.norm, "rms_norm_gated": c.norm, "causal_depthwise_conv1d": c.conv,
			"gated_delta_rule": c.delta, "kda": c.delta, "head_norm_then_gate": c.headNorm, "rms_norm_zero_centred": c.zeroCentred,
		}[c.Op](c.b.Input("seg", graph.TypeOf(graph.I32, graph.Symbol(graph.Seqs), graph.Size(3))))
		g, err := c.b.Graph()
		if err != nil {
			t.Fatal(err)
		}
		s, err := lowering.Lower(g)
		if err != nil {
			t.Fatal(err)
		}
		want := c.tensor("y")
		batch, length := want.Shape[0], want.Shape[1]
		e := newStepper(t, s, func(name string) (graph.Array, error) { return c.params[name], nil }, exec.Options{Device: device, Slots: batch})
		defer e.Close()
		c.load(t, e, state, batch)
		for at, next := 0, 0; at < length; at = next {
			next = length
			if i := slices.IndexFunc(cuts, func(cut int) bool { return at < cut && cut < length }); i >= 0 {
				next = cuts[i]
			}
			c.step(t, e, batch, length, at, next-at, floats(t, want))
			if state != "" {
				c.checkState(t, e, state, batch, next, length)
			}
		}
	}
}

// sevens cut a sequence into chunks of 7.
var sevens = []int{7, 14, 21, 28, 35, 42, 49, 56, 63, 70, 77, 84, 91, 98, 105, 112, 119, 126}

// checkState compares the states after some tokens, if the file has them.
func (c *goldenOp) checkState(t *testing.T, e *stepper, state string, batch, tokens, length int) {
	names := []string{fmt.Sprint("S_after_", tokens)}
	if tokens == length {
		names = []string{"h_final", "s_final", "S_final"}
	}
	for _, name := range names {
		want := c.tensor(name)
		for b := range batch {
			if want.Shape == nil {
				break
			}
			got, err := e.State(b, state)
			if err != nil {
				t.Fatal(err)
			}
			size := want.Elems() / batch
			near(t, name, got, floats(t, want)[b*size:(b+1)*size])
		}
	}
}

// load takes a slot per row and gives it the initial state.
func (c *goldenOp) load(t *testing.T, e *stepper, state string, batch int) {
	for b := range batch {
		if _, err := e.Alloc(); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"h0", "s0", "S0"} {
			if h := c.tensor(name); h.Shape != nil {
				size := h.Elems() / batch
				if err := e.SetState(b, state, h.Float32s()[b*size:(b+1)*size]); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// step runs tokens at to at+n of every row.
func (c *goldenOp) step(t *testing.T, e *stepper, batch, length, at, n int, want []float64) {
	var b exec.Batch
	b.Inputs = map[string]graph.Array{}
	for row := range batch {
		b.Sequences = append(b.Sequences, exec.Sequence{Slot: row, Len: n})
	}
	for name, a := range c.inputs {
		line := len(a.Data) / (batch * length)
		part := graph.Array{DType: a.DType, Shape: []int{batch * n, a.Elems() / (batch * length)}}
		for row := range batch {
			first := (row*length + at) * line
			part.Data = append(part.Data, a.Data[first:first+n*line]...)
		}
		b.Inputs[name] = part
	}
	if err := e.Step(context.Background(), &b); err != nil {
		t.Fatal(err)
	}
	out, err := e.Output("y")
	if err != nil {
		t.Fatal(err)
	}
	for row := range batch {
		for i := range n {
			w := (row*length + at + i) * out.Cols
			near(t, "y", out.Row(row*n+i), want[w:w+out.Cols])
		}
	}
}

func (c *goldenOp) tensor(name string) graph.Array {
	t, ok := c.file.Tensor(c.name + "." + name)
	if !ok {
		return graph.Array{}
	}
	return graph.Array{DType: map[string]graph.DType{"F32": graph.F32, "F64": graph.F64}[t.DType], Shape: t.Shape, Data: t.Data, From: name}
}

// input declares a tensor [batch, length, …] as tokens of one row each.
func (c *goldenOp) input(name string, dim graph.Dim) *graph.Value {
	c.inputs[name] = c.tensor(name)
	return c.b.Input(name, graph.TypeOf(graph.F32, graph.Symbol(graph.Tokens), dim))
}

func (c *goldenOp) param(name string, dims ...graph.Dim) *graph.Value {
	c.params[name] = c.tensor(name)
	return c.b.Param(name, graph.TypeOf(graph.F32, dims...), nil)
}

func (c *goldenOp) has(name string) bool { return c.tensor(name).Shape != nil }

func (c *goldenOp) state(name string, dims ...graph.Dim) *graph.Value {
	return c.b.State(name, graph.TypeOf(graph.F32, append([]graph.Dim{graph.Symbol(graph.Seqs)}, dims...)...))
}

func (c *goldenOp) selectiveScan(seg *graph.Value) string {
	shape, groups := c.tensor("A").Shape, c.tensor("B").Shape[2]
	d, n := graph.Size(shape[0]), graph.Size(shape[1])
	u, dt := c.input("u", d), c.input("delta", d)
	if c.has("delta_bias") {
		dt = c.b.Bias("dt_b", dt, c.param("delta_bias", d))
	}
	if c.Softplus {
		dt = c.b.Map("dt_s", "softplus", dt)
	}
	bc := graph.Units(groups*shape[1], shape[1])
	y := c.b.SelectiveScan("scan", u, dt, c.param("A", d, n), c.input("B", bc), c.input("C", bc), c.state("h", d, n), seg)
	if c.has("D") {
		y = c.b.Add("skipped", y, c.b.Scale("skip", u, c.param("D", d)))
	}
	if c.has("z") {
		y = c.b.Mul("gated", y, c.b.Map("gate", "silu", c.input("z", d)))
	}
	c.b.Output("y", y)
	return "h"
}

func (c *goldenOp) ssd(seg *graph.Value) string {
	x, b := c.tensor("x").Shape, c.tensor("B").Shape
	inner, h, p, n := graph.Units(x[2]*x[3], x[3]), graph.Size(x[2]), graph.Size(x[3]), graph.Size(b[3])
	dt := c.input("dt", h)
	if c.has("dt_bias") {
		dt = c.b.Bias("dt_b", dt, c.param("dt_bias", h))
	}
	if c.Softplus2 {
		dt = c.b.Map("dt_s", "softplus", dt)
	}
	if c.Limit != nil {
		dt = c.b.Clamp("dt_c", dt, c.Limit[0], c.Limit[1])
	}
	bc := graph.Units(b[2]*b[3], b[3])
	v := c.input("x", inner)
	y := c.b.SSDScan("scan", v, dt, c.param("A", h), c.input("B", bc), c.input("C", bc), c.state("h", h, p, n), seg)
	if c.has("D") {
		y = c.b.Add("skipped", y, c.b.Scale("skip", v, c.param("D", h)))
	}
	c.b.Output("y", y)
	return "h"
}

func (c *goldenOp) norm(*graph.Value) string {
	d := graph.Size(c.tensor("weight").Shape[0])
	x, w := c.input("x", d), c.param("weight", d)
	norm := func(v *graph.Value) *graph.Value {
		if c.Groups == 1 {
			return c.b.RMSNorm("norm", v, w, c.Eps)
		}
		return c.b.GroupRMSNorm("norm", v, w, c.Groups, c.Eps)
	}
	switch {
	case c.Before == nil:
		x = norm(x)
	case *c.Before:
		x = c.b.Mul("gated", norm(x), c.b.Map("gate", "silu", c.input("z", d)))
	default:
		x = norm(c.b.Mul("gated", x, c.b.Map("gate", "silu", c.input("z", d))))
	}
	c.b.Output("y", x)
	return ""
}

func (c *goldenOp) conv(seg *graph.Value) string {
	shape := c.tensor("weight").Shape
	ch, width := graph.Size(shape[0]), graph.Size(shape[1])
	y := c.b.Conv1D("conv", c.input("x", ch), c.param("weight", ch, width), c.state("s", ch, graph.Size(shape[1]-1)), seg)
	if c.has("bias") {
		y = c.b.Bias("biased", y, c.param("bias", ch))
	}
	if c.SiLU {
		y = c.b.Map("act", "silu", y)
	}
	c.b.Output("y", y)
	return "s"
}

func floats(t *testing.T, a graph.Array) []float64 {
	f := safetensors.Tensor{DType: map[graph.DType]string{graph.F32: "F32", graph.F64: "F64"}[a.DType], Shape: a.Shape, Data: a.Data}
	v, err := f.Float64s()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// near holds got within 1e-5 of the largest magnitude.
func near(t *testing.T, what string, got []float32, want []float64) {
	t.Helper()
	scale := 0.0
	for _, v := range want {
		scale = math.Max(scale, math.Abs(v))
	}
	for i := range want {
		if d := math.Abs(float64(got[i]) - want[i]); !(d <= 1e-5*scale) {
			t.Fatalf("%s: element %d is %g, want %g (off by %.2g of %g)", what, i, got[i], want[i], d, scale)
		}
	}
}

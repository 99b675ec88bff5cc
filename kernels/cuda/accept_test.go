package cuda

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/kernels/reference"
	"pgregory.net/rapid"
)

// accepting has the operations that take activations in bf16, and what draws their calls.
var accepting = map[string]func(d *draw) func() kernels.Call{
	"rmsnorm":              normCase,
	"unit_rmsnorm":         unitNormCase,
	"group_rmsnorm":        groupNormCase,
	"add_rmsnorm":          addNormCase,
	"rmsnorm_each":         normEachCase,
	"unit_rmsnorm_each":    unitNormEachCase,
	"silu_mul":             zipCase,
	"relu2":                elementCase(nil),
	"conv1d":               convCase,
	"conv1d_silu":          convSiluCase,
	"unbiased_conv1d_silu": convCase,
	"selective_scan":       selectiveCase,
	"selective_scan_gated": selectiveGatedCase,
	"ssd_scan":             eightsCase("ssd_scan"),
	"ssd_scan_gated":       eightsCase("ssd_scan_gated"),
	"experts":              mixtureCase("experts"),
	"ungated_experts":      mixtureCase("ungated_experts"),
	"add_experts":          mixtureCase("add_experts"),
	"add_ungated_experts":  mixtureCase("add_ungated_experts"),
}

// eightsCase is a scan on tensor cores, mostly of eights of channels and states, as bf16 wants.
func eightsCase(op string) func(d *draw) func() kernels.Call {
	return func(d *draw) func() kernels.Call {
		d.aligned = true
		d.decode, d.lens = false, []int{1, 5, 63, 64, 65, 130}
		next := ssdOf(d, d.pick("p", 4, 8, 16, 40, 64), d.pick("n", 8, 16, 20, 64, 136))
		if op == "ssd_scan_gated" {
			return gatedCase(d, next, graph.Attrs{"min": 0.0, "max": math.Inf(1)})
		}
		return next
	}
}

// TestAccepted: kernels that read and write activations in bf16 give what the reference gives of
// them, whatever is left over and however rows lie, and the rounded bits of f32.
func TestAccepted(t *testing.T) {
	goldens.CI(t)
	for name := range accepting {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, name, func(t *rapid.T) {
				if op := findOp(t, name); rapid.Bool().Draw(t, "steps") {
					checkAccepted(t, op)
				} else {
					checkAcceptedBits(t, op)
				}
			})
		})
	}
	for name, k := range Kernels {
		if accepting[name] == nil && k.accepts != nil && !strings.HasPrefix(name, "matmul") { // which a library does
			t.Errorf("no case for %s", name)
		}
	}
}

// TestAcceptedKernels runs the kernels that TestAccepted draws rarely.
func TestAcceptedKernels(t *testing.T) {
	for name, kernels := range bf16Kernels {
		until(t, func(t *rapid.T) { checkAccepted(t, findOp(t, name)) }, kernels...)
	}
}

// bf16Kernels must be run, by operation.
var bf16Kernels = map[string][]string{
	"rmsnorm":              {"norm.rmsnorm_f32_bf16", "norm.rmsnorm_bf16_f32", "norm.rmsnorm_bf16_bf16"},
	"conv1d_silu":          {"conv_f32.conv1d_pieces_4_bf16", "conv_f16.conv1d_pieces_4_bf16", "conv_bf16.conv1d_state_bf16"},
	"add_rmsnorm":          {"norm.add_rmsnorm_bf16"},
	"silu_mul":             {"elementwise.silu_mul_bf16"},
	"relu2":                {"elementwise.relu2_bf16"},
	"conv1d":               {"conv_f32.conv1d_state_bf16", "conv_f16.conv1d_state_bf16", "conv_bf16.conv1d_pieces_4_bf16", "conv_e4m3.conv1d_pieces_4_bf16", "conv_e4m3.conv1d_state_bf16"},
	"selective_scan_gated": {"scan_f32.selective_scan_16_bf16", "scan_bf16.selective_scan_16_bf16"},
	"ssd_scan_gated":       {"ssd_mma_f32.ssd_mma_128_bf16", "ssd_mma_f32.ssd_mma_256_bf16", "ssd_mma_bf16.ssd_mma_128_bf16", "ssd_mma_bf16.ssd_mma_256_bf16"},
}

func checkAccepted(t *rapid.T, op *graph.Op) {
	d, dev := newDraw(t), newDevice(t)
	next := accepting[op.Name](d)
	states := map[int]Tensor{}
	var held map[int]kernels.Tensor
	for range 2 {
		c := next()
		chosen := d.inBF16(op, &c)
		on := dev.deviceCall(op, &c, states, d.offset)
		on.Options.Math = BF16
		if accepted := Kernels[op.Name].Accepts(on); slices.ContainsFunc(chosen, func(v int) bool { return !accepted[v] }) {
			t.Fatalf("%v in bf16 were accepted, and of them on the device %v", chosen, accepted)
		}
		if held == nil {
			held = map[int]kernels.Tensor{}
			for _, p := range op.States {
				held[p.Operand] = clone(&c.Args[p.Operand])
			}
		}
		for _, p := range op.States {
			c.Args[p.Operand], c.Results[p.Result] = held[p.Operand], held[p.Operand]
		}
		share := roundedReference(op, &c, dev.compute(op, on, d.rng.Uint64()))
		for i := range c.Results {
			got := clone(&c.Results[i])
			dev.download(on.Results[i], &got)
			switch {
			case share > 0:
				same(t, "result", &got, &c.Results[i], share)
			default:
				sameKept(t, &got, &c.Results[i], 1e-5)
			}
		}
		for i, s := range states { // rounded apart, states would go on apart
			if share > 0 || s.DType != graph.F32 {
				state := held[i]
				dev.write(s, &state)
			}
		}
	}
}

// roundedReference computes a call in float64, and says how far from that what tensor cores give
// may be: of experts, whose operands and hidden units it rounds as they do, what TestExpertsBF16
// allows, and a place of bf16 where results are in it; of the scan likewise what TestScanBF16 does.
// 0: nothing is rounded on the way.
func roundedReference(op *graph.Op, c *kernels.Call, launches []Launch) float64 {
	if planOnly != nil {
		return 0
	}
	if onTensorCores(launches) {
		return scanOnCores(op, c)
	}
	if strings.HasSuffix(op.Name, "experts") {
		share := 1e-5 + 0x1p-6*roundedExperts(op.Name, c)
		if c.Results[0].DType == graph.BF16 {
			share += 0x1p-7
		}
		return share
	}
	k := reference.Kernels[op.Name]
	k.Run(c, 0, 1)
	return 0
}

// onTensorCores reports whether a scan is done there.
func onTensorCores(launches []Launch) bool {
	return slices.ContainsFunc(launches, func(l Launch) bool { return strings.HasPrefix(l.Module, "ssd_mma") })
}

// checkAcceptedBits: what kernels give of activations in bf16 are the bits, rounded, that they give
// of the same numbers in f32.
func checkAcceptedBits(t *rapid.T, op *graph.Op) {
	d, dev := newDraw(t), newDevice(t)
	c := accepting[op.Name](d)()
	chosen := d.inBF16(op, &c)
	wide := widened(c, chosen)
	states, wideStates, o := map[int]Tensor{}, map[int]Tensor{}, Options{Math: BF16}
	got, _ := once(t, op, &c, o, states, dev)
	want, _ := once(t, op, &wide, o, wideStates, dev)
	for i := range got {
		if got[i].DType == graph.BF16 {
			want[i] = round(want[i])
		}
		same(t, "result", &got[i], &want[i], 0)
	}
	for i := range states {
		a, b := clone(&c.Args[i]), clone(&c.Args[i])
		dev.download(states[i], &a)
		dev.download(wideStates[i], &b)
		same(t, "state", &a, &b, 0)
	}
}

// widened is a call with what inBF16 chose in f32 again.
func widened(c kernels.Call, chosen []int) kernels.Call {
	values := slices.Concat(c.Args, c.Results)
	for _, v := range chosen {
		t := &values[v]
		wide := make([]float32, len(t.U16))
		t.Read(wide, 0)
		t.DType, t.F32, t.U16 = graph.F32, wide, nil
	}
	c.Args, c.Results = values[:len(c.Args):len(c.Args)], values[len(c.Args):]
	return c
}

// inBF16 puts some of a call's activations into bf16, as far as the kernels accept that, and lists
// them.
func (d *draw) inBF16(op *graph.Op, c *kernels.Call) (chosen []int) {
	on := &Call{Attrs: c.Attrs, Options: Options{Math: BF16}}
	values := slices.Concat(c.Args, c.Results)
	most := rapid.IntRange(0, 3).Draw(d.T, "most") > 0 // of those that may
	for i := range values {
		v := Tensor{Tensor: values[i]}
		state := i < len(c.Args) && isState(op, i) || i >= len(c.Args)+rowResults(op)
		if v.DType == graph.F32 && !state && (most || rapid.Bool().Draw(d.T, "bf16")) {
			v.DType = graph.BF16
			chosen = append(chosen, i)
		}
		if i < len(c.Args) {
			on.Args = append(on.Args, v)
		} else {
			on.Results = append(on.Results, v)
		}
	}
	for n := -1; n != len(chosen); {
		n = len(chosen)
		accepted := Kernels[op.Name].Accepts(on)
		chosen = slices.DeleteFunc(chosen, func(v int) bool {
			if !accepted[v] {
				on.value(v).DType = graph.F32
			}
			return !accepted[v]
		})
	}
	for _, v := range chosen {
		to := &values[v]
		u := make([]uint16, len(to.F32))
		short := kernels.Tensor{DType: graph.BF16, U16: u}
		short.Write(0, to.F32)
		to.DType, to.U16, to.F32 = graph.BF16, u, nil
	}
	c.Args, c.Results = values[:len(c.Args):len(c.Args)], values[len(c.Args):]
	return chosen
}

// TestProductsAccept: a library's products have activations in bf16, by weights in it, of rows that
// are aligned; what is normed for them is in that format, too, and a sum never.
func TestProductsAccept(t *testing.T) {
	call := func(op string, rows, k int, w graph.DType, o Options) *Call {
		x, norm, weight, y := shaped(graph.BF16, rows, k), shaped(graph.F32, k), shaped(w, 8, k), shaped(graph.BF16, rows, 8)
		c := &Call{Options: o, Results: []Tensor{{Tensor: y}}, Attrs: graph.Attrs{"eps": 0.5}}
		c.Args = map[string][]Tensor{
			"matmul":          {{Tensor: x}, {Tensor: weight}},
			"matmul_add":      {{Tensor: x}, {Tensor: weight}, {Tensor: y}},
			"norm_matmul_add": {{Tensor: x}, {Tensor: norm}, {Tensor: weight}, {Tensor: y}},
		}[op]
		return c
	}
	library := Options{Math: BF16, Library: true}
	for _, c := range []struct {
		op   string
		call *Call
		want string
	}{
		{"matmul", call("matmul", 33, 8, graph.BF16, library), "[true false true]"},
		{"matmul", call("matmul", 32, 8, graph.BF16, library), "[false false false]"},
		{"matmul", call("matmul", 65, 8, graph.BF16, Options{Math: BF16}), "[false false false]"},
		{"matmul", call("matmul", 65, 8, graph.BF16, Options{Library: true}), "[false false false]"},
		{"matmul", call("matmul", 65, 8, graph.F16, library), "[false false false]"},
		{"matmul", call("matmul", 65, 12, graph.BF16, library), "[false false false]"},
		{"matmul_add", call("matmul_add", 65, 8, graph.BF16, library), "[true false false false]"},
		{"norm_matmul_add", call("norm_matmul_add", 65, 8, graph.BF16, library), "[true false false false false]"},
	} {
		if got := fmt.Sprint(Kernels[c.op].Accepts(c.call)); got != c.want {
			t.Errorf("%s of %d rows by %s: %s, want %s", c.op, c.call.Results[0].Rows(), c.call.Args[1].DType, got, c.want)
		}
	}
	normed := func(c *Call) graph.DType { return Kernels["norm_matmul_add"].Parts(c)[1].Args[0].DType }
	if got := normed(call("norm_matmul_add", 65, 8, graph.BF16, library)); got != graph.BF16 {
		t.Errorf("what is normed for a library is in %s", got)
	}
	if got := normed(call("norm_matmul_add", 65, 8, graph.F16, library)); got != graph.F32 {
		t.Errorf("what is normed for weights in f16 is in %s", got)
	}
}

package exec_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/cpu"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/lowering"
)

var rankCounts = []int{1, 2, 3, 4, 8}

func readGraph(t testing.TB, name string, ranks int) *graph.Graph {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name + ".ir")
	if err != nil {
		t.Fatal(err)
	}
	g, err := graph.Parse(strings.Replace(string(text), "ranks=RANKS", fmt.Sprint("ranks=", ranks), 1))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// randomParams gives every parameter of a graph values that depend on its name.
func randomParams(t testing.TB, g *graph.Graph) func(string) (graph.Array, error) {
	return func(name string) (graph.Array, error) {
		v, _ := g.Value(name)
		var shape []int
		for _, d := range v.Type.Dims {
			shape = append(shape, d.Len())
		}
		var seed uint64
		for _, c := range name {
			seed = 31*seed + uint64(c)
		}
		rng := rand.New(rand.NewPCG(seed, 3))
		values := make([]float32, graph.Array{Shape: shape}.Elems())
		for i := range values {
			values[i] = float32(rng.NormFloat64())
		}
		return graph.ArrayOf(values, shape...).Convert(v.Type.DType)
	}
}

func openGraph(t testing.TB, g *graph.Graph, o exec.Options) *stepper {
	t.Helper()
	s, err := lowering.Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	e := newStepper(t, s, randomParams(t, g), o)
	t.Cleanup(e.Close)
	for range 3 {
		if _, err := e.Alloc(); err != nil {
			t.Fatal(err)
		}
	}
	return e
}

// batches are prefill, a mix with decode, and decode.
func batches() []*exec.Batch {
	out := []*exec.Batch{
		{Sequences: []exec.Sequence{{Slot: 0, Tokens: []int{1, 10, 0, 4, 7}}, {Slot: 2, Tokens: []int{3, 3}, Rows: []int{0, 1}}}},
		{Sequences: []exec.Sequence{{Slot: 1, Tokens: []int{9, 8, 7}}, {Slot: 0, Tokens: []int{2}}}},
		{Sequences: []exec.Sequence{{Slot: 2, Tokens: []int{5}}, {Slot: 1, Tokens: []int{6}, Rows: []int{}}}},
	}
	for i, b := range out {
		n := 0
		for _, q := range b.Sequences {
			n += len(q.Tokens)
		}
		x := make([]float32, 10*n)
		for k := range x {
			x[k] = float32(math.Sin(float64(100*i + k)))
		}
		b.Inputs = map[string]graph.Array{"x": graph.ArrayOf(x, n, 10)}
	}
	return out
}

// rowsOf copies an output.
func rowsOf(t testing.TB, e *stepper, name string) []float32 {
	t.Helper()
	out, err := e.Output(name)
	if err != nil {
		t.Fatal(err)
	}
	var all []float32
	for i := range out.Rows() {
		all = append(all, out.Row(i)...)
	}
	return all
}

func closeTo(t *testing.T, what string, got, want []float32, share float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d elements, want %d", what, len(got), len(want))
	}
	for i := range want {
		if d := math.Abs(float64(got[i] - want[i])); !(d <= share*math.Max(1, math.Abs(float64(want[i])))) {
			t.Fatalf("%s: element %d is %g, want %g", what, i, got[i], want[i])
		}
	}
}

// TestBlocks: partitioned blocks give on any number of ranks what the graph as
// the model defines it gives, outputs and states, and the same bits every time.
func TestBlocks(t *testing.T) {
	for _, name := range []string{"block", "mlp"} {
		for _, ranks := range rankCounts {
			t.Run(fmt.Sprintf("%s/%d", name, ranks), func(t *testing.T) {
				whole := openGraph(t, readGraph(t, name+"_whole", 1), exec.Options{Device: &cpu.Device{}})
				g := readGraph(t, name, ranks)
				e, again := openGraph(t, g, exec.Options{Device: &cpu.Device{}}), openGraph(t, g, exec.Options{Device: &cpu.Device{Workers: 16}})
				for _, b := range batches() {
					for _, e := range []*stepper{whole, e, again} {
						if err := e.Step(context.Background(), b); err != nil {
							t.Fatal(err)
						}
					}
					for _, out := range []string{"logits", "h"} {
						closeTo(t, out, rowsOf(t, e, out), rowsOf(t, whole, out), 1e-5)
						closeTo(t, out+" again", rowsOf(t, again, out), rowsOf(t, e, out), 0)
					}
				}
				moveState(t, g, whole, e)
			})
		}
	}
}

// moveState compares the states, and moves them from one engine to the other.
func moveState(t *testing.T, g *graph.Graph, whole, e *stepper) {
	for slot := range 3 {
		for _, n := range g.Leaves("state") {
			want, err := whole.State(slot, n.Name())
			if err != nil {
				t.Fatal(err)
			}
			got, err := e.State(slot, n.Name())
			if err != nil {
				t.Fatal(err)
			}
			closeTo(t, n.Name(), got, want, 1e-5)
			if err := e.SetState(slot, n.Name(), want); err != nil {
				t.Fatal(err)
			}
			if got, err = e.State(slot, n.Name()); err != nil {
				t.Fatal(err)
			}
			closeTo(t, n.Name()+" set", got, want, 0)
		}
	}
}

// TestCollectives: what is counted at run time is what the plan says.
func TestCollectives(t *testing.T) {
	kinds := map[string]string{"block": "all_reduce all_reduce all_reduce all_gather", "mlp": "reduce_scatter all_gather all_reduce all_gather"}
	for name, want := range kinds {
		for _, ranks := range rankCounts {
			e := openGraph(t, readGraph(t, name, ranks), exec.Options{Device: &cpu.Device{}})
			plan, err := lowering.NewPlan(e.Schedules())
			if err != nil {
				t.Fatal(err)
			}
			if ranks == 1 {
				if n := len(e.Collectives()) + len(plan.Collectives); n != 0 {
					t.Errorf("%s: %d collectives on one rank", name, n)
				}
				continue
			}
			var elems, bytes [4]int64
			run := func(b *exec.Batch) {
				if err := e.Step(context.Background(), b); err != nil {
					t.Fatal(err)
				}
			}
			run(batches()[0])
			e.ResetCounts()
			for _, b := range batches() {
				z := graph.Sizes{}
				for _, q := range b.Sequences {
					z.Seqs++
					z.Tokens += int64(len(q.Tokens))
					z.Rows += int64(len(q.Rows))
					if q.Rows == nil {
						z.Rows++
					}
				}
				for i, c := range plan.Collectives {
					elems[i] += c.Elems.At(z)
					bytes[i] += c.Bytes.At(z)
				}
				run(b)
			}
			var got []string
			for i, c := range e.Collectives() {
				got = append(got, c.Kind)
				p := plan.Collectives[i]
				if c.Name != p.Name || c.Kind != p.Kind || c.Calls != 3 || c.Elems != elems[i] || c.Bytes != bytes[i] {
					t.Errorf("%s on %d ranks: counted %+v, planned %s %s with %d elements and %d bytes", name, ranks, c, p.Kind, p.Name, elems[i], bytes[i])
				}
			}
			if s := strings.Join(got, " "); s != want {
				t.Errorf("%s on %d ranks: %s, want %s", name, ranks, s, want)
			}
		}
	}
}

// TestStepAllocatesNothing: in a steady state, on one rank and on several.
func TestStepAllocatesNothing(t *testing.T) {
	for _, ranks := range rankCounts {
		for _, name := range []string{"block", "mlp"} {
			e := openGraph(t, readGraph(t, name, ranks), exec.Options{Device: &cpu.Device{}})
			b := batches()[1]
			step := func() {
				if err := e.Step(context.Background(), b); err != nil {
					t.Fatal(err)
				}
			}
			step()
			if n := testing.AllocsPerRun(50, step); n != 0 {
				t.Errorf("%s on %d ranks: %v allocations per step", name, ranks, n)
			}
		}
	}
}

// TestClose leaves no goroutine behind.
func TestClose(t *testing.T) {
	before := runtime.NumGoroutine()
	g := readGraph(t, "block", 4)
	s, err := lowering.Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		e := newStepper(t, s, randomParams(t, g), exec.Options{Device: &cpu.Device{Workers: 16}})
		e.Close()
	}
	_, err = exec.New(s, randomParams(t, g), exec.Options{Device: &cpu.Device{Kernels: kernels.Set{}}})
	wantError(t, err, "there is no kernel for neg_exp among those that were chosen")
	for end := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
	}
}

func TestNewRefusesSchedules(t *testing.T) {
	g := readGraph(t, "block", 2)
	s, err := lowering.Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	for want, bad := range map[string][]*lowering.Schedule{
		"there is no schedule":               nil,
		"schedule 0 of 1 is for rank 0 of 2": s[:1],
		"schedule 0 of 2 is for rank 1 of 2": {s[1], s[0]},
		"rank 1: region token has":           {s[0], withBytes(s[1], lowering.PerToken, 1)},
		"rank 0: buffer z: bytes":            {withBytes(s[0], lowering.PerToken, -64), s[1]},
	} {
		_, err := exec.New(bad, randomParams(t, g), exec.Options{Device: &cpu.Device{}})
		wantError(t, err, want)
	}
}

func withBytes(s *lowering.Schedule, space lowering.Space, more int64) *lowering.Schedule {
	out := *s
	out.Bytes[space] += more
	return &out
}

package cpu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/comm"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/passes"
)

// failing is a comm that does something before each collective.
type failing struct {
	comm.Comm
	before func(*comm.Collective)
}

func (f failing) Run(c *comm.Collective) error { f.before(c); return f.Comm.Run(c) }

// opened is the device, and remembers its machine and the work of the last step.
type opened struct {
	Device
	*machine
	work *exec.Work
}

func (o *opened) Open(local []*lowering.Schedule, world comm.World, s exec.Setup) (exec.Machine, error) {
	m, err := o.Device.Open(local, world, s)
	if err != nil {
		return nil, err
	}
	o.machine = m.(*machine)
	return o, nil
}

func (o *opened) Step(ctx context.Context, w *exec.Work) ([]kernels.Tensor, error) {
	o.work = w
	return o.machine.Step(ctx, w)
}

// failCase is an engine and what it runs on.
type failCase struct {
	*exec.Engine
	*opened
	graph *graph.Graph
}

// TestFailures lets each step fail on each rank, in each way: a panic and the end of the context at
// its beginning, and a panic in the middle, while others read its memory. All ranks stop, the error
// says where, nothing hangs, and after a reset the engine goes on as if nothing had been.
func TestFailures(t *testing.T) {
	for _, name := range []string{"block", "mlp", "block_whole", "mlp_whole", "block_chain"} { // whole ones in parts, and in a chain
		for _, ranks := range []int{1, 3} {
			if ranks == 1 && strings.Contains(name, "_") {
				continue
			}
			e, batch := failEngine(t, name, ranks)
			logits, err := failStep(t, e, context.Background(), batch)
			if err != nil {
				t.Fatal(err)
			}
			for r := range ranks {
				for i := range e.ranks[r].steps {
					for _, how := range []string{"panic", "cancel", "inside"} {
						if e.ranks[r].steps[i].Kind == lowering.Relayout && how != "inside" {
							continue // nothing happens before it
						}
						if e.ranks[r].steps[i].For != nil && r > 0 {
							continue // it serves an output, which rank 0 returns
						}
						t.Run(fmt.Sprintf("%s/rank %d of %d/%s/%s", name, r, ranks, e.ranks[r].steps[i].Name, how), func(t *testing.T) {
							e.check(t, r, i, how, batch, logits)
						})
					}
				}
			}
		}
	}
}

// check plants one failure.
func (e *failCase) check(t *testing.T, r, i int, how string, batch *exec.Batch, logits []float32) {
	if err := e.Reset(0); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	restore := e.plant(r, i, how, cancel)
	_, err := failStep(t, e, ctx, batch)
	restore()
	st := &e.ranks[r].steps[i]
	where := fmt.Sprintf("%s (%s): BUG: ", st.Name, st.Op.Name)
	switch {
	case how == "cancel" && err == nil && i == len(e.ranks[r].steps)-1: // nothing was left to stop
	case how == "cancel" && !errors.Is(err, context.Canceled):
		t.Errorf("cancelled: %v", err)
	case how == "panic" && (err == nil || !strings.Contains(err.Error(), where+"planted")):
		t.Errorf("got %v, want an error at %s", err, where)
	case how == "panic" && len(e.ranks) > 1 && !strings.HasPrefix(err.Error(), fmt.Sprintf("rank %d: ", r)):
		t.Errorf("got %v, want an error of rank %d", err, r)
	case how == "inside" && (err == nil || !strings.Contains(err.Error(), where)):
		t.Errorf("got %v, want an error at %s", err, where)
	}
	if err != nil {
		if _, err := e.Engine.Step(context.Background(), batch); err == nil || !strings.Contains(err.Error(), "left in the middle of a step") {
			t.Errorf("the sequence goes on: %v", err)
		}
	}
	if err := e.Reset(0); err != nil {
		t.Fatal(err)
	}
	again, err := failStep(t, e, context.Background(), batch)
	if err != nil {
		t.Fatalf("after a reset: %v", err)
	}
	for k, v := range again {
		if v != logits[k] {
			t.Fatalf("after a reset element %d is %g, was %g", k, v, logits[k])
		}
	}
}

// plant makes step i of rank r fail, and returns how to mend it.
func (e *failCase) plant(r, i int, how string, cancel func()) (restore func()) {
	rank := e.ranks[r]
	st := &rank.steps[i]
	old, joined := *st, rank.comm
	act := cancel
	if how == "panic" {
		act = func() { panic("planted") }
	}
	switch {
	case how == "inside" && st.Kind == lowering.Launch:
		st.kernel.Units = func(*kernels.Call) int { return 1 }
		st.kernel.Run = func(*kernels.Call, int, int) { panic("planted") }
	case how == "inside" && st.passed != nil: // the rows are gone, or there is no room for them
		st.passed = nil
		st.collective.Args, st.collective.Results = []kernels.Tensor{st.call.Args[0]}, nil
		st.collective.Args[0].F32 = nil
		if st.Op == lowering.ReceiveStates {
			st.collective.Args, st.collective.Results = nil, st.collective.Args
		}
	case how == "inside" && st.Kind == lowering.Collective && st.Op.Name != "all_gather": // what the others read is gone
		st.collective.Args = append([]kernels.Tensor(nil), st.call.Args...)
		for k := range st.collective.Args {
			st.collective.Args[k].F32 = nil
		}
	case how == "inside" && st.Kind == lowering.Collective: // there is no room for what comes
		st.collective.Results = append([]kernels.Tensor(nil), st.call.Results...)
		for k := range st.collective.Results {
			st.collective.Results[k].F32 = nil
		}
	case how == "inside":
		st.collective.Results = nil
	case st.Kind == lowering.Launch:
		st.kernel.Units = func(c *kernels.Call) int { act(); return old.kernel.Units(c) }
	case st.Kind == lowering.Collective:
		rank.comm = failing{joined, func(x *comm.Collective) {
			if x == &st.collective {
				act()
			}
		}}
	}
	return func() { *st, rank.comm = old, joined }
}

// failStep is Step with a time limit; it copies the logits.
func failStep(t *testing.T, e *failCase, ctx context.Context, b *exec.Batch) (logits []float32, err error) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		var out exec.Results
		if out, err = e.Engine.Step(ctx, b); err == nil {
			var y kernels.Tensor
			y, err = out.Output("logits")
			logits = append(logits, y.F32[:y.Rows()*y.Cols]...)
		}
	}()
	select {
	case <-done:
		return logits, err
	case <-time.After(20 * time.Second):
		t.Fatal("the step hangs")
		return nil, nil
	}
}

func failEngine(t *testing.T, name string, ranks int) (*failCase, *exec.Batch) {
	t.Helper()
	text, err := os.ReadFile("../testdata/" + strings.Replace(name, "_chain", "_whole", 1) + ".ir")
	if err != nil {
		t.Fatal(err)
	}
	g, err := graph.Parse(strings.Replace(string(text), "ranks=RANKS", fmt.Sprint("ranks=", ranks), 1))
	if err != nil {
		t.Fatal(err)
	}
	tokens := []int{1, 2, 3}
	if g.Stage < graph.PartitionedStage {
		parts, err := passes.FindStrategy("context")
		if err != nil {
			t.Fatal(err)
		}
		if g, err = passes.Compile(g, passes.Options{Ranks: ranks, Strategy: parts}); err != nil {
			t.Fatal(err)
		}
		tokens = slices.Repeat(tokens, 65) // some on each rank
	}
	s, err := lowering.LowerStages(g, lowering.PieceTokens, lowering.Stages{Chain: strings.HasSuffix(name, "_chain")})
	if err != nil {
		t.Fatal(err)
	}
	device := &opened{}
	e, err := exec.New(s, blockParams(g), exec.Options{Slots: 1, Device: device})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	if _, err := e.Alloc(); err != nil {
		t.Fatal(err)
	}
	x := make([]float32, 10*len(tokens))
	for i := range x {
		x[i] = float32(i % 30)
	}
	return &failCase{e, device, g}, &exec.Batch{
		Sequences: []exec.Sequence{{Tokens: tokens}},
		Inputs:    map[string]graph.Array{"x": graph.ArrayOf(x, len(tokens), 10)},
	}
}

// blockParams makes parameters of small numbers.
func blockParams(g *graph.Graph) func(name string) (graph.Array, error) {
	return func(name string) (graph.Array, error) {
		v, _ := g.Value(name)
		var shape []int
		for _, d := range v.Type.Dims {
			shape = append(shape, d.Len())
		}
		values := make([]float32, graph.Array{Shape: shape}.Elems())
		for i := range values {
			values[i] = float32(i%5) - 1.5
		}
		return graph.ArrayOf(values, shape...).Convert(v.Type.DType)
	}
}

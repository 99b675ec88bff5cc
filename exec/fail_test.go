package exec

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/lowering"
)

// failing is a comm that does something before each collective.
type failing struct {
	comm
	before func(*exchange)
}

func (f failing) allReduce(x *exchange) error     { f.before(x); return f.comm.allReduce(x) }
func (f failing) allGather(x *exchange) error     { f.before(x); return f.comm.allGather(x) }
func (f failing) reduceScatter(x *exchange) error { f.before(x); return f.comm.reduceScatter(x) }

// TestFailures lets each step fail on each rank, in each way: a panic and the
// end of the context at its beginning, and a panic in the middle, while others
// read its memory. All ranks stop, the error says where, nothing hangs, and after
// a reset the engine goes on as if nothing had been.
func TestFailures(t *testing.T) {
	for _, name := range []string{"block", "mlp"} {
		for _, ranks := range []int{1, 3} {
			e, batch := failEngine(t, name, ranks)
			want := failStep(t, e, context.Background(), batch)
			if want != nil {
				t.Fatal(want)
			}
			logits := failOutput(t, e)
			for r := range ranks {
				for i := range ranksOf(e)[r].steps {
					for _, how := range []string{"panic", "cancel", "inside"} {
						if ranksOf(e)[r].steps[i].Kind == lowering.Relayout && how != "inside" {
							continue // nothing happens before it
						}
						t.Run(fmt.Sprintf("%s/rank %d of %d/%s/%s", name, r, ranks, ranksOf(e)[r].steps[i].Name, how), func(t *testing.T) {
							e.check(t, r, i, how, batch, logits)
						})
					}
				}
			}
		}
	}
}

// check plants one failure.
func (e *Engine) check(t *testing.T, r, i int, how string, batch *Batch, logits []float32) {
	if err := e.Reset(0); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	restore := e.plant(r, i, how, cancel)
	err := failStep(t, e, ctx, batch)
	restore()
	st := &ranksOf(e)[r].steps[i]
	where := fmt.Sprintf("%s (%s): BUG: ", st.Name, st.Op.Name)
	switch {
	case how == "cancel" && err == nil && i == len(ranksOf(e)[r].steps)-1: // nothing was left to stop
	case how == "cancel" && !errors.Is(err, context.Canceled):
		t.Errorf("cancelled: %v", err)
	case how == "panic" && (err == nil || !strings.Contains(err.Error(), where+"planted")):
		t.Errorf("got %v, want an error at %s", err, where)
	case how == "panic" && len(ranksOf(e)) > 1 && !strings.HasPrefix(err.Error(), fmt.Sprintf("rank %d: ", r)):
		t.Errorf("got %v, want an error of rank %d", err, r)
	case how == "inside" && (err == nil || !strings.Contains(err.Error(), where)):
		t.Errorf("got %v, want an error at %s", err, where)
	}
	if err != nil {
		if err := e.Step(context.Background(), batch); err == nil || !strings.Contains(err.Error(), "left in the middle of a step") {
			t.Errorf("the sequence goes on: %v", err)
		}
	}
	if err := e.Reset(0); err != nil {
		t.Fatal(err)
	}
	if err := failStep(t, e, context.Background(), batch); err != nil {
		t.Fatalf("after a reset: %v", err)
	}
	for k, v := range failOutput(t, e) {
		if v != logits[k] {
			t.Fatalf("after a reset element %d is %g, was %g", k, v, logits[k])
		}
	}
}

// plant makes step i of rank r fail, and returns how to mend it.
func (e *Engine) plant(r, i int, how string, cancel func()) (restore func()) {
	rank := ranksOf(e)[r]
	st := &rank.steps[i]
	old, comm := *st, rank.comm
	act := cancel
	if how == "panic" {
		act = func() { panic("planted") }
	}
	switch {
	case how == "inside" && st.Kind == lowering.Launch:
		st.kernel.Units = func(*kernels.Call) int { return 1 }
		st.kernel.Run = func(*kernels.Call, int, int) { panic("planted") }
	case how == "inside" && st.Kind == lowering.Exchange && st.Op.Name != "all_gather": // what the others read is gone
		st.exchange.args = append([]kernels.Tensor(nil), st.call.Args...)
		for k := range st.exchange.args {
			st.exchange.args[k].F32 = nil
		}
	case how == "inside":
		st.exchange.results = nil
	case st.Kind == lowering.Launch:
		st.kernel.Units = func(c *kernels.Call) int { act(); return old.kernel.Units(c) }
	case st.Kind == lowering.Exchange:
		rank.comm = failing{comm, func(x *exchange) {
			if x == &st.exchange {
				act()
			}
		}}
	}
	return func() { *st, rank.comm = old, comm }
}

// failStep is Step with a time limit.
func failStep(t *testing.T, e *Engine, ctx context.Context, b *Batch) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- e.Step(ctx, b) }()
	select {
	case err := <-done:
		return err
	case <-time.After(20 * time.Second):
		t.Fatal("the step hangs")
		return nil
	}
}

func failOutput(t *testing.T, e *Engine) []float32 {
	t.Helper()
	out, err := e.Output("logits")
	if err != nil {
		t.Fatal(err)
	}
	return append([]float32(nil), out.F32[:out.Rows()*out.Cols]...)
}

func failEngine(t *testing.T, name string, ranks int) (*Engine, *Batch) {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name + ".ir")
	if err != nil {
		t.Fatal(err)
	}
	g, err := graph.Parse(strings.Replace(string(text), "ranks=RANKS", fmt.Sprint("ranks=", ranks), 1))
	if err != nil {
		t.Fatal(err)
	}
	s, err := lowering.Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(s, func(name string) (graph.Array, error) {
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
	}, Options{Slots: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	if _, err := e.Alloc(); err != nil {
		t.Fatal(err)
	}
	x := make([]float32, 30)
	for i := range x {
		x[i] = float32(i)
	}
	return e, &Batch{
		Sequences: []Sequence{{Tokens: []int{1, 2, 3}}},
		Inputs:    map[string]graph.Array{"x": graph.ArrayOf(x, 3, 10)},
	}
}

// ranksOf are the ranks of an engine on the CPU.
func ranksOf(e *Engine) []*rank { return e.machine.(*cpuMachine).ranks }

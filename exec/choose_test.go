package exec_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/cpu"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/lowering"
)

// chooser is an engine of a graph that puts out twice its input, and a token of it.
func chooser(t *testing.T, tokens bool) *exec.Engine {
	t.Helper()
	b := graph.New("g")
	x := b.Input("x", graph.TypeOf(graph.F32, graph.Symbol(graph.Rows), graph.Size(40)))
	logits := b.Add("logits", x, x)
	b.Output("logits", logits)
	if tokens {
		choice, seen := b.Input(graph.ChoiceInput, graph.ChoiceType()), b.Input(graph.SeenInput, graph.SeenType(40))
		b.Output(graph.ChosenOutput, b.Choose("tokens", logits, choice, seen))
	}
	g, err := b.Graph()
	if err != nil {
		t.Fatal(err)
	}
	s, err := lowering.Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	e, err := exec.New(s, nil, exec.Options{Device: &cpu.Device{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	alloc(t, &stepper{Engine: e})
	return e
}

// rowOf is a batch with one wanted row of logits, of which that of a token is 1, and
// that of another something else.
func rowOf(id int, other ...float32) *exec.Batch {
	x := make([]float32, 40)
	copy(x, other)
	x[id] = 1
	return &exec.Batch{Sequences: []exec.Sequence{{Len: 1}}, Inputs: map[string]graph.Array{"x": graph.ArrayOf(x, 1, 40)}}
}

// TestPick: the host chooses the rows that ask for it, from their logits, and the device
// the others; a row in which there is no token is not the host's.
func TestPick(t *testing.T) {
	e := chooser(t, true)
	last := func(logits []float32, chosen int32) int32 {
		if logits[chosen] != 2 || len(logits) != 40 {
			t.Errorf("token %d of the logits %v", chosen, logits)
		}
		return int32(len(logits)) - 1
	}
	none := func([]float32, int32) int32 { return graph.NoToken }
	nan := float32(math.NaN())
	for _, c := range []struct {
		batch *exec.Batch
		pick  func([]float32, int32) int32
		want  int32
	}{{rowOf(33), nil, 33}, {rowOf(33), last, 39}, {rowOf(33), none, graph.NoToken}, {rowOf(33, nan), last, graph.BrokenLogits}} {
		c.batch.Choices = []exec.Choice{{Pick: c.pick}}
		r, err := e.Step(context.Background(), c.batch)
		if u := exec.AsChoiceError(err); r.Tokens[0] != c.want || (u != nil) != (c.want < 0) {
			t.Errorf("token %d, %v; want %d", r.Tokens[0], err, c.want)
		}
		if c.want < 0 {
			if err := e.Reset(0); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestWant: results have what was wanted and nothing else; inputs that only serve what
// is not wanted are not asked for.
func TestWant(t *testing.T) {
	e := chooser(t, true)
	greedy := []exec.Choice{{}}
	for _, c := range []struct {
		choose         []exec.Choice
		want           []string
		logits, tokens bool
	}{
		{nil, nil, true, false}, {greedy, nil, false, true}, {greedy, []string{"logits"}, true, true}, {nil, []string{}, false, false},
		{greedy, []string{"tokens", "logits"}, true, true}, {nil, []string{"logits"}, true, false}, {nil, nil, true, false},
	} {
		b := rowOf(33)
		b.Choices, b.Outputs = c.choose, c.want
		r, err := e.Step(context.Background(), b)
		if err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		logits, err := r.Output("logits")
		if (err == nil) != c.logits || err == nil && logits.Row(0)[33] != 2 {
			t.Errorf("%+v: logits %v, %v", c, logits.F32, err)
		}
		tokens, err := r.Output("tokens")
		if (err == nil) != c.tokens || err == nil && (tokens.I32[0] != 33 || !slices.Equal(r.Tokens, []int32{33})) {
			t.Errorf("%+v: tokens %v, %v", c, tokens.I32, err)
		}
	}
}

// TestChoose: the penalty reads the bits that it is given, afresh in each batch.
func TestChoose(t *testing.T) {
	e := chooser(t, true)
	seen := make([]int32, 2)
	kernels.SetSeen(seen, 33)
	for _, c := range []struct {
		seen []int32
		want int32
	}{{nil, 33}, {seen, 0}, {nil, 33}} {
		b := rowOf(33, 0.9)
		b.Choices = []exec.Choice{{Choice: kernels.Choice{Penalty: 2}, Seen: c.seen}}
		r, err := e.Step(context.Background(), b)
		if err != nil || r.Tokens[0] != c.want {
			t.Errorf("seen %v: token %v, want %d (%v)", c.seen, r.Tokens, c.want, err)
		}
	}
}

// TestChooseRefuses: what cannot be chosen is refused before the step, and the sequence
// goes on; logits from which nothing can be chosen end it.
func TestChooseRefuses(t *testing.T) {
	e := chooser(t, true)
	for want, c := range map[string]func(b *exec.Batch){
		"2 choices for 1 rows":                 func(b *exec.Batch) { b.Choices = make([]exec.Choice, 2) },
		"0 choices for 1 rows":                 func(b *exec.Batch) { b.Choices = []exec.Choice{} },
		"choice 0: no token can be chosen so":  func(b *exec.Batch) { b.Choices = []exec.Choice{{Choice: kernels.Choice{TopP: 1.5}}} },
		"choice 0: no token can be":            func(b *exec.Batch) { b.Choices = []exec.Choice{{Choice: kernels.Choice{Temperature: math.NaN()}}} },
		"choice 0 has 3 words in Seen":         func(b *exec.Batch) { b.Choices = []exec.Choice{{Seen: make([]int32, 3)}} },
		"the graph has no output surprise":     func(b *exec.Batch) { b.Outputs = []string{"surprise"} },
		"input choice is missing in the batch": func(b *exec.Batch) { b.Outputs = []string{"tokens"} },
	} {
		b := rowOf(1)
		c(b)
		_, err := e.Step(context.Background(), b)
		wantError(t, err, want)
		if _, err := e.Step(context.Background(), rowOf(1)); err != nil {
			t.Fatalf("after %s: %v", want, err)
		}
	}
	b := rowOf(1, float32(math.NaN()))
	b.Choices = []exec.Choice{{}}
	_, err := e.Step(context.Background(), b)
	wantError(t, err, "row 0: a logit is NaN or +Inf")
	_, err = e.Step(context.Background(), rowOf(1))
	wantError(t, err, "left in the middle of a step")

	b = rowOf(1)
	b.Choices = []exec.Choice{{}}
	_, err = chooser(t, false).Step(context.Background(), b)
	wantError(t, err, "the graph has no output tokens; where it is built, b.Output(\"tokens\", b.Choose(…)) makes one of its logits")
}

// TestUnchosen: of two sequences the one whose logits are broken ends, and the other has
// its token and goes on.
func TestUnchosen(t *testing.T) {
	e := chooser(t, true)
	slots := []int{0, alloc(t, &stepper{Engine: e})}
	for bad := range 2 {
		x := make([]float32, 80)
		x[40*bad] = float32(math.Inf(1))
		x[40*(1-bad)+7] = 1
		b := &exec.Batch{Sequences: []exec.Sequence{{Slot: slots[0], Len: 1}, {Slot: slots[1], Len: 1}},
			Inputs: map[string]graph.Array{"x": graph.ArrayOf(x, 2, 40)}, Choices: make([]exec.Choice, 2)}
		r, err := e.Step(context.Background(), b)
		if u := exec.AsChoiceError(fmt.Errorf("with more to say: %w", err)); u == nil || !slices.Equal(u.Rows, []int{bad}) {
			t.Fatalf("row %d: %v", bad, err)
		}
		if r.Tokens[1-bad] != 7 || r.Tokens[bad] >= 0 {
			t.Errorf("row %d: tokens %v", bad, r.Tokens)
		}
		if n, err := e.Len(slots[1-bad]); n != 1 || err != nil {
			t.Errorf("row %d: the other sequence has %d tokens, %v", bad, n, err)
		}
		_, err = e.Len(slots[bad])
		wantError(t, err, "left in the middle of a step")
		if err := e.Reset(slots[bad]); err != nil {
			t.Fatal(err)
		}
	}
	if u := exec.AsChoiceError(context.Canceled); u != nil {
		t.Error(u)
	}
}

// TestChooseAllocatesNothing: in a steady state a step that chooses does not.
func TestChooseAllocatesNothing(t *testing.T) {
	e, b := chooser(t, true), rowOf(33)
	b.Choices = []exec.Choice{{Choice: kernels.Choice{Temperature: 0.7, TopP: 0.9, Uniform: 0.5}}}
	step := func() {
		if _, err := e.Step(context.Background(), b); err != nil {
			t.Fatal(err)
		}
	}
	step()
	if n := testing.AllocsPerRun(50, step); n != 0 {
		t.Errorf("%v allocations per step", n)
	}
}

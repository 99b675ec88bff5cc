package validate

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/cpu"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/passes"
	"github.com/krait-ml/krait/passes/prove"
)

// TestProvedMutants breaks partitions of all families, by all strategies and with all payloads, at
// random. A mutant is refused, or proved; and what is proved compiles, runs on the CPU, and
// computes the model. KRAIT_TEST_MUTANTS sets how many are tried and the seed, as in 100000/7.
func TestProvedMutants(t *testing.T) {
	count, seed, each := 120, uint64(1), 12
	if goldens.Few(t) {
		count = 48
	}
	if text := os.Getenv("KRAIT_TEST_MUTANTS"); text != "" {
		if _, err := fmt.Sscanf(text, "%d/%d", &count, &seed); err != nil {
			t.Fatalf("KRAIT_TEST_MUTANTS=%s: %v; give a number and a seed, such as 100000/7", text, err)
		}
		each = 30
	}
	h := &mutantRun{T: t, models: map[string]*mutantModel{}, outcomes: map[string]map[string]int{}, farthest: map[string]float64{}}
	rng := rand.New(rand.NewPCG(seed, 30))
	for tried := 0; tried < count; {
		p := h.draw(rng)
		if p == nil {
			continue
		}
		for range min(each, count-tried) {
			tried++
			h.try(p, newMutant(p.graph, rng))
		}
	}
	for _, of := range slices.Sorted(maps.Keys(h.outcomes)) {
		t.Logf("%-32s %v", of, h.outcomes[of])
	}
	t.Logf("farthest from the model, of its length: %v", h.farthest)
	if h.outcomes["all"]["proved"] == 0 || h.outcomes["all"]["refused"] == 0 {
		t.Error("nothing was proved, or nothing refused")
	}
}

// mutantRun is what a run of mutants has found.
type mutantRun struct {
	*testing.T
	models   map[string]*mutantModel
	outcomes map[string]map[string]int // by family, strategy and payload
	farthest map[string]float64        // by the coarsest format
}

// mutantModel is a family's model, and what it computes on one rank.
type mutantModel struct {
	*checkpoint.Checkpoint
	graph  *graph.Graph // without dead values
	logits []float32
}

// original is a partition that is to be broken.
type original struct {
	family, strategy, payload string
	model                     *mutantModel
	source, graph             *graph.Graph
}

// draw is a partition of a family; nil where the strategy or the payload does not apply.
func (h *mutantRun) draw(rng *rand.Rand) *original {
	folders := goldens.Folders(h, "../..")
	dir := folders[rng.IntN(len(folders))]
	o := passes.Options{Ranks: []int{2, 3, 4, 8}[rng.IntN(4)], Strategy: passes.Strategies[rng.IntN(len(passes.Strategies))]}
	payloads := []string{"", "fp16", "bf16:acc32", "int8", "e4m3/16", "e5m2", "int4", "scaled16", "int4:int8", "none:int8"}
	if o.Strategy.Name == "sequence" || o.Strategy.Name == "batch" {
		payloads = append(payloads, "int8,ag=int8", "rs=int4,ag=fp16", "ag=bf16", "scaled16,ag=e4m3", "ag=e5m2")
	}
	p := &original{family: filepath.Base(dir), strategy: o.Strategy.Name, payload: payloads[rng.IntN(len(payloads))], model: h.open(dir)}
	var err error
	if p.source, err = passes.Compile(p.model.graph, passes.Options{Stop: graph.UnpackedStage, Ranks: o.Ranks, Strategy: o.Strategy}); err != nil {
		return nil
	}
	if o.Quantize, err = passes.ParseQuantize(p.payload); err != nil {
		h.Fatal(err)
	}
	o.Stop = graph.PartitionedStage
	if p.graph, err = passes.Compile(p.source, o); err != nil {
		return nil
	}
	if back, err := graph.Parse(graph.Print(p.graph)); err != nil || !graph.Equal(p.graph, back) {
		h.Fatalf("not the same after print: %v\n%s", err, graph.Print(p.graph))
	}
	return p
}

// open opens a family's model once.
func (h *mutantRun) open(dir string) *mutantModel {
	if h.models[dir] != nil {
		return h.models[dir]
	}
	c, err := checkpoint.Open(dir)
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() { c.Close() })
	m := &mutantModel{Checkpoint: c}
	if m.graph, err = passes.Compile(c.Graph, passes.Options{Stop: graph.ModelStage}); err == nil {
		m.logits, err = m.run(h, m.graph)
	}
	if err != nil {
		h.Fatal(err)
	}
	h.models[dir] = m
	return m
}

// run compiles a graph, and gives the logits of three sequences in two steps.
func (m *mutantModel) run(t testing.TB, g *graph.Graph) (logits []float32, err error) {
	g, err = passes.Compile(g, passes.Options{})
	if err != nil {
		return nil, err
	}
	schedules, err := lowering.Lower(g)
	if err != nil {
		return nil, err
	}
	e, err := exec.New(schedules, m.Tensor, exec.Options{Device: &cpu.Device{Workers: 1}, Slots: 3, Context: 16})
	if err != nil {
		return nil, err
	}
	defer e.Close()
	b := &exec.Batch{}
	for _, ids := range [][]int{{3, 1, 4, 1, 5}, {9}, {2, 6}} {
		slot, err := e.Alloc()
		if err != nil {
			return nil, err
		}
		b.Sequences = append(b.Sequences, exec.Sequence{Slot: slot, Tokens: ids})
	}
	for range 2 { // the second with states
		r, err := e.Step(t.Context(), b)
		if err != nil {
			return nil, err
		}
		out, err := r.Output("logits")
		if err != nil {
			return nil, err
		}
		for i := range out.Rows() {
			logits = append(logits, out.Row(i)...)
		}
	}
	return logits, nil
}

// try breaks a partition in one to three ways, and counts what comes of it.
func (h *mutantRun) try(p *original, m *mutant) {
	var edits []string
	for range 1 + m.IntN(3) {
		edits = append(edits, m.edit())
	}
	text := m.text()
	outcome, err := h.outcome(p, text)
	for _, of := range []string{"family " + p.family, "strategy " + p.strategy, "payload " + cmp.Or(p.payload, "f32"), "all"} {
		if h.outcomes[of] == nil {
			h.outcomes[of] = map[string]int{}
		}
		h.outcomes[of][outcome]++
	}
	if err != nil {
		h.Errorf("%s, %s, %q on %d ranks, %s: %s: %v\n%s", p.family, p.strategy, p.payload, p.graph.Ranks, strings.Join(edits, ", "), outcome, err, text)
	}
}

// outcome says how far a mutant comes; an error is what should not come of any.
func (h *mutantRun) outcome(p *original, text string) (outcome string, err error) {
	defer func() {
		if r := recover(); r != nil {
			outcome, err = "PANIC", fmt.Errorf("%v", r)
		}
	}()
	g, err := graph.Parse(text)
	if err != nil {
		return "not read", nil
	}
	if back, err := graph.Parse(graph.Print(g)); err != nil || !graph.Equal(g, back) {
		return "PRINTED OTHERWISE", errors.Join(err, errors.New("not the same after print"))
	}
	if graph.Check(g) != nil {
		return "not checked", nil
	}
	c, err := prove.Prove(p.source, g, prove.Options{})
	switch {
	case err != nil && strings.Contains(err.Error(), "BUG"):
		return "BUG", err
	case err != nil && alike(err):
		return "REFUSED WITHOUT A DIFFERENCE", err
	case err != nil:
		return "refused", nil
	}
	if err := h.right(p, g, text); err != nil {
		return "WRONGLY PROVED", err
	}
	if len(c.Outside) > 0 {
		return "proved, outside of the class", nil
	}
	return "proved", nil
}

// alike reports whether an error calls what is there, and what the source has, by the same name.
func alike(err error) bool {
	for line := range strings.Lines(err.Error()) {
		got, want, ok := strings.Cut(strings.TrimSpace(line), "; in the source ")
		if ok && strings.HasSuffix(got, " "+strings.TrimPrefix(want, "it is ")) {
			return true
		}
	}
	return false
}

// right executes a graph in float64 by its types, and on the CPU as it is compiled.
func (h *mutantRun) right(p *original, g *graph.Graph, text string) error {
	report, err := Run(h.Context(), p.model.graph, g, Options{})
	if err != nil {
		return fmt.Errorf("validate: %w", err)
	}
	logits, err := p.model.run(h, g)
	if err != nil {
		return fmt.Errorf("it does not run: %w", err)
	}
	format, tolerance := coarsest(text)
	part := 0.0
	for _, one := range report.Parts {
		part = max(part, one.Rounded)
	}
	whole, allowed := distance(logits, p.model.logits), tolerance
	if format != "f32" && strings.Contains(text, "router ") {
		allowed = max(tolerance, 1) // a rounded payload may have a token sent to other experts
	}
	if h.farthest[format] = max(h.farthest[format], part, whole); !(part <= tolerance && whole <= allowed) {
		return fmt.Errorf("a block is off by %g and the logits by %g with payloads in %s; %g and %g are allowed\n%s", part, whole, format, tolerance, allowed, report)
	}
	return nil
}

// coarsest is the coarsest format that a text names, and how far off a model may be with it: about
// twice of what 60,000 mutants were, of which one in nine was proved.
func coarsest(text string) (format string, tolerance float64) {
	for _, f := range []struct {
		name string
		most float64
	}{{"int4", 2}, {"e5m2", 1}, {"e4m3", 1}, {"int8", 0.2}, {"bf16", 0.1}, {"f16", 0.02}, {"scaled16", 0.02}} {
		if strings.Contains(text, f.name) {
			return f.name, f.most
		}
	}
	return "f32", 1e-5
}

// distance is the length of the difference over that of b.
func distance(a, b []float32) float64 {
	d, n := 0.0, 0.0
	for i := range b {
		d += math.Pow(float64(a[i]-b[i]), 2)
		n += math.Pow(float64(b[i]), 2)
	}
	return math.Sqrt(d / n)
}

package simulate_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/krait-ml/krait/checkpoint/synth"
	"github.com/krait-ml/krait/cost"
	"github.com/krait-ml/krait/exec/virtual"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/internal/prop"
	"github.com/krait-ml/krait/lab/simulate"
	"github.com/krait-ml/krait/passes"
)

func profile(t testing.TB, name string) *cost.Profile {
	t.Helper()
	p, err := cost.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func sized(t testing.TB, o synth.Options) *graph.Graph {
	t.Helper()
	g, err := synth.Graph(o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func compiled(t testing.TB, g *graph.Graph, o passes.Options, d *virtual.Device) *simulate.Model {
	t.Helper()
	m, err := simulate.Compile(g, o, d)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestLong: a whole generation of 64 layers on 8 ranks. It says how long that took, which
// should be well below a second.
func TestLong(t *testing.T) {
	for _, like := range []string{"mamba-2.8b", "jamba-52b"} {
		g := sized(t, synth.Options{Like: like})
		d := &virtual.Device{Profile: profile(t, "h200-nvlink")}
		m := compiled(t, g, passes.Options{Ranks: 8}, d)
		start := time.Now()
		if _, err := m.Run(simulate.Workload{Batch: 8, Prompt: 2048, Output: 256, Chunk: 512}); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %s", like, time.Since(start))
	}
}

// configs draws models and workloads small enough to be counted through.
func configs(r *rand.Rand) (synth.Options, passes.Options, simulate.Workload) {
	o := synth.Options{
		Like:   []string{"mamba-130m", "mamba2-130m", "zamba2-1.2b", "jamba-52b", "falcon-h1-0.5b"}[r.IntN(5)],
		Layers: 1 + r.IntN(3),
		Vocab:  100 + r.IntN(2000),
		DType:  []string{"f32", "bf16"}[r.IntN(2)],
	}
	strategies := []string{"channel", "sequence", "batch"}
	s, err := passes.FindStrategy(strategies[r.IntN(len(strategies))])
	if err != nil {
		panic(err)
	}
	p := passes.Options{Ranks: 1 + r.IntN(4), Strategy: s}
	w := simulate.Workload{Batch: 1 + r.IntN(5), Prompt: 1 + r.IntN(300), Output: 1 + r.IntN(200), Chunk: []int{0, 1, 64, 100}[r.IntN(4)]}
	return o, p, w
}

// TestLargest: the largest batch and the longest prompt are those that counting up finds,
// and one more does not fit.
func TestLargest(t *testing.T) {
	seed := prop.Seed(t)
	r := rand.New(rand.NewPCG(seed, 0))
	p := *profile(t, "a6000-pcie")
	p.Memory.Reserve.Value = 0
	configurations := 50
	if goldens.Few(t) {
		configurations = 15
	}
	for range configurations {
		o, s, w := configs(r)
		d := &virtual.Device{Profile: &p}
		p.Memory.Capacity.Value = 1 << 50
		m := compiled(t, sized(t, o), s, d)
		one, err := m.Run(simulate.Workload{Batch: 1, Prompt: w.Prompt, Output: w.Output, Chunk: w.Chunk})
		if err != nil {
			t.Fatal(err)
		}
		need := slices.MaxFunc(one.Memory, func(a, b simulate.Need) int { return int(a.Sum - b.Sum) })
		room := need.Sum - need.Weights
		p.Memory.Capacity.Value = float64(need.Weights) + float64(room)*r.Float64()*40
		batch, err := m.MaxBatch(w)
		if err != nil {
			t.Fatal(err)
		}
		if got := counted(m, w, func(w *simulate.Workload, n int) { w.Batch = n }); got != batch {
			t.Fatalf("%+v %+v: a batch of %d fits, counting finds %d", o, w, batch, got)
		}
		prompt, err := m.MaxPrompt(w)
		if err != nil {
			t.Fatal(err)
		}
		if prompt != simulate.AnyNumber {
			if got := counted(m, w, func(w *simulate.Workload, n int) { w.Prompt = n }); got != prompt {
				t.Fatalf("%+v %+v: a prompt of %d fits, counting finds %d", o, w, prompt, got)
			}
		} else if w.Prompt = 1 << 20; m.Fits(w) != nil {
			t.Fatalf("%+v %+v: any prompt is said to fit", o, w)
		}
	}
}

// counted counts up while it fits.
func counted(m *simulate.Model, w simulate.Workload, set func(*simulate.Workload, int)) int {
	n := 0
	for {
		if set(&w, n+1); m.Fits(w) != nil {
			return n
		}
		n++
	}
}

// TestNoRoom: the error says who lacks how much of what, and that one fits who has exactly
// what it needs.
func TestNoRoom(t *testing.T) {
	p := *profile(t, "a6000-pcie")
	d := &virtual.Device{Profile: &p}
	m := compiled(t, sized(t, synth.Options{Like: "zamba2-1.2b", Layers: 7}), passes.Options{Ranks: 3}, d)
	w := simulate.Workload{Batch: 4, Prompt: 300, Output: 10, Chunk: 128}
	r, err := m.Run(w)
	if err != nil {
		t.Fatal(err)
	}
	most := slices.MaxFunc(r.Memory, func(a, b simulate.Need) int { return int(a.Sum - b.Sum) }).Sum
	p.Memory.Capacity.Value = float64(most) + p.Memory.Reserve.Value
	if err := m.Fits(w); err != nil {
		t.Error(err)
	}
	p.Memory.Capacity.Value--
	var no *simulate.NoRoom
	if _, err := m.Run(w); !errors.As(err, &no) || no.Has != most-1 || no.Needs != float64(most) || r.Memory[no.Rank].Sum != most {
		t.Errorf("%v of %d", err, most)
	}
	p.Memory.Capacity.Value = 1e6 + p.Memory.Reserve.Value
	if _, err := m.Run(w); err == nil || !strings.Contains(err.Error(), "weights alone") {
		t.Error(err)
	}
	if n, err := m.MaxBatch(w); n != 0 || err != nil {
		t.Error(n, err)
	}
}

// TestWorkloads: what cannot be asked for.
func TestWorkloads(t *testing.T) {
	d := &virtual.Device{Profile: profile(t, "a6000-pcie")}
	m := compiled(t, sized(t, synth.Options{Like: "mamba-130m", Layers: 1}), passes.Options{}, d)
	for want, w := range map[string]simulate.Workload{
		"batch is 0; it must be from 1 to":  {Prompt: 1, Output: 1},
		"prompt is 0; it must be from 1 to": {Batch: 1, Output: 1},
		"output is 0; it must be from 1 to": {Batch: 1, Prompt: 1},
		"chunk is -1; it must be from 0 to": {Batch: 1, Prompt: 1, Output: 1, Chunk: -1},
		"it does not fit":                   {Batch: 1 << 40, Prompt: 1 << 9, Output: 1},
		"too large to count":                {Batch: 1 << 40, Prompt: 1 << 40, Output: 1},
	} {
		if _, err := m.Run(w); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", w, err, want)
		}
	}
}

// TestChoice: the best of each phase is the least of all results, and the plan is the
// cheapest of what can be run together.
func TestChoice(t *testing.T) {
	cases := []struct {
		like   string
		layers int
		ranks  int
		w      simulate.Workload
	}{
		{"mamba-130m", 3, 4, simulate.Workload{Batch: 1, Prompt: 64, Output: 1000}},
		{"mamba-130m", 3, 2, simulate.Workload{Batch: 32, Prompt: 1024, Output: 2}},
		{"mamba2-130m", 2, 3, simulate.Workload{Batch: 4, Prompt: 512, Output: 64, Chunk: 100}},
		{"jamba-52b", 3, 8, simulate.Workload{Batch: 16, Prompt: 512, Output: 32}},
	}
	if goldens.Few(t) {
		cases = cases[:2]
	}
	for _, c := range cases {
		g := sized(t, synth.Options{Like: c.like, Layers: c.layers})
		d := &virtual.Device{Profile: profile(t, "a6000-pcie")}
		got, err := simulate.Choose(g, passes.Options{Ranks: c.ranks}, d, c.w, nil)
		if err != nil {
			t.Fatal(err)
		}
		tried := map[string]*simulate.Result{}
		for _, s := range passes.Strategies {
			m, err := simulate.Compile(g, passes.Options{Ranks: c.ranks, Strategy: s}, d)
			if err != nil {
				continue
			}
			if tried[s.Name], err = m.Run(c.w); err != nil {
				t.Fatal(err)
			}
		}
		for name, r := range tried {
			if r.TTFT < got.Prefill.Seconds || r.TPOT < got.Decode.Seconds || r.Seconds() < got.Plan.Seconds*(1-1e-12) {
				t.Errorf("%+v: %s takes %g and %g, %+v was chosen", c, name, r.TTFT, r.TPOT, got)
			}
			if name != got.Prefill.Strategy && r.TTFT < got.Prefill.Seconds*(1+got.Prefill.Margin)*(1-1e-12) {
				t.Errorf("%+v: %s comes after %s, not %s", c, name, got.Prefill.Strategy, got.Prefill.RunnerUp)
			}
		}
		if tried[got.Prefill.Strategy].TTFT != got.Prefill.Seconds || tried[got.Decode.Strategy].TPOT != got.Decode.Seconds {
			t.Errorf("%+v: %+v", c, got)
		}
		if r := got.Result(); fmt.Sprint(r.Seconds()) != fmt.Sprint(got.Plan.Seconds) {
			t.Errorf("%+v: the result takes %g, the plan %g", c, r.Seconds(), got.Plan.Seconds)
		}
		if together := got.Plan.Prefill == got.Prefill.Strategy && got.Plan.Decode == got.Decode.Strategy; together != (got.Refused == "") {
			t.Errorf("%+v: %+v", c, got)
		}
	}
}

// TestPair: two strategies are taken for the phases where memory is what they need together,
// and not where it is a byte less.
func TestPair(t *testing.T) {
	goldens.CI(t)
	seed := prop.Seed(t)
	r := rand.New(rand.NewPCG(seed, 0))
	want := 1
	if goldens.All() {
		want = 3
	}
	for pairs, tries := 0, 0; pairs < want; tries++ {
		if tries == 200 {
			t.Fatalf("%d pairs", pairs)
		}
		o, s, w := configs(r)
		w.Output = 2 + r.IntN(20)
		p := *profile(t, "a6000-pcie")
		p.Memory.Bandwidth.Value /= 1 + 50*r.Float64() // so that strategies differ
		g, d := sized(t, o), &virtual.Device{Profile: &p}
		ranks := passes.Options{Ranks: 1 + s.Ranks}
		free, err := simulate.Choose(g, ranks, d, w, nil)
		if err != nil {
			t.Fatalf("%+v %+v: %v", o, w, err)
		}
		memory := free.Result().Memory
		most := slices.MaxFunc(memory, func(a, b simulate.Need) int { return int(a.Sum - b.Sum) }).Sum
		if free.Plan.Prefill == free.Plan.Decode {
			continue
		}
		pairs++
		p.Memory.Capacity.Value = float64(most) + p.Memory.Reserve.Value
		if c, err := simulate.Choose(g, ranks, d, w, nil); err != nil || c.Plan != free.Plan || !slices.Equal(c.Result().Memory, memory) {
			t.Errorf("%+v %+v: %+v, and %+v in what it needs (%v)", o, w, free.Plan, c.Plan, err)
		}
		p.Memory.Capacity.Value--
		if c, err := simulate.Choose(g, ranks, d, w, nil); err == nil && c.Plan == free.Plan {
			t.Errorf("%+v %+v: %+v in less than it needs", o, w, free.Plan)
		}
		a, b := free.Candidate(free.Plan.Prefill).Model, free.Candidate(free.Plan.Decode).Model
		both := a.Beside(b)
		largest, err := both.MaxBatch(w)
		if err != nil || largest != counted(both, w, func(w *simulate.Workload, n int) { w.Batch = n }) || largest >= w.Batch {
			t.Errorf("%+v %+v: a batch of %d fits both (%v)", o, w, largest, err)
		}
		w.Batch = largest + 1
		if _, err := simulate.RunBoth(a, b, w); !errors.As(err, new(*simulate.NoRoom)) {
			t.Errorf("%+v %+v: a batch that does not fit both runs: %v", o, w, err)
		}
	}
}

// TestReplicas: the batch is divided, and the efficiency is what is left of throughput.
func TestReplicas(t *testing.T) {
	d := &virtual.Device{Profile: profile(t, "a6000-pcie")}
	m := compiled(t, sized(t, synth.Options{Like: "mamba-130m", Layers: 2}), passes.Options{}, d)
	w := simulate.Workload{Batch: 10, Prompt: 64, Output: 8}
	two := simulate.Replicas{Number: 4, Efficiency: 0.5}
	part := two.Each(w)
	if part.Batch != 3 {
		t.Errorf("a replica has %d of 10 sequences", part.Batch)
	}
	one, err := m.Run(part)
	if err != nil {
		t.Fatal(err)
	}
	all := two.All(w, one)
	if all.TTFT != 2*one.TTFT || all.TPOT != 2*one.TPOT || all.Throughput != 10*8/(2*one.Seconds()) {
		t.Errorf("%+v of %+v", all, one)
	}
	for want, p := range map[string]simulate.Replicas{"-1 replicas": {Number: -1}, "efficiency is 1.5": {Efficiency: 1.5}, "efficiency is -1": {Efficiency: -1}} {
		if err := p.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", p, err)
		}
	}
}

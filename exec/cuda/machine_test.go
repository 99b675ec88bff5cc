package cuda_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/cuda/sim"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/comm"
	"github.com/krait-ml/krait/exec/cpu"
	"github.com/krait-ml/krait/exec/cuda"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/goldens"
	host "github.com/krait-ml/krait/kernels"
	hostkernels "github.com/krait-ml/krait/kernels/cpu"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/passes"
	"github.com/krait-ml/krait/text/sampling"
)

// model is a golden checkpoint, split over ranks.
type model struct {
	*checkpoint.Checkpoint
	schedules []*lowering.Schedule
}

func open(t *testing.T, name string, ranks int, strategy string) *model {
	t.Helper()
	return openAt(t, golden(t, name), ranks, strategy)
}

// openShallow is open of some layers; with KRAIT_TEST_ALL of all.
func openShallow(t *testing.T, name string, layers, ranks int, strategy string) *model {
	t.Helper()
	return openAt(t, goldens.Shallow(t, "../..", name, layers), ranks, strategy)
}

// golden returns a checkpoint's folder, or that of two of its three layers.
func golden(t *testing.T, name string) string {
	t.Helper()
	if strings.HasPrefix(name, "mamba") {
		return goldens.Shallow(t, "../..", name, 2)
	}
	return "../../testdata/golden/" + name
}

// openAt compiles a model for the devices of these tests: formats are chosen where the device has
// math of bf16.
func openAt(t *testing.T, dir string, ranks int, strategy string, on ...*cuda.Device) *model {
	t.Helper()
	c, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	o := passes.Options{Ranks: ranks, Fuse: passes.ForLaunches}
	for _, d := range on {
		o.Target = d.Target()
	}
	if ranks > 1 {
		if o.Strategy, err = passes.FindStrategy(strategy); err != nil {
			t.Fatal(err)
		}
	}
	g, err := passes.Compile(c.Graph, o)
	if err != nil {
		t.Fatal(err)
	}
	s, err := lowering.Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	return &model{c, s}
}

func (m *model) engine(t *testing.T, d exec.Device) *exec.Engine {
	t.Helper()
	e, err := exec.New(m.schedules, m.Tensor, exec.Options{Device: d, Slots: 3})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// batches are prompts, single tokens often enough that graphs are captured and
// replayed, a mix of both, and a sequence that begins late.
var batches = [][]exec.Sequence{
	{{Slot: 0, Tokens: []int{1, 2, 3, 4, 5}}, {Slot: 1, Tokens: []int{9}}},
	{{Slot: 0, Tokens: []int{6}}, {Slot: 1, Tokens: []int{7}}},
	{{Slot: 1, Tokens: []int{8}}, {Slot: 0, Tokens: []int{9}}},
	{{Slot: 0, Tokens: []int{10}}, {Slot: 1, Tokens: []int{11}}},
	{{Slot: 1, Tokens: []int{12, 13, 14}}, {Slot: 0, Tokens: []int{15}}},
	{{Slot: 2, Tokens: []int{16}}},
	{{Slot: 0, Tokens: []int{17}}, {Slot: 2, Tokens: []int{18}}},
}

// run feeds the batches and returns all logits.
func run(t *testing.T, e *exec.Engine) []float32 {
	t.Helper()
	return feed(t, e, len(batches))
}

// few batches are a prompt, and single tokens until a graph was captured and replayed.
const few = 4

// feed is run of the first batches.
func feed(t *testing.T, e *exec.Engine, n int) []float32 {
	t.Helper()
	for range 3 {
		if _, err := e.Alloc(); err != nil {
			t.Fatal(err)
		}
	}
	var out []float32
	for _, b := range batches[:n] {
		out = append(out, step(t, e, b)...)
	}
	return out
}

func step(t *testing.T, e *exec.Engine, b []exec.Sequence) []float32 {
	t.Helper()
	results, err := e.Step(context.Background(), &exec.Batch{Sequences: append([]exec.Sequence(nil), b...)})
	if err != nil {
		t.Fatal(err)
	}
	l, err := results.Output("logits")
	if err != nil {
		t.Fatal(err)
	}
	var out []float32
	for i := range l.Rows() {
		out = append(out, l.Row(i)...)
	}
	return out
}

func compare(t *testing.T, what string, got, want []float32, tolerance float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d logits, want %d", what, len(got), len(want))
	}
	for i := range want {
		if d := math.Abs(float64(got[i] - want[i])); !(d <= tolerance) {
			t.Fatalf("%s: logit %d is %g, want %g", what, i, got[i], want[i])
		}
	}
}

// TestMachine: simulated GPUs give the logits of the CPU, whether ranks share one
// or have one each, with graphs and without, with cuBLAS and without, under
// several seeds of the scheduler; and nothing is left behind.
func TestMachine(t *testing.T) {
	for i, c := range []struct {
		model    string
		ranks    int
		strategy string
		options  sim.Options
		device   cuda.Device
		all      bool // with KRAIT_TEST_ALL: TestPeers or lab/check have alike
		ci       bool // in CI: another case has each of its features
	}{
		{model: "mamba-b", ranks: 1},
		{model: "mamba-b", ranks: 3, strategy: "channel", all: true},
		{model: "mamba-b", ranks: 3, strategy: "naive", ci: true},
		{model: "mamba-b", ranks: 3, strategy: "naive", options: sim.Options{Devices: 3}, ci: true},
		{model: "mamba-a-bf16", ranks: 2, strategy: "replicated-x", device: cuda.Device{NoGraphs: true}},
		{model: "mamba2-g4", ranks: 3, strategy: "hoisted", options: sim.Options{NoBLAS: true}, ci: true},
		{model: "mamba2-g4", ranks: 8, strategy: "channel", options: sim.Options{Devices: 8}, all: true},
		{model: "zamba", ranks: 4, strategy: "channel", options: sim.Options{Devices: 4, Capability: [2]int{9, 0}}, all: true},
		{model: "jamba", ranks: 3, strategy: "channel", device: cuda.Device{NoGEMM: true}, ci: true},
		{model: "falcon-h1", ranks: 2, strategy: "hoisted", options: sim.Options{Devices: 2}, all: true},
		{model: "granite-hybrid", ranks: 2, strategy: "sequence", ci: true},
		{model: "mamba-b", ranks: 2, strategy: "context", options: sim.Options{Devices: 2}},
		{model: "nemotron-h-moe", ranks: 3, strategy: "channel", options: sim.Options{Devices: 3}},
	} {
		if c.all && !goldens.All() || c.ci && goldens.Few(t) {
			continue
		}
		t.Run(c.model+"/"+c.strategy, func(t *testing.T) {
			t.Parallel()
			m := open(t, c.model, c.ranks, c.strategy)
			cpu := m.engine(t, &cpu.Device{})
			defer cpu.Close()
			n := len(batches)
			if i > 0 && !goldens.All() {
				n = few
			}
			want := feed(t, cpu, n)
			seeds := []uint64{uint64(i)}
			if goldens.All() {
				seeds = []uint64{0, 1}
			}
			for _, seed := range seeds {
				o := c.options
				o.Seed, o.Ordered = seed, true
				if i%2 == 1 {
					o.Capability = [2]int{9, 0}
				}
				d := sim.New(o)
				device := c.device
				device.Driver = d
				e := m.engine(t, &device)
				compare(t, c.model, feed(t, e, n), want, 1e-4)
				if got, want := e.Collectives(), cpu.Collectives(); len(got) != len(want) || len(got) > 0 && got[0] != want[0] {
					t.Errorf("collectives %v, want %v", got, want)
				}
				e.Close()
				if leaks := d.Leaks(); len(leaks) > 0 {
					t.Errorf("left behind: %v", leaks)
				}
			}
		})
	}
}

// TestRepeats: two runs give the same bits, and so do graphs and single launches.
func TestRepeats(t *testing.T) {
	goldens.CI(t)
	m := openShallow(t, "mamba2-g4", 1, 3, "channel")
	var want []float32
	for i := range uint64(3) {
		e := m.engine(t, &cuda.Device{Driver: sim.New(sim.Options{Seed: i}), NoGraphs: i == 1})
		got := feed(t, e, few)
		if want == nil {
			want = got
		}
		compare(t, "again", got, want, 0)
		e.Close()
	}
}

func first(t *testing.T, e *exec.Engine, prompt []int) []float32 {
	t.Helper()
	if _, err := e.Alloc(); err != nil {
		t.Fatal(err)
	}
	return step(t, e, []exec.Sequence{{Slot: 0, Tokens: prompt}})
}

// TestStatesMove: a sequence goes on on another device, with other ranks, where it
// was on the first; caches have grown there.
func TestStatesMove(t *testing.T) {
	for _, name := range []string{"mamba-a", "zamba2"} {
		if name == "mamba-a" && goldens.Few(t) {
			continue // zamba2 has scans, too
		}
		one, many := open(t, name, 1, ""), open(t, name, 3, "naive") // which take nothing apart
		from := one.engine(t, &cpu.Device{})
		defer from.Close()
		to := many.engine(t, &cuda.Device{Driver: sim.New(sim.Options{})})
		defer to.Close()
		prompt := make([]int, 70)
		for i := range prompt {
			prompt[i] = i % 50
		}
		first(t, from, prompt)
		slot, err := to.Alloc()
		if err != nil {
			t.Fatal(err)
		}
		n, err := from.Len(0)
		if err == nil {
			err = to.SetLen(slot, n)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, leaf := range one.Graph.Leaves("state") {
			v, err := from.State(0, leaf.Name())
			if err == nil {
				err = to.SetState(slot, leaf.Name(), v)
			}
			if err != nil {
				t.Fatal(err)
			}
			back, err := to.State(slot, leaf.Name())
			if err != nil {
				t.Fatal(err)
			}
			compare(t, leaf.Name(), back, v, 0)
		}
		next := []exec.Sequence{{Slot: 0, Tokens: []int{3}}}
		compare(t, name, step(t, to, next), step(t, from, next), 3e-4)
	}
}

// TestFailures: what can go wrong with a GPU is one clear error, and a new engine
// works afterwards.
func TestFailures(t *testing.T) {
	m := open(t, "mamba-a", 2, "channel")
	tryOpen := func(o sim.Options) error {
		e, err := exec.New(m.schedules, m.Tensor, exec.Options{Device: &cuda.Device{Driver: sim.New(o)}})
		if err == nil {
			e.Close()
		}
		return err
	}
	for _, c := range []struct {
		name string
		err  error
		kind error
		text string
	}{
		{"no memory", tryOpen(sim.Options{FailAlloc: 9}), driver.ErrOutOfMemory, "rank 0: param "},
		{"little memory", tryOpen(sim.Options{Memory: 100e3}), driver.ErrOutOfMemory, "asked"},
		{"no NCCL", tryOpen(sim.Options{Devices: 2, NoNCCL: true}), driver.ErrMissingLibrary, "NCCL"},
		{"an old GPU", tryOpen(sim.Options{Capability: [2]int{7, 5}}), driver.ErrNoDriver, "compute capability 7.5 is too low; Krait's kernels need 8.0"},
		{"lost at the start", tryOpen(sim.Options{LoseDevice: 1}), driver.ErrDeviceLost, "rank 0: "},
	} {
		if c.err == nil || !errors.Is(c.err, c.kind) || !strings.Contains(c.err.Error(), c.text) {
			t.Errorf("%s: %v, want %v with %q", c.name, c.err, c.kind, c.text)
		}
	}
	if err := tryOpen(sim.Options{}); err != nil {
		t.Error(err)
	}
}

// TestAnyAllocationFails: whichever of some allocations finds no memory, while loading or in
// a step, the error says so, nothing hangs, and nothing is left behind.
func TestAnyAllocationFails(t *testing.T) {
	m := open(t, "zamba", 2, "channel")
	every := 7
	if goldens.Few(t) {
		every = 29
	}
	for fail, done := 1, false; !done; fail += every {
		d := sim.New(sim.Options{FailAlloc: fail})
		e, err := exec.New(m.schedules, m.Tensor, exec.Options{Device: &cuda.Device{Driver: d}})
		if err == nil {
			if _, err = e.Alloc(); err == nil {
				_, err = e.Step(context.Background(), &exec.Batch{Sequences: []exec.Sequence{{Slot: 0, Tokens: []int{1, 2}}}})
			}
			e.Close()
		}
		done = err == nil
		if !done && !errors.Is(err, driver.ErrOutOfMemory) {
			t.Fatalf("allocation %d: %v", fail, err)
		}
		if leaks := d.Leaks(); len(leaks) > 0 {
			t.Errorf("allocation %d: left behind: %v", fail, leaks)
		}
	}
}

// TestLostDevice: a GPU that is lost in a step ends the step on all ranks, also
// where they wait for it in a collective; the error stays, and Close returns.
func TestLostDevice(t *testing.T) {
	m := open(t, "mamba-a", 2, "channel")
	for _, gpus := range []int{1, 2} {
		e := m.engine(t, &cuda.Device{Driver: sim.New(sim.Options{Devices: gpus, LoseDevice: 40})})
		if _, err := e.Alloc(); err != nil {
			t.Fatal(err)
		}
		b := &exec.Batch{Sequences: []exec.Sequence{{Slot: 0, Tokens: []int{1, 2, 3}}}}
		if _, err := e.Step(context.Background(), b); !errors.Is(err, driver.ErrDeviceLost) || !strings.Contains(err.Error(), "rank ") {
			t.Errorf("%d GPUs: %v", gpus, err)
		}
		if err := e.Reset(0); !errors.Is(err, driver.ErrDeviceLost) {
			t.Errorf("%d GPUs, afterwards: %v", gpus, err)
		}
		e.Close()
	}
}

// TestKernelFault: a kernel that reads where nothing is says which, and where.
func TestKernelFault(t *testing.T) {
	m := open(t, "mamba-a", 1, "")
	work, machine := bare(t, m.schedules, m, &cuda.Device{Driver: sim.New(sim.Options{})}, 1)
	defer machine.Close()
	copy(work.Inputs[2].Data, []byte{0, 0, 0, 0x10}) // a row far beyond the batch, which the engine would refuse
	_, err := machine.Step(context.Background(), work)
	if !errors.Is(err, driver.ErrKernelFault) || !strings.Contains(err.Error(), "kernel copy_4") || !strings.Contains(err.Error(), "PTX line") {
		t.Errorf("%v", err)
	}
	t.Log(err)
}

// bare is a machine without an engine, and work for one token.
func bare(t *testing.T, schedules []*lowering.Schedule, m *model, d exec.Device, id byte) (*exec.Work, exec.Machine) {
	t.Helper()
	wanted, err := schedules[0].Want("logits")
	if err != nil {
		t.Fatal(err)
	}
	w := &exec.Work{Batch: graph.Batch{Sizes: graph.Sizes{Tokens: 1, Seqs: 1, Rows: 1}}, Outputs: wanted}
	for _, b := range schedules[0].Buffers {
		if b.Space == lowering.Input {
			w.Inputs = append(w.Inputs, exec.Input{Name: b.Name, Type: b.Type, Data: make([]byte, b.Type.Bytes().At(w.Sizes))})
		}
	}
	w.Inputs[0].Data[0] = id
	w.Inputs[1].Data[4] = 1 // one token
	machine, err := d.Open(schedules, comm.Local(len(schedules)), exec.Setup{Tensor: m.Tensor, Slots: 1})
	if err != nil {
		t.Fatal(err)
	}
	return w, machine
}

// TestMissingWaits: without any one of the waits that a schedule has, every seed gives
// an error where what runs must be ordered; where it need not be, some of 20 seeds give
// an error or another result: the simulated device hides no race.
func TestMissingWaits(t *testing.T) {
	m := open(t, "mamba-a", 2, "channel")
	want := oneToken(t, m, m.schedules, sim.Options{Ordered: true})
	if want == nil {
		t.Fatal("the whole schedule fails")
	}
	tried := 0
	for i, st := range m.schedules[0].Steps {
		if st.Kind != lowering.Wait {
			continue
		}
		if tried++; tried > 8 || tried > 4 && goldens.Few(t) {
			break // the blocks are the same
		}
		broken := []*lowering.Schedule{without(m.schedules[0], i), without(m.schedules[1], i)}
		for seed := range uint64(3) {
			if oneToken(t, m, broken, sim.Options{Seed: seed, Ordered: true}) != nil {
				t.Errorf("seed %d: without %s all seems to be ordered", seed, st)
			}
		}
		found := false
		for seed := uint64(0); seed < 20 && !found; seed++ {
			got := oneToken(t, m, broken, sim.Options{Seed: seed})
			found = got == nil
			for k := range got {
				found = found || got[k] != want[k]
			}
		}
		if !found {
			t.Errorf("no error without %s", st)
		}
	}
	if tried < 4 {
		t.Errorf("%d waits tried", tried)
	}
}

func without(s *lowering.Schedule, i int) *lowering.Schedule {
	c := *s
	c.Steps = append(append([]lowering.Step(nil), s.Steps[:i]...), s.Steps[i+1:]...)
	return &c
}

// oneToken is the logits of a token, or nil after an error.
func oneToken(t *testing.T, m *model, schedules []*lowering.Schedule, o sim.Options) []float32 {
	t.Helper()
	work, machine := bare(t, schedules, m, &cuda.Device{Driver: sim.New(o)}, 3)
	defer machine.Close()
	out, err := machine.Step(context.Background(), work)
	if err != nil {
		return nil
	}
	return append([]float32(nil), out[0].F32...)
}

// TestCancel: a context that ends stops the step at the next check:
// before anything, before each launch of each rank, also of those that are captured,
// and before a graph. GPUs that meet in collectives all run the step or none. The
// engine goes on.
func TestCancel(t *testing.T) {
	m := openShallow(t, "mamba-a", 1, 2, "channel")
	var launches []string
	for _, st := range m.schedules[0].Steps {
		if st.Kind == lowering.Launch && st.Name != graph.ChosenOutput { // which no batch wants
			launches = append(launches, "stopped before "+st.Name+":")
		}
	}
	start := []string{"context canceled", "stopped before the step: "}
	prompt, token := []int{1, 2}, []int{3}
	engine := func(gpus int, plain bool) *exec.Engine {
		e := m.engine(t, &cuda.Device{Driver: sim.New(sim.Options{Devices: gpus}), NoGraphs: plain})
		t.Cleanup(e.Close)
		if _, err := e.Alloc(); err != nil {
			t.Fatal(err)
		}
		return e
	}

	t.Run("launches", func(t *testing.T) {
		looks := cancelled(t, engine(1, true), prompt)
		wantLooks(t, looks, start, launches, nil)
	})
	t.Run("graph", func(t *testing.T) {
		e := engine(1, false)
		step(t, e, []exec.Sequence{{Tokens: token}}) // launch by launch; the next is captured
		wantLooks(t, cancelled(t, e, token), start, launches, start[1:])
		wantLooks(t, cancelled(t, e, token), start, nil, start[1:])
	})
	t.Run("GPUs", func(t *testing.T) {
		goldens.CI(t)
		wantLooks(t, cancelled(t, engine(2, true), prompt), start, nil, nil)
	})
}

// cancelled steps with a context that ends at the first look at it, at the second,
// and so on until a step ends well, and returns the errors of the others. After
// each, another step gives what it gives always.
func cancelled(t *testing.T, e *exec.Engine, tokens []int) (looks []string) {
	t.Helper()
	again := func() []float32 {
		if err := e.Reset(0); err != nil {
			t.Fatal(err)
		}
		return step(t, e, []exec.Sequence{{Tokens: []int{4, 5, 6}}})
	}
	want := again()
	for {
		ctx := &ending{Context: context.Background()}
		ctx.left.Store(int64(len(looks)))
		if err := e.Reset(0); err != nil {
			t.Fatal(err)
		}
		_, err := e.Step(ctx, &exec.Batch{Sequences: []exec.Sequence{{Tokens: tokens}}})
		if err == nil {
			return looks
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if looks = append(looks, err.Error()); len(looks) < 4 || len(looks)%16 == 0 {
			compare(t, "after a cancelled step", again(), want, 0)
		}
	}
}

// wantLooks: the first looks are these, the last are those, and between them there is
// one at least for each launch of both ranks.
func wantLooks(t *testing.T, looks, first, launches, last []string) {
	t.Helper()
	if least := len(first) + 2*len(launches) + len(last); len(looks) < least || len(launches) == 0 && len(looks) != least {
		t.Fatalf("%d looks at the context, want %d: %q", len(looks), least, looks)
	}
	for i, text := range first {
		if !strings.HasPrefix(looks[i], text) {
			t.Errorf("look %d: %s, want %s", i, looks[i], text)
		}
	}
	end := len(looks) - len(last)
	for i, text := range last {
		if !strings.HasPrefix(looks[end+i], text) {
			t.Errorf("look %d: %s, want %s", end+i, looks[end+i], text)
		}
	}
	for rank := range 2 {
		for _, text := range launches {
			if !slices.ContainsFunc(looks[len(first):end], func(s string) bool { return strings.HasPrefix(s, fmt.Sprintf("rank %d: %s", rank, text)) }) {
				t.Errorf("rank %d never %s", rank, text)
			}
		}
	}
}

// TestChoose: both devices choose what the kernel on the host chooses from the logits,
// greedy and drawn, with a penalty, launch by launch and replayed; where only tokens are
// wanted, logits do not travel.
func TestChoose(t *testing.T) {
	m := open(t, "mamba-a", 2, "channel")
	e := m.engine(t, &cuda.Device{Driver: sim.New(sim.Options{})})
	defer e.Close()
	cpu := m.engine(t, &cpu.Device{})
	defer cpu.Close()
	for _, x := range []*exec.Engine{e, cpu} {
		for range 2 {
			if _, err := x.Alloc(); err != nil {
				t.Fatal(err)
			}
		}
	}
	logits, err := m.schedules[0].Want("logits")
	if err != nil {
		t.Fatal(err)
	}
	vocab := m.schedules[0].Outputs[slices.Index(logits, true)].Ref.Type.Dims[1].Len()
	sampler, err := sampling.New(sampling.Config{Temperature: 0.9, TopK: 12, TopP: 0.95, RepetitionPenalty: 1.3, Seed: 4}, vocab)
	if err != nil {
		t.Fatal(err)
	}
	next := [2]int{5, 6}
	for i := range 6 {
		sampler.Accept(next[1])
		b := exec.Batch{
			Sequences: []exec.Sequence{{Slot: 0, Tokens: []int{next[0]}}, {Slot: 1, Tokens: []int{next[1]}}},
			Choices:   []exec.Choice{{}, {Choice: sampler.Choice(), Seen: sampler.Seen()}},
			Outputs:   []string{"tokens", "logits"},
		}
		whole, err := cpu.Step(context.Background(), &b)
		if err != nil {
			t.Fatal(err)
		}
		rows, err := whole.Output("logits")
		if err != nil {
			t.Fatal(err)
		}
		b.Outputs = nil
		results, err := e.Step(context.Background(), &b)
		if err != nil {
			t.Fatal(err)
		}
		for k := range next {
			want, err := host.Token(hostkernels.Choose(rows.Row(k), b.Choices[k].Choice, b.Choices[k].Seen))
			if err != nil || int(whole.Tokens[k]) != want || int(results.Tokens[k]) != want {
				t.Errorf("step %d: row %d is %d on the CPU and %d on CUDA, want %d (%v)", i, k, whole.Tokens[k], results.Tokens[k], want, err)
			}
			next[k] = want
		}
		if _, err := results.Output("logits"); err == nil || !strings.Contains(err.Error(), "left out the output logits") {
			t.Errorf("logits travelled: %v", err)
		}
	}
}

// ending is a context that is cancelled after some looks at it.
type ending struct {
	context.Context
	left atomic.Int64
}

func (e *ending) Err() error {
	if e.left.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

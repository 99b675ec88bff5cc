package reproduce

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/krait-ml/krait/checkpoint/synth"
	"github.com/krait-ml/krait/cost"
	"github.com/krait-ml/krait/exec/virtual"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lab/simulate"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/passes"
)

// model is an evaluated model. Sizes are not published: the largest of a family is used, and 7
// billion parameters where that is cited.
type model struct {
	name, size string
	longest    int // tokens of prompts and outputs in the grid
	scans      bool
}

var evaluated = []model{
	{"Mamba", "mamba-2.8b", 256, true},
	{"Mamba-2", "mamba2-2.7b", 256, false},
	{"Falcon-Mamba", "falcon-mamba-7b", 1024, true},
	{"Zamba", "zamba-7b", 1024, true},
}

// machines are the paper's machines, with their profiles.
var machines = []struct{ name, profile string }{{"A6000", "a6000-pcie"}, {"A100", "a100-nvlink"}}

// setup is a configuration of a run.
type setup struct {
	size, machine string
	gpus          int
	strategy      string // empty: channel
	quantize      string
	fused         bool // Krait's fused scan, not the paper's unfused one
	overlap       bool
	native        bool // decode as captured graphs, and any algorithm of collectives
	instead
}

// lab caches what it compiled and what it ran.
type lab struct {
	lowered map[setup][]*lowering.Schedule
	models  map[setup]*simulate.Model
	graphs  map[string]*graph.Graph
	batches map[run]int
	runs    map[run]times

	assume instead // in setups that assume nothing themselves
}

// errNoRoom is the error of what does not fit into memory.
var errNoRoom = errors.New("there is no room for one sequence")

// run is what a result depends on.
type run struct {
	setup
	point
	batch int
}

func newLab() *lab {
	return &lab{map[setup][]*lowering.Schedule{}, map[setup]*simulate.Model{}, map[string]*graph.Graph{}, map[run]int{}, map[run]times{}, instead{}}
}

// assuming is a setup with what the lab assumes.
func (l *lab) assuming(s setup) setup {
	if s.instead == (instead{}) {
		s.instead = l.assume
		s.replicas = 0 // no run depends on it
	}
	return s
}

// model compiles a setup in f32, as in the paper: collectives by NCCL's rings and trees, and
// kernels launched one by one, as from Python. Native setups run as Krait does.
func (l *lab) model(s setup) (*simulate.Model, error) {
	s.batch = 0
	if m := l.models[s]; m != nil {
		return m, nil
	}
	d, err := s.device(s.machine, s.gpus)
	if err != nil {
		return nil, err
	}
	list, err := l.schedules(s)
	if err != nil {
		return nil, fmt.Errorf("%s on %d GPUs: %w", s.size, s.gpus, err)
	}
	if !s.native {
		d.Profile, d.NoGraphs = d.Profile.Only("ring", "tree"), true
	}
	m, err := simulate.New(list, d, nil)
	if err == nil {
		l.models[s] = m
	}
	return m, err
}

// schedules compiles a setup; they do not depend on the machine.
func (l *lab) schedules(s setup) ([]*lowering.Schedule, error) {
	s.machine, s.native, s.instead = "", false, instead{}
	if list := l.lowered[s]; list != nil {
		return list, nil
	}
	g := l.graphs[s.size]
	if g == nil {
		var err error
		if g, err = synth.Graph(synth.Options{Like: s.size, DType: "f32"}); err != nil {
			return nil, err
		}
		l.graphs[s.size] = g
	}
	o := passes.Options{Ranks: s.gpus, Overlap: s.overlap}
	var err error
	if s.strategy != "" {
		if o.Strategy, err = passes.FindStrategy(s.strategy); err != nil {
			return nil, err
		}
	}
	if o.Quantize, err = passes.ParseQuantize(s.quantize); err != nil {
		return nil, err
	}
	if !s.fused && scans(s.size) {
		o.Scan = passes.Unfused
	}
	compiled, err := passes.Compile(g, o)
	if err != nil {
		return nil, err
	}
	list, err := lowering.Lower(compiled)
	if err == nil {
		l.lowered[s] = list
	}
	return list, err
}

// scans reports whether a size has selective scans: the others have no tensor of tokens ×
// channels × states to leave in memory.
func scans(size string) bool {
	for _, m := range evaluated {
		if m.size == size {
			return m.scans
		}
	}
	return false
}

// point is a point of the grid: tokens of each prompt and of each output.
type point struct{ in, out int }

// times are the results of a batch.
type times struct {
	batch      int
	ttft, tpot float64 // seconds
	throughput float64 // tokens of output per second
	prefill    virtual.Span
}

// run returns the times of a batch with unchunked prefill. TPOT is the mean of the first, the
// middle and the last step by Simpson's rule, which is exact for constant steps and for attention
// that grows linearly with the past.
func (l *lab) run(s setup, p point, batch int) (times, error) {
	s = l.assuming(s)
	key := run{s, p, batch}
	if t, ok := l.runs[key]; ok {
		return t, nil
	}
	t := times{batch: batch}
	m, err := l.model(s.with(s.prompts))
	if err != nil {
		return t, err
	}
	if err := m.Fits(simulate.Workload{Batch: batch, Prompt: p.in, Output: p.out}); err != nil {
		return t, err
	}
	if t.prefill, err = m.Step(batch, 0, p.in); err != nil {
		return t, err
	}
	t.ttft = t.prefill.Seconds()
	if m, err = l.model(s.with(s.steps)); err != nil {
		return t, err
	}
	if p.out > 1 {
		t.tpot, err = simpson(p.in, p.in+p.out-2, func(past int) (float64, error) {
			step, err := m.Step(batch, past, 1)
			return step.Seconds(), err
		})
	}
	t.throughput = float64(batch) * float64(p.out) / (t.ttft + float64(p.out-1)*t.tpot)
	if err == nil {
		l.runs[key] = t
	}
	return t, err
}

// with is the setup of steps whose kernels take a factor of their time; 0: no other one.
func (s setup) with(kernels float64) setup {
	s.kernels = cmp.Or(kernels, s.kernels)
	s.prompts, s.steps = 0, 0
	return s
}

// simpson returns the mean of a function between two numbers, by Simpson's rule.
func simpson(from, to int, of func(int) (float64, error)) (mean float64, err error) {
	for i, weight := range []float64{1. / 6, 4. / 6, 1. / 6} {
		x, err := of(from + i*(to-from)/2)
		if err != nil {
			return 0, err
		}
		mean += weight * x
	}
	return mean, nil
}

// largest runs with the largest batch that fits into memory.
func (l *lab) largest(s setup, p point) (times, error) {
	batch, err := l.maxBatch(s, p)
	if err != nil {
		return times{}, err
	}
	return l.run(s, p, batch)
}

// maxBatch is the largest batch that fits, or the one that is assumed, if it is less.
func (l *lab) maxBatch(s setup, p point) (int, error) {
	s = l.assuming(s)
	want := s.batch
	s.instead = s.fits()
	key := run{s, p, 0}
	n, known := l.batches[key]
	if !known {
		m, err := l.model(s)
		if err != nil {
			return 0, err
		}
		if n, err = m.MaxBatch(simulate.Workload{Batch: 1, Prompt: p.in, Output: p.out}); err != nil {
			return 0, err
		}
		l.batches[key] = n
	}
	if n == 0 {
		return 0, fmt.Errorf("%s on %d of %s: %w of %d tokens", s.size, s.gpus, s.machine, errNoRoom, p.in)
	}
	if want > 0 {
		n = min(n, want)
	}
	return n, nil
}

// batches are those of figures whose batch is not published: one sequence and as many as fit, or
// what is assumed.
func (l *lab) batchesUpTo(most int) []int {
	if l.assume.batch > 0 {
		return []int{most}
	}
	return []int{1, most}
}

// longest returns the longest prompt with which a batch fits, among powers of two and exactly; 0:
// no prompt fits.
func (l *lab) longest(s setup, batch int) (power, exact int, err error) {
	m, err := l.model(s)
	if err != nil {
		return 0, 0, err
	}
	exact, err = m.MaxPrompt(simulate.Workload{Batch: batch, Prompt: 1, Output: 1})
	if err != nil {
		return 0, 0, err
	}
	for power = 1; power <= exact/2 && power < 1<<30; {
		power *= 2
	}
	return min(power, exact), exact, nil
}

// grid returns the points of a model: powers of two from 16 on.
func (m *model) grid() (points []point) {
	for in := 16; in <= m.longest; in *= 2 {
		for out := 16; out <= m.longest; out *= 2 {
			points = append(points, point{in, out})
		}
	}
	return points
}

// need returns the planned memory of the fullest GPU for a workload.
func (l *lab) need(s setup, p point, batch int) (simulate.Need, error) {
	m, err := l.model(s)
	if err != nil {
		return simulate.Need{}, err
	}
	r, err := m.Run(simulate.Workload{Batch: batch, Prompt: p.in, Output: 1})
	if err != nil {
		return simulate.Need{}, err
	}
	return slices.MaxFunc(r.Memory, func(a, b simulate.Need) int { return cmp.Compare(a.Sum, b.Sum) }), nil
}

func (l *lab) arena(s setup, p point, batch int) (int64, error) {
	n, err := l.need(s, p, batch)
	return n.Activations, err
}

// memoryShare returns the percentage of a GPU's memory that a workload takes, with the runtime's
// reserve.
func (l *lab) memoryShare(s setup, p point, batch int) (float64, error) {
	profile, err := cost.Find(s.machine)
	if err != nil {
		return 0, err
	}
	n, err := l.need(s, p, batch)
	return 100 * (float64(n.Sum) + profile.Memory.Reserve.Value) / profile.Memory.Capacity.Value, err
}

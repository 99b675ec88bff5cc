// Package calibrate measures this machine's CPU for a profile of [cost]: the speed of kernels as
// models run them, and the overhead of steps and collectives.
package calibrate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/checkpoint/synth"
	"github.com/krait-ml/krait/cost"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/cpu"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/memory"
	"github.com/krait-ml/krait/lab/bench"
	"github.com/krait-ml/krait/lowering"
)

// Options configure the measurement.
type Options struct {
	Ranks    []int               // numbers of ranks, each of which divides the machine; nil: 1, and 2 on two processors
	Workers  int                 // goroutines over all ranks; 0: GOMAXPROCS
	Progress func(done, all int) // gets the number of models made and measurements; nil: not called
	Model    string              // a model to measure beside the made ones, whose rates it replaces; Check compares it alone
	Models   string              // folder to store made models in and reuse them from; empty: a temporary one
	Parts    bool                // Check reports the prefill time of each operation
	Runs     int                 // of Check, one after the other; 0: 1
	models   []synth.Options     // replaces models and checked in tests, which then are quick and inexact
	passes   int                 // over all models, which spreads the noise of other programs
}

func (o *Options) settle() {
	if o.Workers == 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	if o.Ranks == nil {
		if o.Ranks = []int{1}; o.Workers > 1 {
			o.Ranks = []int{1, 2}
		}
	}
	if o.Progress == nil {
		o.Progress = func(done, all int) {}
	}
	if o.passes = 3; o.models != nil {
		o.passes = 2
	}
}

// roofline measures the machine's peak, for seconds, unless the context ends.
func (o *Options) roofline(ctx context.Context) (bench.Roofline, error) {
	if o.models != nil {
		return bench.Roofline{ISA: "none", Threads: o.Workers, Bytes: 1e10, FLOPs: 1e11}, nil
	}
	peak := make(chan bench.Roofline, 1)
	go func() {
		f := bench.MeasureRoofline(o.Workers)
		f.Read = nil
		debug.FreeOSMemory() // of what it read
		peak <- f
	}()
	select {
	case <-ctx.Done():
		return bench.Roofline{}, ctx.Err()
	case p := <-peak:
		return p, nil
	}
}

// models are measured: they have every operation, in small to large sizes, and more weights than
// caches hold.
var models = []synth.Options{
	{Like: "mamba-370m", Layers: 10, Vocab: 16384, DType: "bf16"},
	{Like: "mamba2-370m", Layers: 10, Vocab: 16384, DType: "bf16"},
	{Like: "mamba-370m", Layers: 5, Vocab: 16384, DType: "f32"},
	{Like: "falcon-h1-0.5b", Layers: 6, Vocab: 16384, DType: "bf16"},
}

// Run measures, and returns the profile.
func Run(ctx context.Context, o Options) (*cost.Profile, error) {
	o.settle()
	total, err := machineMemory()
	if err != nil {
		return nil, err
	}
	dir, remove, err := o.folder()
	if err != nil {
		return nil, err
	}
	defer remove()
	peak, err := o.roofline(ctx)
	if err != nil {
		return nil, err
	}
	m := newSamples(peak)
	list := models
	if o.models != nil {
		list = o.models
	}
	all := o.passes * len(list) * (1 + len(o.Ranks))
	if o.Model != "" {
		all += o.passes * len(o.Ranks)
	}
	ended := o.counter(all)
	for pass := range o.passes {
		if o.Model != "" {
			if err := m.onRanks(ctx, given, o.Model, &o, ended); err != nil {
				return nil, err
			}
		}
		for i, like := range list {
			path, err := o.fresh(ctx, dir, i, pass, like)
			if err != nil {
				return nil, err
			}
			ended()
			if err := m.onRanks(ctx, i, path, &o, ended); err != nil {
				return nil, err
			}
		}
	}
	return m.profile(total), nil
}

// given is the number of [Options.Model]; made models count from 0.
const given = -1

// onRanks measures a model on each number of ranks.
func (m *samples) onRanks(ctx context.Context, number int, dir string, o *Options, ended func()) error {
	for _, ranks := range o.Ranks {
		if err := m.model(ctx, number, dir, ranks, o); err != nil {
			return fmt.Errorf("--tp %d: %w", ranks, err)
		}
		ended()
	}
	return nil
}

// fresh writes a model for a pass, unless it keeps models. Each pass has files of its own, since
// where the system keeps a file's pages changes how fast weights are read. Those of the pass before
// are removed afterwards, so that the new ones get other pages.
func (o *Options) fresh(ctx context.Context, dir string, number, pass int, like synth.Options) (string, error) {
	if o.Models != "" {
		return o.write(ctx, dir, fmt.Sprint(number), like)
	}
	name := func(pass int) string { return fmt.Sprintf("%d-%d", number, pass) }
	path, err := o.write(ctx, dir, name(pass), like)
	if err == nil && pass > 0 {
		err = os.RemoveAll(filepath.Join(dir, name(pass-1)))
	}
	return path, err
}

// counter returns a function that reports the end of one more model or measurement, of all.
func (o *Options) counter(all int) func() {
	done := 0
	o.Progress(done, all)
	return func() {
		done++
		o.Progress(done, all)
	}
}

// folder returns the folder of models, and a function that removes it if it is temporary.
func (o *Options) folder() (dir string, remove func(), err error) {
	if o.Models != "" {
		return o.Models, func() {}, nil
	}
	dir, err = os.MkdirTemp("", "krait-calibrate-")
	return dir, func() { os.RemoveAll(dir) }, err
}

// write makes a model in a folder, unless it exists. It is complete once it has its name.
func (o *Options) write(ctx context.Context, dir, name string, like synth.Options) (string, error) {
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	like.Force = true
	if _, err := synth.Write(ctx, path+".part", like); err != nil {
		return "", err
	}
	return path, os.Rename(path+".part", path)
}

func machineMemory() (float64, error) {
	n := memory.Total()
	if n == 0 {
		return 0, errors.New("this machine's memory size is unknown (it is read on Linux only); write the profile by hand (docs/simulate.md)")
	}
	return float64(n), nil
}

// session is a model whose steps are measured.
type session struct {
	*samples
	engine *exec.Engine
	works  []map[string]*cost.Work // by rank, and name of the step
	number int                     // of the model
	batch  batch                   // of the running step
	z      graph.Sizes             // of the running step
	keep   bool                    // record the step
	took   float64                 // seconds of the step's events, from the first to the last
}

// model measures a model's steps.
func (m *samples) model(ctx context.Context, number int, dir string, ranks int, o *Options) error {
	s := &session{samples: m, number: number}
	d := &cpu.Device{Workers: o.Workers}
	on, err := krait.Open(dir, krait.Options{Slots: 8, Device: d, Sharding: krait.Sharding{Ranks: ranks}, Record: s.record})
	if err != nil {
		return err
	}
	defer on.Close()
	s.engine = on.Engine()
	for _, sch := range s.engine.Schedules() {
		s.works = append(s.works, worksOf(sch))
	}
	for _, x := range []struct{ batch, tokens, times int }{{1, 512, 2}, {1, 64, 2}, {1, 1, 16}, {2, 1, 4}, {3, 1, 4}, {4, 1, 4}, {8, 1, 4}, {1, 8, 2}} {
		if o.models != nil {
			x.times = 1
		}
		if err := s.steps(ctx, x.batch, x.tokens, x.times); err != nil {
			return err
		}
	}
	return nil
}

func worksOf(s *lowering.Schedule) map[string]*cost.Work {
	out := map[string]*cost.Work{}
	for i := range s.Steps {
		if st := &s.Steps[i]; st.Kind == lowering.Launch || st.Kind == lowering.Relayout {
			w := cost.WorkOf(s, st)
			out[st.Name] = &w
		}
	}
	return out
}

// steps runs a warm-up step, and some that are recorded.
func (s *session) steps(ctx context.Context, sequences, tokens, times int) error {
	b := exec.Batch{Choices: make([]exec.Choice, sequences)}
	for range sequences {
		slot, err := s.engine.Alloc()
		if err != nil {
			return err
		}
		defer s.engine.Free(slot)
		b.Sequences = append(b.Sequences, exec.Sequence{Slot: slot, Tokens: make([]int, tokens)})
	}
	s.batch = batch{sequences, tokens}
	for i := range times + 1 {
		past := int64(i * tokens)
		n, k := int64(sequences), int64(tokens)
		s.keep = i > 0
		s.z = graph.Sizes{Tokens: n * k, Seqs: n, Rows: n, Cached: n * (past + k), Pairs: n * (k*past + k*(k+1)/2)}
		for q := range b.Sequences {
			for j := range b.Sequences[q].Tokens {
				b.Sequences[q].Tokens[j] = (i*7 + q*31 + j*13) % 250
			}
		}
		began := time.Now()
		if _, err := s.engine.Step(ctx, &b); err != nil {
			return err
		}
		if s.keep && tokens == 1 {
			s.host = append(s.host, time.Since(began).Seconds()-s.took)
		}
	}
	return nil
}

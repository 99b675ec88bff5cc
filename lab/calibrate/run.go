// Package calibrate measures this machine's CPU for a profile of [cost]: how fast
// kernels are as models run them, and what steps and collectives cost beside them.
package calibrate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
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

// Options say what is measured.
type Options struct {
	Ranks   []int // numbers of ranks, each of which divides the machine; nil: 1, and 2 on two processors
	Workers int   // goroutines over all ranks; 0: GOMAXPROCS
	Tell    func(what string)
	Models  string          // a folder that keeps the models, and has some of an earlier time; empty: they are made and removed
	Parts   bool            // Check says what each operation takes of a prompt
	models  []synth.Options // instead of models and checked, for tests, which then take no time to be exact
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
	if o.Tell == nil {
		o.Tell = func(string) {}
	}
}

// floor is what the machine can do at best.
func (o *Options) floor() bench.Floor {
	if o.models != nil {
		return bench.Floor{ISA: "none", Threads: o.Workers, Bytes: 1e10, FLOPs: 1e11}
	}
	return bench.MeasureFloor(o.Workers)
}

// models are those whose kernels are measured: of every operation some, in sizes between
// small and large, and with more weights than caches hold.
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
	o.Tell("memory and arithmetic")
	m := newMeasured(o.floor())
	list := models
	if o.models != nil {
		list = o.models
	}
	paths := make([]string, len(list))
	for i, like := range list {
		o.Tell(fmt.Sprintf("%s in %s is made", like.Like, like.DType))
		if paths[i], err = o.write(ctx, dir, fmt.Sprint(i), like); err != nil {
			return nil, err
		}
	}
	left := newRemaining(time.Now, len(list)*len(o.Ranks), rounds)
	for range rounds {
		for i, like := range list {
			for _, ranks := range o.Ranks {
				o.Tell(fmt.Sprintf("%s: %s in %s, --tp %d", left, like.Like, like.DType, ranks))
				if err := m.model(ctx, i, paths[i], ranks, &o); err != nil {
					return nil, fmt.Errorf("%s on %d ranks: %w", like.Like, ranks, err)
				}
				left.next()
			}
		}
	}
	return m.profile(total), nil
}

// rounds are passes over all models, so that what else the machine did in one of them does
// not count as what a model takes.
const rounds = 2

// folder is where models are, and what removes it.
func (o *Options) folder() (dir string, remove func(), err error) {
	if o.Models != "" {
		return o.Models, func() {}, nil
	}
	dir, err = os.MkdirTemp("", "krait-calibrate-")
	return dir, func() { os.RemoveAll(dir) }, err
}

// write makes a model in a folder, unless it is there. A name stands for one model, and one
// that was not written to its end has another.
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
		return 0, errors.New("it is not known how much memory this machine has, which Linux says; write the profile by hand (docs/simulate.md)")
	}
	return float64(n), nil
}

// session is a model whose steps are measured.
type session struct {
	*measured
	engine *exec.Engine
	works  []map[string]*cost.Work // by rank, and name of the step
	number int                     // of the model
	batch  batch                   // of the step under way
	z      graph.Sizes             // of the step under way
	keep   bool                    // what is recorded counts
	took   float64                 // seconds of the step's events, from the first to the last
}

// model measures a model's steps.
func (m *measured) model(ctx context.Context, number int, dir string, ranks int, o *Options) error {
	s := &session{measured: m, number: number}
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
	for _, x := range []struct{ batch, tokens, times int }{{1, 512, 3}, {1, 64, 3}, {1, 1, 12}, {8, 1, 4}, {1, 8, 3}} {
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

// steps runs one step that does not count, and some that do.
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

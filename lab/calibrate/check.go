package calibrate

import (
	"cmp"
	"context"
	"math"
	"path/filepath"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/checkpoint/synth"
	"github.com/krait-ml/krait/cost"
	"github.com/krait-ml/krait/exec/cpu"
	"github.com/krait-ml/krait/exec/virtual"
	"github.com/krait-ml/krait/lab/bench"
	"github.com/krait-ml/krait/lab/simulate"
)

// Comparison is the predicted and the measured times of a model.
type Comparison struct {
	Model  string `json:"model"`
	Ranks  int    `json:"ranks"`
	Prompt int    `json:"prompt_tokens"`
	// Bytes are those read per second right before the measurements, the median. Where other guests of
	// a host share its memory, it differs from the rate of the profile.
	Bytes     float64 `json:"bytes_per_second"`
	Predicted Times   `json:"predicted"`
	Measured  Times   `json:"measured"`
	Parts     []Part  `json:"parts,omitempty"` // of prefill
}

// Times are those of a generation.
type Times struct {
	TTFT float64 `json:"ttft_seconds"`
	TPOT float64 `json:"tpot_seconds"`
}

// The models and prompts to compare predictions with.
var (
	checked = []synth.Options{{Like: "mamba-130m"}, {Like: "mamba2-130m"}}
	prompts = []int{64, 512}
)

// Close is the share of a measured time by which the predicted one may differ.
const Close = 0.15

// Close reports whether the predicted TTFT and TPOT are within [Close] of the measured ones.
func (c *Comparison) Close() (ttft, tpot bool) {
	is := func(predicted, measured float64) bool { return math.Abs(predicted-measured) <= Close*measured }
	return is(c.Predicted.TTFT, c.Measured.TTFT), is(c.Predicted.TPOT, c.Measured.TPOT)
}

// Check compares a profile's predictions with measured times of models. It measures them in turns:
// what slows the machine down for seconds is in few of a row's times then.
func Check(ctx context.Context, p *cost.Profile, o Options) ([]Comparison, error) {
	o.settle()
	dir, remove, err := o.folder()
	if err != nil {
		return nil, err
	}
	defer remove()
	models := checked
	if o.models != nil {
		models = o.models
	}
	var paths []string
	if o.Model != "" {
		paths = []string{o.Model}
	} else {
		for _, like := range models {
			path, err := o.write(ctx, dir, cmp.Or(like.Like, like.From, "model"), like)
			if err != nil {
				return nil, err
			}
			paths = append(paths, path)
		}
	}
	var out []Comparison
	runs := max(o.Runs, 1)
	ended := o.counter(runs * o.passes * len(paths) * len(o.Ranks))
	for range runs {
		list, err := o.check(ctx, paths, p, ended)
		if err != nil {
			return nil, err
		}
		out = append(out, list...)
	}
	return out, nil
}

// check compares all models on all numbers of ranks once.
func (o *Options) check(ctx context.Context, models []string, p *cost.Profile, ended func()) (out []Comparison, err error) {
	var all []*subject
	defer func() {
		for _, s := range all {
			s.model.Close()
		}
	}()
	for _, path := range models {
		for _, ranks := range o.Ranks {
			s, err := o.subject(path, ranks)
			if err != nil {
				return nil, err
			}
			all = append(all, s)
		}
	}
	for range o.passes {
		for _, s := range all {
			if err := s.measure(ctx, o); err != nil {
				return nil, err
			}
			ended()
		}
	}
	for _, s := range all {
		list, err := s.compare(ctx, p, o)
		if err != nil {
			return nil, err
		}
		out = append(out, list...)
	}
	return out, nil
}

// subject is a model on some ranks that is measured, with its times so far.
type subject struct {
	dir   string
	ranks int
	model *krait.Model
	bytes []float64   // read per second, right before each turn
	ttft  [][]float64 // in seconds, by prompt
	tpot  [][]float64
}

func (o *Options) subject(dir string, ranks int) (*subject, error) {
	m, err := krait.Open(dir, krait.Options{Slots: 1, Device: &cpu.Device{Workers: o.Workers}, Sharding: krait.Sharding{Ranks: ranks}})
	return &subject{dir, ranks, m, nil, make([][]float64, len(prompts)), make([][]float64, len(prompts))}, err
}

// generated is the tokens of a measured generation.
const generated = 16

// measure takes one turn of all prompts.
func (s *subject) measure(ctx context.Context, o *Options) error {
	peak, err := o.roofline(ctx)
	if err != nil {
		return err
	}
	s.bytes = append(s.bytes, peak.Bytes)
	for i, prompt := range prompts {
		took, err := bench.Measure(ctx, s.model, bench.Options{Batch: 1, Prompt: prompt, Chunk: 512, Tokens: generated, Repeat: 2})
		if err != nil {
			return err
		}
		s.ttft[i], s.tpot[i] = append(s.ttft[i], took.TTFT/1e3), append(s.tpot[i], took.Step/1e3)
	}
	return nil
}

// compare compares the medians of all turns with predictions.
func (s *subject) compare(ctx context.Context, p *cost.Profile, o *Options) (out []Comparison, err error) {
	sim, err := simulate.New(s.model.Engine().Schedules(), &virtual.Device{Profile: p}, nil)
	if err != nil {
		return nil, err
	}
	for i, prompt := range prompts {
		said, err := sim.Run(simulate.Workload{Batch: 1, Prompt: prompt, Output: generated + 1, Chunk: 512})
		if err != nil {
			return nil, err
		}
		c := Comparison{filepath.Base(s.dir), s.ranks, prompt, usual(s.bytes), Times{said.TTFT, said.TPOT}, Times{usual(s.ttft[i]), usual(s.tpot[i])}, nil}
		if o.Parts {
			if c.Parts, err = partsOf(ctx, s.dir, p, s.ranks, prompt, o); err != nil {
				return nil, err
			}
		}
		out = append(out, c)
	}
	return out, nil
}

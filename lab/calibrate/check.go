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
	// Bytes are those read per second right before the measurement. Where other guests of a host share
	// its memory, it differs from the rate of the profile.
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

// Check compares a profile's predictions with measured times of models.
func Check(ctx context.Context, p *cost.Profile, o Options) ([]Comparison, error) {
	o.settle()
	dir, remove, err := o.folder()
	if err != nil {
		return nil, err
	}
	defer remove()
	var out []Comparison
	models := checked
	if o.models != nil {
		models = o.models
	}
	runs := max(o.Runs, 1)
	ended := o.counter(runs * len(models) * len(o.Ranks))
	for i := range runs * len(models) {
		like := models[i%len(models)]
		path, err := o.write(ctx, dir, cmp.Or(like.Like, like.From, "model"), like)
		if err != nil {
			return nil, err
		}
		for _, ranks := range o.Ranks {
			list, err := checkOne(ctx, path, p, ranks, &o)
			if err != nil {
				return nil, err
			}
			out = append(out, list...)
			ended()
		}
	}
	return out, nil
}

func checkOne(ctx context.Context, dir string, p *cost.Profile, ranks int, o *Options) ([]Comparison, error) {
	m, err := krait.Open(dir, krait.Options{Slots: 1, Device: &cpu.Device{Workers: o.Workers}, Sharding: krait.Sharding{Ranks: ranks}})
	if err != nil {
		return nil, err
	}
	defer m.Close()
	peak, err := o.roofline(ctx)
	if err != nil {
		return nil, err
	}
	rate := peak.Bytes
	s, err := simulate.New(m.Engine().Schedules(), &virtual.Device{Profile: p}, nil)
	if err != nil {
		return nil, err
	}
	var out []Comparison
	for _, prompt := range prompts {
		const tokens = 16
		took, err := bench.Measure(ctx, m, bench.Options{Batch: 1, Prompt: prompt, Chunk: 512, Tokens: tokens, Repeat: 5})
		if err != nil {
			return nil, err
		}
		said, err := s.Run(simulate.Workload{Batch: 1, Prompt: prompt, Output: tokens + 1, Chunk: 512})
		if err != nil {
			return nil, err
		}
		out = append(out, Comparison{filepath.Base(dir), ranks, prompt, rate, Times{said.TTFT, said.TPOT}, Times{took.TTFT / 1e3, took.Step / 1e3}, nil})
	}
	for i := range out {
		if !o.Parts {
			break
		}
		if out[i].Parts, err = partsOf(ctx, dir, p, ranks, out[i].Prompt, o); err != nil {
			return nil, err
		}
	}
	return out, nil
}

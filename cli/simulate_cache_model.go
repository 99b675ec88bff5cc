package cli

import (
	"errors"
	"fmt"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/session/prefix"
	"github.com/spf13/cobra"
)

// cacheModelFlags say what a model costs: by four figures, or by its graph.
type cacheModelFlags struct {
	figures      prefix.Model
	cache, state bytesOrNone
	dir, states  string
	like         string
	grain        int
	kinds        []kindCost // of the graph that was read
}

// figureFlags are the flags of the four figures.
var figureFlags = []string{"flops-per-token", "flops-per-token-squared", "cache-bytes", "state-bytes"}

func (f *cacheModelFlags) add(c *cobra.Command) {
	flags := c.Flags()
	flags.Float64Var(&f.figures.FLOPsPerToken, figureFlags[0], 0, "a of the a·L + b·L² FLOPs that prefill of L tokens takes")
	flags.Float64Var(&f.figures.FLOPsPerTokenSquared, figureFlags[1], 0, "b of the a·L + b·L² FLOPs that prefill of L tokens takes")
	flags.Var(&f.cache, figureFlags[2], "bytes of KV cache per token")
	flags.Var(&f.state, figureFlags[3], "bytes of a sequence's states, all layers; 0: attention only")
	flags.IntVar(&f.grain, "grain", prefix.Grain, "snapshots lie at multiples of this many tokens; 1: any token")
	flags.StringVarP(&f.dir, "model", "m", "", "DIR or FILE.ir, in place of the four cost flags")
	flags.StringVar(&f.like, "like", "", "published size to use instead of a model (krait synth --help lists them)")
	flags.StringVar(&f.states, "states", "", "formats of states by kind, such as conv=bf16,cache=e4m3 (default f32)")
}

// check is an error where the figures are missing, or given twice.
func (f *cacheModelFlags) check(c *cobra.Command) error {
	given := c.Flags().Changed
	if f.grain < 1 || f.grain > prefix.MaxTokens {
		return fmt.Errorf("--grain is %d; it must be from 1 to %d", f.grain, prefix.MaxTokens)
	}
	if given("model") && f.like != "" {
		return errors.New("--like and --model exclude each other: give one of them")
	}
	if given("model") || f.like != "" {
		for _, name := range figureFlags {
			if given(name) {
				return errors.New("the model's graph gives the figure of --" + name + "; leave out the flag or the model")
			}
		}
		if f.dir == "" && f.like == "" {
			return errors.New(`--model is ""; give a folder or file`)
		}
		return nil
	}
	switch {
	case f.states != "":
		return errors.New("--states needs a model; give --model or --like, or leave out --states")
	case !given("flops-per-token") || !given("cache-bytes") && !given("state-bytes"):
		return errors.New("the model is missing: give --model DIR, or --flops-per-token, and --cache-bytes, --state-bytes or both")
	}
	return nil
}

// read gives the figures.
func (f *cacheModelFlags) read(c *cobra.Command) (prefix.Model, error) {
	if f.dir == "" && f.like == "" {
		m := f.figures
		m.Grain = f.grain
		m.CacheBytes, m.StateBytes = int64(f.cache.byteCount), int64(f.state.byteCount)
		return m, nil
	}
	from := newGraphArg()
	from.flag, from.like = f.dir, f.like
	g, _, err := from.read(c, nil)
	if err == nil && f.states != "" {
		if g.Stage > graph.UnpackedStage {
			return prefix.Model{}, errors.New("the graph is partitioned, so its states have formats; leave out --states")
		}
		g, err = compileTo(c, g.Stage, g, krait.Sharding{States: f.states})
	}
	if err != nil {
		return prefix.Model{}, err
	}
	f.kinds = kindCosts(g)
	p := g.Prefill()
	return prefix.Model{FLOPsPerToken: p.PerToken, FLOPsPerTokenSquared: p.PerTokenSquared, CacheBytes: p.CacheBytes, StateBytes: p.StateBytes, Grain: f.grain}, nil
}

package krait

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/krait-ml/krait/cost"
	"github.com/krait-ml/krait/exec/virtual"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/files"
	"github.com/krait-ml/krait/lab/simulate"
	"github.com/krait-ml/krait/lab/validate"
	"github.com/krait-ml/krait/passes"
	"github.com/krait-ml/krait/visualize"
)

// Sharding says how a model lies over ranks. The zero value is one rank, or what
// a graph that is partitioned already says.
type Sharding struct {
	Ranks    int    // 0: one, or as many as the graph is for
	Strategy string // a name; empty: channel; auto: the cheapest on Hardware
	Place    string // a placement file, instead of a strategy
	Quantize string // what sums travel in: fp16, or x_proj=none,out_proj=bf16:acc32; with .ag what is gathered
	// Phase is prefill or decode where all that runs is that phase: of Quantize, parts that end
	// in @prefill or @decode are for one of the two. Empty: steps have both.
	Phase string
	// States says in which formats states are kept, by kind: conv=bf16,cache=f16,ssm=bf16.
	// Those of convolutions and the caches of attention may be f32, f16 or bf16, those of
	// scans f32 or bf16. Kinds that are left out stay in f32. All is computed in f32.
	States string
	// Scan is how selective scans run: fused, or unfused, which leaves about four tensors of
	// tokens × channels × states in memory, as the published evaluation did. Empty: fused.
	Scan string
	Dump string // a folder that gets the graph after each pass that changed it, as text and drawing
	// Fuse says which neighbours become one operation: exact, where every device's kernels
	// give the bits of the operations apart, or launches, where that saves launches, too.
	// Empty: as the device likes that runs it, else exact.
	Fuse string
	// Overlap orders steps so that what does not need a sum between ranks runs while it
	// travels, where a device has a stream for that. No bit changes; activations may take
	// more memory.
	Overlap bool
	// CheckPayloads lets a step fail where a payload of fp16 leaves that format's
	// range, with an error that names it. The sequences of the batch must be reset
	// then. It costs memory and time: each sum is kept to the end of the step.
	CheckPayloads bool
	// Validate runs each distinct block of the model and of what it was compiled to,
	// as package validate does, before anything else runs, and is an error where they
	// differ.
	Validate bool

	// Hardware is for the strategy auto: the profile by which it is chosen, a name of
	// [cost.Names], local, or a file. Work is what it is chosen for; the zero value is a
	// prompt of 512 tokens and 64 of output.
	Hardware string
	Work     simulate.Workload

	// Calibration is what Quantize was chosen by, where it was: a model of another graph, or
	// with other weights, is an error.
	Calibration *Calibration

	// Target is the device that the graph is for, if it decides in which format activations lie; [Open] asks Options.Device.
	Target passes.Target

	place *passes.Strategy // what was read of Place
}

// Auto is the strategy that stands for the cheapest one.
const Auto = "auto"

// Calibrated is an error where Quantize was chosen by a calibration of another model. Graphs that
// passes have changed are not looked at.
func (s Sharding) Calibrated(g *graph.Graph) error {
	if s.Calibration == nil || g.Stage != graph.ModelStage {
		return nil
	}
	return s.Calibration.Check(g)
}

// Chosen is the sharding with the cheapest strategy for the graph in place of auto:
// the one by which Work takes least time on Hardware, prompts and output together. A
// calibration of another graph is an error.
func (s Sharding) Chosen(g *graph.Graph) (Sharding, error) {
	if err := s.Calibrated(g); err != nil {
		return s, err
	}
	switch {
	case s.Strategy != Auto:
		return s, nil
	case s.Place != "":
		return s, fmt.Errorf("strategy %s and placement file %s: give one of them", Auto, s.Place)
	case g.Stage >= graph.PartitionedStage:
		return s, fmt.Errorf("the graph is %s already, and no strategy can be chosen for it", g.Stage)
	case s.Hardware == "":
		return s, fmt.Errorf("strategy %s needs a profile of the hardware; there are %s, and %s after krait calibrate", Auto, strings.Join(cost.Names(), ", "), cost.Local)
	}
	p, err := cost.Find(s.Hardware)
	if err != nil {
		return s, err
	}
	s.Strategy = ""
	if s.Ranks <= 1 {
		return s, nil
	}
	o, err := s.Options()
	if err != nil {
		return s, err
	}
	if s.Work == (simulate.Workload{}) {
		s.Work = simulate.Workload{Batch: 1, Prompt: 512, Output: 64}
	}
	o.Dump = nil
	c, err := simulate.Choose(g, o, &virtual.Device{Profile: p}, s.Work)
	if err == nil {
		s.Strategy = c.One().Prefill
	}
	return s, err
}

// ReadPlace reads the placement file, once for all that the sharding is used for
// afterwards: it may be a named pipe, which gives its text once.
func (s *Sharding) ReadPlace() (err error) {
	if s.Place != "" {
		s.place, err = passes.ReadStrategy(s.Place)
	}
	return err
}

// Options reads what the names and files of the sharding stand for.
func (s Sharding) Options() (passes.Options, error) {
	o := passes.Options{Ranks: s.Ranks}
	var err error
	switch {
	case s.Ranks < 0 || s.Ranks > passes.MaxRanks:
		return o, fmt.Errorf("%d ranks; 1 to %d are possible", s.Ranks, passes.MaxRanks)
	case s.Place != "" && s.Strategy != "":
		return o, fmt.Errorf("strategy %s and placement file %s: give one of them", s.Strategy, s.Place)
	case s.Place != "" && s.place != nil:
		o.Strategy = s.place
	case s.Place != "":
		o.Strategy, err = passes.ReadStrategy(s.Place)
	case s.Strategy != "":
		o.Strategy, err = passes.FindStrategy(s.Strategy)
	}
	if err != nil {
		return o, err
	}
	quantize, err := passes.QuantizeIn(s.Quantize, s.Phase)
	if err != nil {
		return o, err
	}
	if o.Quantize, err = passes.ParseQuantize(quantize); err != nil {
		return o, err
	}
	if o.States, err = passes.ParseStates(s.States); err != nil {
		return o, err
	}
	if o.Scan, err = passes.ParseScan(s.Scan); err != nil {
		return o, err
	}
	if o.Fuse, err = passes.ParseFuse(s.Fuse); err != nil {
		return o, err
	}
	o.Overlap, o.Target = s.Overlap, s.Target
	if o.Quantize.Watch = s.CheckPayloads; s.CheckPayloads && !o.Quantize.Overflows() {
		return o, errors.New("nothing travels as fp16 or in a codec, so there are no payloads to check; give a quantize that says fp16 or int8, or do not check")
	}
	if s.Dump != "" {
		if err := os.MkdirAll(s.Dump, 0o755); err != nil {
			return o, err
		}
		o.Dump = func(step int, pass string, g *graph.Graph) error { return dump(s.Dump, step, pass, g) }
	}
	return o, nil
}

// Compile compiles a graph for the ranks, by [passes.Compile], to what runs: on
// several, with layouts for all values and collectives between them, and always
// fused. A graph that is partitioned or fused already goes on from there; a
// sharding that says otherwise is an error.
func Compile(g *graph.Graph, s Sharding) (*graph.Graph, error) {
	s, err := s.Chosen(g)
	if err != nil {
		return nil, err
	}
	o, err := s.Options()
	if err == nil && s.Validate {
		err = validated(g, o)
	}
	if err != nil {
		return nil, err
	}
	return passes.Compile(g, o)
}

// validated executes what passes make of a graph on ranks, before it is fused.
func validated(g *graph.Graph, o passes.Options) error {
	o.Dump, o.Quantize.Watch = nil, false
	if g.Stage >= graph.PartitionedStage {
		return fmt.Errorf("the graph is %s already, and there is nothing to validate it against; krait prove takes both", g.Stage)
	}
	o.Stop = graph.PartitionedStage
	partitioned, err := passes.Compile(g, o)
	if err != nil {
		return err
	}
	o = passes.Options{Stop: g.Stage}
	if g, err = passes.Compile(g, o); err != nil { // without what nobody needs
		return err
	}
	report, err := validate.Run(context.Background(), g, partitioned, validate.Options{})
	if err != nil {
		return fmt.Errorf("it does not compute what the model does: %w", err)
	}
	for _, p := range report.Parts {
		if p.Skipped != "" {
			return fmt.Errorf("validate: %s is not executed: %s; leave validation out, or use krait prove", strings.Join(p.Blocks, ", "), p.Skipped)
		}
	}
	return nil
}

// dump writes 05-partition.ir and .dot.
func dump(dir string, step int, pass string, g *graph.Graph) error {
	base := filepath.Join(dir, fmt.Sprintf("%02d-%s", step, pass))
	if err := files.Write(base+".ir", []byte(graph.Print(g))); err != nil {
		return err
	}
	var drawing bytes.Buffer
	if err := visualize.Dot(&drawing, g, visualize.Options{}); err != nil {
		return err
	}
	return files.Write(base+".dot", drawing.Bytes())
}

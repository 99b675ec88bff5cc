package passes

import (
	"errors"
	"fmt"

	"github.com/krait-ml/krait/graph"
)

// Auto is the name that stands for the cheapest strategy: [Sharding.Choose] finds it.
const Auto = "auto"

// Sharding describes how a model is laid out over ranks, by names, as flags give them. The zero
// value is one rank, or the layout of a graph that is partitioned already.
type Sharding struct {
	Ranks int // 0: one, or the number that the graph is partitioned for
	// Context is how many of the ranks are along CP: Ranks are Ranks/Context along TP times Context,
	// and the strategy is that of TP. 0: one.
	Context int
	// Stages is the number of pipeline stages, each of as many ranks; 0: one. They are cut by cost,
	// or begin at the blocks whose numbers StagesAt has, such as 10,20.
	Stages   int
	StagesAt string
	Replicas int    // copies of all stages, which divide the sequences; 0: one
	Strategy string // a name; empty: channel; Auto: the one that Choose returns
	Place    string // a placement file, instead of a strategy
	// Prefill is the strategy of prefill, and Strategy or Place are then that of decode. It has its
	// own copies of weights, states and KV caches, unless Phase says that one of them is not run.
	// Auto: the one that Choose returns. Empty: one strategy serves both.
	Prefill string
	// Payload is the format of the collectives' payloads: fp16, or by site
	// x_proj=none,out_proj=bf16:acc32; a site with .ag is a gather. Empty: f32.
	Payload string
	// Phase is prefill or decode if the process runs that phase only. It selects the parts of
	// Payload that end in @prefill or @decode. Empty: both, for which these parts need Prefill.
	Phase string
	// States sets the format of sequences' states by kind: conv=bf16,cache=f16,ssm=bf16. Conv
	// states and KV caches may be f32, f16, bf16 or e4m3, SSM states f32 or bf16. Kinds that are left
	// out are f32. Arithmetic is always f32.
	States string
	// Scan is fused, or unfused, which keeps about four tensors of tokens × channels × states in
	// memory, as the published evaluation did. Empty: fused.
	Scan string
	// Fuse is exact, where fused kernels give the bits of the separate ones on every device, or
	// launches, where fusing saves launches, too. Empty: what the device prefers, otherwise exact.
	Fuse string
	// Overlap orders steps so that work that needs no collective runs while one is in flight, on
	// devices with a stream for that. It changes no bit, and may take more memory.
	Overlap bool
	// CheckPayloads makes a step fail if a payload of fp16 or of a codec is not finite, with an
	// error that names it. The batch's sequences must be reset then. It takes memory and time: each
	// sum is kept until the step ends.
	CheckPayloads bool

	// Dump receives the graph after each pass that changed it; visualize.DumpTo writes folders.
	Dump func(step int, pass string, g *graph.Graph) error
	// Validate compares the graph with its partitioned form before anything else runs; package
	// lab/validate has one that executes both.
	Validate func(source, partitioned *graph.Graph) error
	// Choose returns the strategy that Auto stands for, in one of [Phases] or (phase empty) in both;
	// package lab/simulate has one that takes the cheapest on given hardware.
	Choose func(g *graph.Graph, o Options, phase string) (strategy string, err error)
	// Check rejects models that the sharding is not for, such as a calibration's: by the model's
	// graph, and when it is opened by the fingerprint of its weights. Weights is nil before that.
	Check func(g *graph.Graph, weights func() (string, error)) error
	// Target is the device that the graph is for, if it decides in which format activations lie;
	// krait.Open asks Options.Device.
	Target Target

	place *Strategy // parsed from Place
}

// IsZero reports whether nothing is set.
func (s Sharding) IsZero() bool {
	return s.Ranks == 0 && s.Context == 0 && s.Stages == 0 && s.Replicas == 0 && s.StagesAt+s.Strategy+s.Place+s.Prefill+s.Payload+s.Phase+s.States+s.Scan+s.Fuse == "" && !s.Overlap && !s.CheckPayloads &&
		s.Dump == nil && s.Validate == nil && s.Choose == nil && s.Check == nil && s.Target == nil
}

// ReadPlace reads the placement file once for all later uses of the sharding: a named pipe gives
// its text only once.
func (s *Sharding) ReadPlace() (err error) {
	if s.Place != "" {
		s.place, err = ReadStrategy(s.Place)
	}
	return err
}

// ForPrefill returns the sharding of prefill, if the process runs both phases and prefill has one
// of its own. Dump gets the graphs of decode only.
func (s Sharding) ForPrefill() (Sharding, bool) {
	if s.Prefill == "" || s.Phase != "" || s.Ranks <= 1 {
		return Sharding{}, false
	}
	s.Phase, s.Dump = Phases[0], nil
	s = s.ofPhase()
	if q, err := QuantizeIn(s.Payload, s.Phase); err == nil && s.CheckPayloads {
		parsed, err := ParseQuantize(q)
		s.CheckPayloads = err != nil || parsed.Overflows()
	}
	return s, true
}

// ofPhase is a sharding with one strategy: that of the phase, of both phases that of decode.
func (s Sharding) ofPhase() Sharding {
	switch {
	case s.Prefill == "":
	case s.Phase == Phases[0]:
		s.Strategy, s.Place, s.place = s.Prefill, "", nil
	default:
		s.Phase = Phases[1]
	}
	s.Prefill = ""
	return s
}

// Resolve checks that the sharding is for the graph, and replaces the strategies [Auto] by those
// that Choose returns for it.
func (s Sharding) Resolve(g *graph.Graph) (Sharding, error) {
	if s.Check != nil && g.Stage == graph.ModelStage {
		if err := s.Check(g, nil); err != nil {
			return s, err
		}
	}
	if s.Prefill != "" && g.Stage >= graph.PartitionedStage {
		return s, fmt.Errorf("the graph is %s already, and has one strategy; leave out that of prefill (%s)", g.Stage, s.Prefill)
	}
	phase := ""
	switch p, ok := s.ForPrefill(); {
	case s.Prefill != "" && !ok:
		s = s.ofPhase()
	case ok:
		phase = Phases[1]
		var err error
		if p, err = p.resolveAuto(g, Phases[0]); err != nil {
			return s, fmt.Errorf("prefill: %w", err)
		}
		s.Prefill = p.Strategy
	}
	return s.resolveAuto(g, phase)
}

// resolveAuto replaces the strategy [Auto] by the one that Choose returns for a phase, or for both.
func (s Sharding) resolveAuto(g *graph.Graph, phase string) (Sharding, error) {
	switch {
	case s.Strategy != Auto:
		return s, nil
	case s.Place != "":
		return s, fmt.Errorf("strategy %s and placement file %s: give one of them", Auto, s.Place)
	case g.Stage >= graph.PartitionedStage:
		return s, fmt.Errorf("the graph is %s already, and no strategy can be chosen for it", g.Stage)
	case s.Choose == nil:
		return s, fmt.Errorf("strategy %s needs Sharding.Choose, such as simulate.Auto", Auto)
	}
	s.Strategy = ""
	o, err := s.Options()
	if err != nil {
		return s, err
	}
	o.Dump = nil
	s.Strategy, err = s.Choose(g, o, phase)
	return s, err
}

// Options parses the names and files of the sharding.
func (s Sharding) Options() (Options, error) {
	two := s
	s = s.ofPhase()
	o := Options{Ranks: s.Ranks, Mesh: s.axes(), Pipeline: s.Pipeline(), Overlap: s.Overlap, Dump: s.Dump, Target: s.Target}
	var err error
	switch {
	case s.Ranks < 0 || s.Ranks > MaxRanks:
		return o, fmt.Errorf("%d ranks; the number must be from 1 to %d", s.Ranks, MaxRanks)
	case s.Context < 0 || s.Ranks%max(1, s.Context) != 0:
		return o, fmt.Errorf("%d of %d ranks along cp; the number must divide that of the ranks", s.Context, s.Ranks)
	case s.Place != "" && s.Strategy != "":
		return o, fmt.Errorf("strategy %s and placement file %s: give one of them", s.Strategy, s.Place)
	case s.Place != "" && s.place != nil:
		o.Strategy = s.place
	case s.Place != "":
		o.Strategy, err = ReadStrategy(s.Place)
	case s.Strategy != "":
		o.Strategy, err = FindStrategy(s.Strategy)
	}
	if err != nil {
		return o, err
	}
	payload, err := QuantizeIn(s.Payload, s.Phase)
	if err != nil {
		return o, err
	}
	if o.Quantize, err = ParseQuantize(payload); err != nil {
		return o, err
	}
	if o.States, err = ParseStates(s.States); err != nil {
		return o, err
	}
	if o.Scan, err = ParseScan(s.Scan); err != nil {
		return o, err
	}
	if o.Fuse, err = ParseFuse(s.Fuse); err != nil {
		return o, err
	}
	o.Quantize.Watch = s.CheckPayloads && o.Quantize.Overflows()
	if p, ok := two.ForPrefill(); s.CheckPayloads && !o.Quantize.Watch && !(ok && p.CheckPayloads) {
		return o, errors.New("no payload is fp16 or a codec, so there is nothing to check; set Payload to fp16 or int8, or leave CheckPayloads out")
	}
	return o, nil
}

// Compile compiles a graph for the ranks, by the function [Compile], to what runs: on several ranks
// with layouts for all values and collectives between them, and always fused. A graph at a later
// stage is compiled from there; a sharding that contradicts its layout is an error.
func (s Sharding) Compile(g *graph.Graph) (*graph.Graph, error) {
	s, err := s.Resolve(g)
	if err != nil {
		return nil, err
	}
	o, err := s.Options()
	if err == nil && s.Validate != nil {
		err = s.validate(g, o)
	}
	if err != nil {
		return nil, err
	}
	return Compile(g, o)
}

// validate lets Validate compare a graph with its partitioned form, before that is fused.
func (s Sharding) validate(g *graph.Graph, o Options) error {
	if g.Stage >= graph.PartitionedStage {
		return fmt.Errorf("the graph is %s already, and there is nothing to validate it against; krait prove takes both", g.Stage)
	}
	o.Dump, o.Quantize.Watch, o.Stop = nil, false, graph.PartitionedStage
	partitioned, err := Compile(g, o)
	if err != nil {
		return err
	}
	if g, err = Compile(g, Options{Stop: g.Stage}); err != nil { // without unused values
		return err
	}
	return s.Validate(g, partitioned)
}

// OnMesh sets the numbers of ranks along the axes of a mesh. Along CP alone, the strategy is
// context.
func (s *Sharding) OnMesh(m graph.Mesh) error {
	tp, cp := m.Along(graph.TP), m.Along(graph.CP)
	switch {
	case s.Ranks != 0:
		return fmt.Errorf("%d ranks and the mesh %s: give one of them", s.Ranks, m)
	case tp == 1 && cp > 1 && (s.Place != "" || s.Strategy != "" && s.Strategy != contextStrategy):
		return fmt.Errorf("the mesh %s has ranks along cp alone, where the strategy is %s; leave the other strategy out", m, contextStrategy)
	case tp == 1 && cp > 1:
		s.Strategy = contextStrategy
	case cp > 1:
		s.Context = cp
	}
	if s.Ranks = tp * cp; m.Along(graph.PP) > 1 {
		s.Stages = m.Along(graph.PP)
	}
	if m.Along(graph.DP) > 1 {
		s.Replicas = m.Along(graph.DP)
	}
	return nil
}

// OnProcesses sets the number of ranks to that of processes, each of which runs one. On a mesh,
// which says how they are arranged, the numbers must agree.
func (s *Sharding) OnProcesses(n int) error {
	stages, replicas := max(1, s.Stages), max(1, s.Replicas)
	all := max(1, s.Ranks) * stages * replicas
	switch {
	case stages*replicas > 1 && all != n:
		return fmt.Errorf("%d ranks were requested, in %d stages and %d replicas, but %d processes run one each", all, stages, replicas, n)
	case stages*replicas == 1 && s.Ranks != 0 && all != n:
		return fmt.Errorf("%d ranks were requested, but %d processes run one each: leave the number of ranks out", s.Ranks, n)
	case stages*replicas == 1:
		s.Ranks = n
	}
	return nil
}

// axes is the mesh of TP and CP where values lie along both; zero: along one.
func (s *Sharding) axes() graph.Mesh {
	if s.Context > 1 && s.Ranks > s.Context && s.Ranks%s.Context == 0 {
		return graph.Mesh{graph.TP: s.Ranks / s.Context, graph.CP: s.Context}
	}
	return graph.Mesh{}
}

// Package krait runs state-space language models.
//
// [Open] reads a Hugging Face folder, [Embedded] the small model that comes
// with the program. A [Model] generates text, or is stepped token by token
// through a [Sequence]:
//
//	m, err := krait.Open(dir, krait.Options{})
//	if err != nil { … }
//	defer m.Close()
//	out, err := m.Generate(ctx, "In the beginning", krait.Generate{MaxTokens: 100})
//	for token, err := range m.Stream(ctx, "In the beginning", krait.Generate{}) { … }
//
// Sizes are in tokens and bytes, times in seconds or [time.Duration]; logits are f32, a number
// per token id. What a user can get wrong is an error that says what, where and what to do, before
// anything runs if possible; after [Model.Close] it is [ErrClosed]. An error of a step leaves other
// sequences as they were.
//
// [New] makes a model of a graph of one's own (package graph), [NewEngine] runs graphs that are no
// language models. Package models takes families of one's own, [graph.RegisterOp] operations:
// docs/library.md goes from the first line to these.
package krait

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/comm"
	"github.com/krait-ml/krait/exec/cpu"
	"github.com/krait-ml/krait/exec/saved"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels/reference"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/models"
	"github.com/krait-ml/krait/passes"
	"github.com/krait-ml/krait/session/cache"
	"github.com/krait-ml/krait/session/schedule"
	"github.com/krait-ml/krait/text/chat"
)

// Options say how a model is opened. The zero value is a good start.
type Options struct {
	// Slots is how many sequences can be under way at the same time; 0 is 8.
	Slots int
	// MaxTokensPerStep bounds how long generations that share steps wait for each
	// other's prompts: a step has a token of each that goes on, and as much of the
	// prompts as there is left. 0 is 512 and one for each slot.
	MaxTokensPerStep int
	// PromptShare is how much of the time prompts may have at most while other generations go on,
	// which are slowed down by them to 1/(1-PromptShare) at most; at least 0 and below 1. 0 is no bound, which reads
	// prompts soonest.
	PromptShare float64
	// PrefixCache is the size in bytes of the prefix cache in device memory; 0: no cache. Prompts leave
	// snapshots at multiples of 64 tokens, and hits there change no bit on the CPU;
	// docs/prefix-cache.md describes the other hits.
	PrefixCache int64
	// PrefixPolicy says what goes first when the prefix cache is full, by the names of
	// krait cache-sim: lru, flop:α, retuned or tuned. Empty is tuned.
	PrefixPolicy string
	// PrefixCacheHost is how many bytes of the host's memory hold what the prefix cache
	// evicts, to be brought back where that is sooner done than computing; 0: none.
	PrefixCacheHost int64
	// PrefixCacheDir is a folder in which the prefix cache outlives the process: it is
	// written by Close, and holds as much as PrefixCacheHost, or else PrefixCache, which
	// is then the host's memory for it, too. Other models may have files there. Only its owner
	// may use it: an existing folder is closed to others, or is an error if it has other files.
	PrefixCacheDir string
	// grain is how many tokens are between the states that prompts leave in the prefix cache; 0 is
	// [prefix.Grain], and tests with short prompts take less.
	grain int
	// StateCodec is what states and rows of caches are in where they leave the ranks: the
	// prefix cache in the host's memory and in a folder, what [Sequence.Save] writes, and what
	// comes from a prefill server. It is a codec, int8, e4m3, e5m2, int4 or scaled16, with a size
	// of its blocks, int8/64, for all but what convolutions keep, or codecs by kind:
	// ssm=int8,cache=e4m3,conv=none. Empty: as the ranks hold them, to the last bit.
	StateCodec string
	// Context is how many tokens a sequence may have where there is attention. Its caches
	// have room for as many of each slot then, from the beginning; 0 lets them grow as
	// sequences do.
	Context int
	// PageTokens is how many tokens a page of attention's caches has rows for: caches
	// grow by pages, and sequences that begin alike share them. 0 is 128.
	PageTokens int
	// PieceTokens is how many tokens at most go together through what runs by pieces where
	// ranks have parts of the tokens (strategies sequence and batch); 0 is 512. It changes
	// no bit on the CPU, and none on CUDA from 256 on, where products have one kernel.
	PieceTokens int
	// Memory is how many bytes of a device the model may take: on the CPU all of its ranks together, of
	// GPUs each, and [AllMemory] is what the device says. What is planned to be taken, weights,
	// states, activations and PrefixCache, must fit, and the rest is for attention's caches:
	// generations wait until there is room for them, and the prefix cache gives up rows where
	// they need the pages. Scratch memory is not planned. 0: caches grow as sequences do. See [Model.MemoryPlan].
	Memory int64
	// Strict makes errors of what otherwise becomes a warning: unknown config
	// keys and unused tensors.
	Strict bool
	// Reference runs the plain float64 kernels: slow, for comparison.
	Reference bool
	// Workers is how many goroutines share the work of the CPU's kernels, over all
	// ranks; 0 is GOMAXPROCS.
	Workers int
	// Keep names values of the graph, such as layers.0.h, that [Sequence.Feed] gives, and
	// that the results of Engine().Step have, besides the logits.
	Keep []string
	// Device is where the model runs; nil is the CPU. Package exec/devices
	// has others.
	Device exec.Device
	// Record is told what ranks did when, after each step; nil: nobody asks, and nothing
	// is measured. On CUDA steps are launched kernel by kernel then. Batches is told of each
	// batch before it runs. Package visualize/timeline draws what they say.
	Record exec.Recorder
	// Recording is asked before each step whether it is to be recorded, where Record is only
	// sometimes wanted; nil: each is. On the CPU a step that is not costs what it costs without
	// Record; other devices do not ask.
	Recording func() bool
	Batches   func(*exec.Work)
	// Progress is told of the bytes of weights that were loaded, of how many.
	Progress func(done, total int64)
	// Sharding says how many ranks run the model, and how it lies over them.
	Sharding Sharding
	// Processes run a rank of the model each: all open it with the same options, those of
	// ranks other than 0 call [Model.Follow], and that of rank 0 has the model. nil: all ranks are in this process.
	Processes *comm.Processes
}

// Model is an opened model. It may be used from several goroutines: generations share
// steps, and steps of others wait for each other.
type Model struct {
	// Name is the folder's name, or the embedded model's.
	Name string
	// Warnings says what in the checkpoint was ignored, and what of the options does nothing.
	Warnings []string

	closed     atomic.Bool
	closing    sync.Once
	source     source
	graph      *graph.Graph // what runs
	mu         sync.Mutex   // of a step and its results
	results    exec.Results // kept here so that a step allocates nothing
	engine     *exec.Engine
	requests   *schedule.Scheduler
	cache      *cache.Cache  // nil: none
	packing    *exec.Packing // nil: none; Options.StateCodec
	plan       MemoryPlan
	origin     func() (saved.Origin, error)
	generation models.Generation
	kept       []string // Options.Keep
	tokens     Tokenizer
	noTokens   error                          // why tokens is nil
	chat       func() (*chat.Template, error) // nil: there is none
}

// start compiles the model for its ranks, and loads it.
func (m *Model) start(o Options) (*Model, error) {
	err := m.warn(o.Strict)
	if err == nil {
		err = o.join()
	}
	if err == nil {
		g := m.source.graph
		for _, name := range o.Keep {
			v, ok := g.Value(name)
			if !ok {
				err = errors.Join(err, fmt.Errorf("the graph of %s has no value %s", m.Name, name))
				continue
			}
			err = errors.Join(err, g.AddOutput(name, v))
			m.kept = append(m.kept, name)
		}
	}
	if err == nil {
		o.Sharding, err = o.Sharding.Chosen(m.source.graph)
	}
	if err == nil && o.Sharding.Calibration != nil {
		err = o.Sharding.Calibration.checkWeights(m)
	}
	if err == nil {
		o.fuse(m.source.graph)
		if m.graph, err = Compile(m.source.graph, o.Sharding); err == nil {
			m.origin = sync.OnceValues(func() (saved.Origin, error) { return m.fingerprints(o.Sharding) })
			err = m.load(o)
		}
	}
	if err != nil {
		m.source.close()
		return nil, err
	}
	return m, nil
}

// warn lists what was ignored, as an error when strict.
func (m *Model) warn(strict bool) error {
	m.Warnings = append(m.Warnings, m.source.ignored...)
	if strict && len(m.Warnings) > 0 {
		return fmt.Errorf("%s: %s", m.Name, strings.Join(m.Warnings, "; "))
	}
	return nil
}

// join takes the number of ranks from the processes that run them.
func (o *Options) join() error {
	if o.Processes == nil {
		return nil
	}
	n := o.Processes.Ranks()
	if o.Sharding.Ranks != 0 && o.Sharding.Ranks != n {
		return fmt.Errorf("%d ranks are asked for, and %d processes run one each: leave the number of ranks out", o.Sharding.Ranks, n)
	}
	o.Sharding.Ranks = n
	return nil
}

// Follow runs this process's rank of a model of which rank 0 is in another, until it is
// closed there. See [exec.Engine.Follow].
func (m *Model) Follow(ctx context.Context) error { return m.engine.Follow(ctx) }

// load makes the engine. The files may have been changed while it read them.
func (m *Model) load(o Options) (err error) {
	s, err := o.lower(m.graph)
	if err != nil {
		return err
	}
	if m.engine, err = m.planned(s, o); err != nil {
		return err
	}
	if o.Processes != nil && o.Processes.Rank() > 0 { // what is kept of prompts, rank 0 knows
		o.PrefixCache, o.PrefixPolicy, o.PrefixCacheHost, o.PrefixCacheDir = 0, "", 0, ""
	}
	if err = m.source.intact(); err == nil {
		m.packing, err = m.engine.Packing(o.StateCodec)
	}
	if err == nil {
		err = m.schedule(o)
	}
	if err != nil {
		m.engine.Close()
	}
	return err
}

// planned makes the engine of schedules for which there is memory.
func (m *Model) planned(s []*lowering.Schedule, o Options) (*exec.Engine, error) {
	d, err := o.device()
	if err == nil && o.Memory != 0 && min(o.Slots, o.Context, o.PageTokens) >= 0 { // or else the engine says so
		if err = o.checkMemory(); err == nil {
			m.plan, err = planMemory(s, &o, d, m.Vocab())
		}
		if err != nil {
			err = fmt.Errorf("memory plan: %w", err)
		}
	}
	if err != nil {
		return nil, err
	}
	e, err := engineOf(m.graph, s, m.source.weights, m.source.intact, o)
	if err == nil {
		e.LimitPages(m.plan.pages)
	}
	return e, err
}

// lower makes schedules of a graph that is compiled.
func (o *Options) lower(g *graph.Graph) ([]*lowering.Schedule, error) {
	if o.PieceTokens < 0 || o.PieceTokens > graph.MaxPiece {
		return nil, fmt.Errorf("pieces of %d tokens; 1 to %d are possible, and 0 is %d", o.PieceTokens, graph.MaxPiece, lowering.PieceTokens)
	}
	return lowering.LowerFor(g, cmp.Or(o.PieceTokens, lowering.PieceTokens))
}

// engineOf makes the engine of a compiled graph's schedules. Intact is asked where weights are read in
// place: on the CPU.
func engineOf(g *graph.Graph, s []*lowering.Schedule, tensor Weights, intact func() error, o Options) (*exec.Engine, error) {
	e := exec.Options{Slots: o.Slots, Context: o.Context, PageTokens: o.PageTokens, Progress: o.Progress, Record: o.Record, Recording: o.Recording, Batches: o.Batches}
	if p := payloads(passes.Watched(g)); len(p) > 0 {
		e.Verify = p.check
	}
	var err error
	if e.Device, err = o.device(); err != nil {
		return nil, err
	}
	if o.Processes != nil {
		e.World = o.Processes.NewGroup()
	}
	if _, onCPU := e.Device.(*cpu.Device); onCPU {
		e.Intact = intact
	}
	return exec.New(s, tensor, e)
}

// fuse asks the device how far to fuse, where the options do not say.
func (o *Options) fuse(g *graph.Graph) {
	if g.Stage == graph.FusedStage {
		return
	}
	if d, ok := o.Device.(interface{ Target() passes.Target }); ok {
		o.Sharding.Target = d.Target()
	}
	if d, ok := o.Device.(interface{ FewLaunches() bool }); ok && d.FewLaunches() && o.Sharding.Fuse == "" {
		o.Sharding.Fuse = "launches"
	}
}

// device is where the model runs, as the options say; the CPU by default.
func (o *Options) device() (exec.Device, error) {
	d, onCPU := o.Device.(*cpu.Device)
	switch {
	case o.Device == nil:
		d = &cpu.Device{}
	case !onCPU && o.Reference:
		return nil, errors.New("the reference kernels run on the CPU only; leave out the device")
	case !onCPU:
		return o.Device, nil
	}
	with := *d
	if o.Workers != 0 {
		with.Workers = o.Workers
	}
	if o.Reference {
		with.Kernels = reference.Kernels
	}
	return &with, nil
}

// ErrClosed is the error of what is asked of a model after Close.
var ErrClosed = exec.ErrClosed

// Close waits for the step under way, ends the model and unmaps its weights. Generations
// under way and those who wait for a step get [ErrClosed], and so does who asks for one
// afterwards; a second Close does nothing.
func (m *Model) Close() (err error) {
	m.closing.Do(func() {
		m.closed.Store(true)
		m.requests.Close()
		if m.cache != nil {
			err = m.cache.Close()
		}
		m.mu.Lock() // somebody may be reading logits
		defer m.mu.Unlock()
		m.engine.Close()
		err = cmp.Or(err, m.source.close())
	})
	return err
}

// lock takes the model for one step, unless it is closed.
func (m *Model) lock() error {
	m.mu.Lock()
	if m.closed.Load() {
		m.mu.Unlock()
		return ErrClosed
	}
	return nil
}

// State is a state of a model by its name and type.
type State = exec.State

// Snapshot is all that a sequence keeps between steps: [Sequence.Snapshot].
type Snapshot = exec.Snapshot

// States lists what a sequence keeps between steps. Names and types are those of
// [Model.Graph], on however many ranks the model runs and however it lies over them.
func (m *Model) States() []State { return m.engine.States() }

// Family is the checkpoint's model_type; the name of the graph that [New] was given.
func (m *Model) Family() string { return m.source.family }

// Vocab is the number of token ids.
func (m *Model) Vocab() int { return m.source.vocab }

// EOS lists the tokens that end a text, as generation_config.json says, or
// config.json, or the tokenizer.
func (m *Model) EOS() []int {
	if m.generation.EOS != nil {
		return m.generation.EOS
	}
	if t, ok := m.tokens.(interface{ EOS() (int, bool) }); ok && m.source.eos == nil {
		if id, ok := t.EOS(); ok {
			return []int{id}
		}
	}
	return m.source.eos
}

// Defaults is how the checkpoint's author means texts to be continued:
// generation_config.json.
func (m *Model) Defaults() Generate {
	g := m.generation
	return Generate{Temperature: g.Temperature, TopK: g.TopK, TopP: g.TopP, MinP: g.MinP, RepetitionPenalty: g.RepetitionPenalty}
}

// Graph is the model as a graph, as its family defines it; of a model of one's own, as
// [New] was given it, with the outputs that were added.
func (m *Model) Graph() *graph.Graph { return m.source.graph }

// Compiled is the model's graph as it runs: laid over its ranks, and fused.
func (m *Model) Compiled() *graph.Graph { return m.graph }

// Ranks is the number of ranks that run the model.
func (m *Model) Ranks() int { return m.graph.Ranks }

// Engine runs the model; it takes whole batches. The results of a step are valid until
// the next, by anyone.
func (m *Model) Engine() *exec.Engine { return m.engine }

// Tokenizer is the model's tokenizer, or an error that says why there is none.
func (m *Model) Tokenizer() (Tokenizer, error) { return m.tokens, m.noTokens }

// Parameters is the number of parameters; what is shared counts once.
func (m *Model) Parameters() int64 {
	var n int64
	for _, p := range m.source.graph.Leaves("param") {
		n += p.Results[0].Type.Elems().At(graph.Sizes{})
	}
	return n
}

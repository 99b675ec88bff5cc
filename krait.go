// Package krait runs state-space language models.
//
// [Open] opens a Hugging Face folder, [Embedded] a small model that is part of the program. A
// [Model] generates text, or a [Sequence] of it is stepped token by token:
//
//	m, err := krait.Open(dir, krait.Options{})
//	if err != nil { … }
//	defer m.Close()
//	out, err := m.Generate(ctx, "In the beginning", krait.Generate{MaxTokens: 100})
//	for token, err := range m.Stream(ctx, "In the beginning", krait.Generate{}) { … }
//
// Sizes are in tokens and bytes, times in seconds or [time.Duration]; logits are f32, one per token
// id. An error says what is wrong, where, and what to do, before anything runs if possible; after
// [Model.Close] it is [ErrClosed]. An error of a step leaves other sequences unchanged.
//
// [New] makes a model of a custom graph (package graph), [NewEngine] runs graphs that are no
// language models. Package models registers families of models, [graph.RegisterOp] operations;
// docs/library.md shows all of them.
package krait

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"sync"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/comm"
	"github.com/krait-ml/krait/exec/cpu"
	"github.com/krait-ml/krait/exec/group"
	"github.com/krait-ml/krait/exec/state"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/files"
	"github.com/krait-ml/krait/kernels/reference"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/models"
	"github.com/krait-ml/krait/passes"
	"github.com/krait-ml/krait/session"
	"github.com/krait-ml/krait/session/draft"
	"github.com/krait-ml/krait/text/chat"
)

// Options set how a model is opened. The zero value is a good start.
type Options struct {
	// Slots is the number of sequences that can be active at the same time; 0: 8.
	Slots int
	// MaxTokensPerStep bounds the tokens of a step, and so how long generations wait for each
	// other's prompts: a step decodes one token of each active sequence, and fills up with chunks
	// of prompts. 0: 512, plus one per slot.
	MaxTokensPerStep int
	// PromptShare bounds the share of time that prefill may take while other generations decode,
	// which slows them down to 1/(1-PromptShare) at most; at least 0 and below 1. 0: no bound,
	// which prefills soonest.
	PromptShare float64
	// PrefixCache is the size in bytes of the prefix cache in device memory; 0: none. Prompts leave
	// snapshots at multiples of PrefixGrain tokens, and hits at multiples of 64 change no bit on the
	// CPU; docs/prefix-cache.md describes the other hits.
	PrefixCache int64
	// PrefixPolicy is the eviction policy of the prefix cache, named as by krait simulate cache:
	// reuse, tuned, lru, flop:α, leaves or released:α. Empty: reuse.
	PrefixPolicy string
	// PrefixCacheHost is the size in bytes of the prefix cache's host tier: it holds evicted
	// prefixes, which are loaded again if that is faster than prefill. 0: none.
	PrefixCacheHost int64
	// PrefixCacheDir is a folder that Close writes the prefix cache to, and that the next process
	// reads. It holds PrefixCacheHost bytes, by default PrefixCache, which is then the size of the
	// host tier, too. Several models can share a folder. Permissions of an existing folder are
	// reduced to its owner's; it is an error if it has other files.
	PrefixCacheDir string
	// PrefixGrain is the distance in tokens of the snapshots that prompts leave in the prefix
	// cache; 0: 64.
	PrefixGrain int
	// StateCodec encodes states and KV pages outside of the ranks: in the prefix cache's host tier
	// and folder, in files of [Sequence.Save], and on their way from a prefill server. It is int8,
	// e4m3, e5m2, int4 or scaled16, with a block size int8/64, for all but conv states, or codecs
	// by kind: ssm=int8,cache=e4m3,conv=none. Empty: the bytes that the ranks hold.
	StateCodec string
	// Context is the maximum length in tokens of a sequence, for models with attention. KV pages
	// for that many tokens of each slot are reserved; 0: KV caches grow with their sequences.
	Context int
	// PageTokens is the size of a KV page in tokens. Sequences with a common prefix share pages.
	// 0: 128.
	PageTokens int
	// PieceTokens is how many tokens at most go together through parts of the model that ranks
	// split by tokens (strategies sequence and batch); 0: 512. It changes no bit on the CPU, and
	// none on CUDA from 256 on, where one kernel computes all products.
	PieceTokens int
	// Memory is the memory budget in bytes: of all ranks on the CPU, of each GPU otherwise, or
	// session.AllMemory for all that the device has free. Weights, states, activations and
	// PrefixCache must fit, and the rest is for KV pages: requests wait until there are enough, and
	// the prefix cache gives up pages that they need. Scratch memory is not counted. 0: no budget.
	// See [Model.MemoryPlan].
	Memory int64
	// Speculate selects the drafts of speculative decoding, which changes no text: off, ngram
	// (tokens that followed the last ones earlier, in the text or in ended ones of the same Salt),
	// draft:DIR (those of a small model with the same tokenizer, which is opened, too), mtp (those of
	// the checkpoint's own MTP head), or auto: ngram for up to 4 sequences at the same time, and
	// nothing where ranks have tokens in parts (strategy context). Empty: off. Each sequence with
	// drafts takes memory for a state more. docs/speculation.md says when it pays.
	Speculate string
	// Strict makes errors of warnings: unknown config keys and unused tensors.
	Strict bool
	// Reference runs the plain float64 kernels: slow, for comparison.
	Reference bool
	// Workers is the number of goroutines of the CPU's kernels, over all ranks; 0: GOMAXPROCS.
	Workers int
	// Keep names values of the graph, such as layers.0.h, that [Sequence.Feed] can return, and that
	// results of Engine().Step have beside the logits.
	Keep []string
	// Device runs the model; nil: the CPU. Package exec/devices has others.
	Device exec.Device
	// Record gets the events of all ranks after each step; nil: none are measured. On CUDA kernels
	// are launched one by one then. Batches gets each batch before it runs. Package
	// visualize/timeline draws both.
	Record exec.Recorder
	// Recording is asked before each step whether to record it; nil: each is recorded. On the CPU
	// other steps cost nothing; other devices record all.
	Recording func() bool
	Batches   func(*exec.Work)
	// Progress gets the bytes of weights loaded so far, and of all.
	Progress func(done, total int64)
	// Sharding sets the number of ranks, and the model's layout over them.
	Sharding Sharding
	// Processes runs one rank in each of several processes: all open the model with the same
	// options, ranks other than 0 call [Model.Follow], and rank 0 uses the model. nil: all ranks
	// run in this process.
	Processes *comm.Processes
}

// Sharding describes the model's layout over ranks.
type Sharding = passes.Sharding

// session returns the options of the model's session. Of several processes rank 0 has the prefix
// cache.
func (o *Options) session() session.Options {
	s := session.Options{Slots: o.Slots, MaxTokensPerStep: o.MaxTokensPerStep, PromptShare: o.PromptShare, Context: o.Context,
		PageTokens: o.PageTokens, Memory: o.Memory, StateCodec: o.StateCodec, Trials: o.trials(), OwnProcesses: o.Processes != nil}
	if o.Processes == nil || o.Processes.Rank() == 0 {
		s.PrefixCache, s.PrefixPolicy, s.PrefixGrain = o.PrefixCache, o.PrefixPolicy, o.PrefixGrain
		s.PrefixCacheHost, s.PrefixCacheDir = o.PrefixCacheHost, o.PrefixCacheDir
	}
	return s
}

// trials returns the number of sequences that can verify drafts in a step: all, or with auto a few,
// as drafts do not pay in large batches.
func (o *Options) trials() int {
	switch slots := cmp.Or(o.Slots, 8); o.Speculate {
	case "", draft.Off:
		return 0
	case draft.Auto:
		return min(4, slots)
	default:
		return slots
	}
}

// Model is an opened model. Its methods may be called from several goroutines: generations share
// steps, and steps of other callers wait for each other.
type Model struct {
	// Name is the folder's name, or the embedded model's.
	Name string
	// Warnings lists parts of the checkpoint that were ignored, and options without effect.
	Warnings []string

	closing    sync.Once
	source     source
	graph      *graph.Graph  // compiled: the source's, and outputs that options need
	prefill    *exec.Prefill // nil: one strategy serves both phases
	engine     *exec.Engine
	session    *session.Session
	generation models.Generation
	keep       []string     // Options.Keep
	speculate  string       // Options.Speculate, or off
	head       *graph.Graph // of the MTP head, with speculate mtp
	drafts     *Model       // that makes drafts, or the MTP head; nil: none
	tokens     Tokenizer
	noTokens   error                          // why tokens is nil
	chat       func() (*chat.Template, error) // nil: there is none
}

// start compiles the model for its ranks and loads it.
func (m *Model) start(o Options) (*Model, error) {
	err := m.prepare(&o)
	var d exec.Device
	if err == nil {
		d, err = o.device()
	}
	if err == nil {
		if m.prefill, err = session.NewPrefill(m.graph, o.Sharding, o.PieceTokens, d); err == nil {
			m.graph, err = o.Sharding.Compile(m.graph)
		}
	}
	if err == nil {
		err = m.load(o, d)
	}
	if err != nil {
		if m.drafts != nil {
			m.drafts.Close()
		}
		m.source.close()
		return nil, err
	}
	return m, nil
}

// prepare checks the options and adds the outputs of Options.Keep and of Options.Speculate to the
// graph.
func (m *Model) prepare(o *Options) error {
	m.speculate = cmp.Or(o.Speculate, draft.Off)
	if err := draft.Check(m.speculate); err != nil {
		return fmt.Errorf("Options.Speculate is %w", err)
	}
	if err := m.prepareMTP(); err != nil {
		return fmt.Errorf("Options.Speculate is %s: %w", m.speculate, err)
	}
	if m.source.ignored != nil {
		m.Warnings = append(m.Warnings, m.source.ignored()...)
	}
	if o.Strict && len(m.Warnings) > 0 {
		return fmt.Errorf("%s: %s", m.Name, strings.Join(m.Warnings, "; "))
	}
	g := m.graph
	var err error
	if o.Processes != nil {
		err = o.Sharding.OnProcesses(o.Processes.Ranks())
	}
	for _, name := range o.Keep {
		v, ok := g.Value(name)
		if !ok {
			err = errors.Join(err, fmt.Errorf("the graph of %s has no value %s", m.Name, name))
			continue
		}
		err = errors.Join(err, g.AddOutput(name, v))
		m.keep = append(m.keep, name)
	}
	if err == nil {
		o.Sharding, err = o.Sharding.Resolve(g)
	}
	if err == nil && o.Sharding.Check != nil {
		err = o.Sharding.Check(g, m.fingerprint)
	}
	if err == nil {
		o.fuse(g)
	}
	return err
}

// Follow runs this process's rank of a model until the process of rank 0 closes it. See
// [exec.Engine.Follow].
func (m *Model) Follow(ctx context.Context) error { return m.engine.Follow(ctx) }

// load makes the engine and the session. The files may have changed while the engine read them.
func (m *Model) load(o Options, d exec.Device) (err error) {
	s, err := session.Lower(m.graph, o.Sharding, o.PieceTokens, d)
	if err != nil {
		return err
	}
	if s[0].RowPlace() == graph.InParts { // exec.Open refuses drafts
		m.noAuto(&o)
	}
	if w, ok := d.(interface {
		Warnings(*lowering.Schedule) []string
	}); ok {
		m.Warnings = append(m.Warnings, w.Warnings(s[0])...)
	}
	if err := m.openDrafts(&o, len(s)); err != nil {
		return err
	}
	of := o.session()
	of.Prefill = m.prefill
	if m.head != nil && m.drafts != nil {
		of.Head = m.drafts.engine.Schedules()
	}
	plan, err := session.Plan(s, of, d, m.Vocab())
	if err != nil && m.noAuto(&o) {
		of.Trials = 0
		plan, err = session.Plan(s, of, d, m.Vocab())
	}
	if err != nil {
		return err
	}
	if m.engine, err = newEngine(m.graph, s, m.prefill, m.source.weights, m.source.intact, d, o); err != nil {
		return err
	}
	if err = m.source.intact(); err == nil {
		in := session.Model{Name: m.Name, Vocab: m.Vocab(), Graph: m.graph, Strategy: cmp.Or(o.Sharding.Strategy, o.Sharding.Place, "channel"),
			States: cmp.Or(o.Sharding.States, "f32"), Fingerprint: m.fingerprint}
		m.session, err = session.New(in, m.engine, plan, of)
	}
	if err != nil {
		m.engine.Close()
		return err
	}
	m.Warnings = append(m.Warnings, m.session.Warnings()...)
	return nil
}

// newEngine makes the engine of a compiled graph's schedules. It calls intact after it read weights
// in place: on the CPU.
func newEngine(g *graph.Graph, s []*lowering.Schedule, prefill *exec.Prefill, tensor Weights, intact func() error, d exec.Device, o Options) (*exec.Engine, error) {
	e := exec.Options{Device: d, Slots: o.Slots, Trials: o.trials(), Context: o.Context, PageTokens: o.PageTokens, Progress: o.Progress,
		Record: o.Record, Recording: o.Recording, OnBatch: o.Batches, Verify: session.CheckPayloads(g), Prefill: prefill}
	if _, onCPU := d.(*cpu.Device); onCPU {
		e.CheckFiles = intact
	}
	if o.Processes != nil {
		ranks := o.Processes.NewGroup()
		e.World, e.Device = ranks, &group.Device{Device: d, Group: ranks}
		if prefill != nil {
			ranks = o.Processes.NewGroup()
			prefill.World, prefill.Device = ranks, &group.Device{Device: d, Group: ranks}
		}
	}
	return exec.New(s, tensor, e)
}

// fuse sets how far to fuse by the device, unless the options do.
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

// device returns the device with its options; the CPU by default.
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

// ErrClosed is the error of calls to a model after Close.
var ErrClosed = exec.ErrClosed

// Close waits for the running step, closes the model and unmaps its weights. Active and queued
// generations get [ErrClosed], and so do later calls. A second Close does nothing.
func (m *Model) Close() (err error) {
	m.closing.Do(func() {
		err = m.session.Close()
		if m.drafts != nil { // an MTP head reads weights of the source
			err = cmp.Or(err, m.drafts.Close())
		}
		err = cmp.Or(err, m.source.close())
	})
	return err
}

// Fingerprint identifies the model's graph and weights, all of which it reads.
func (m *Model) Fingerprint() (print string, err error) {
	err = m.session.Use(func() error { // Close would unmap the weights
		print, err = m.fingerprint()
		return err
	})
	return print, err
}

func (m *Model) fingerprint() (string, error) {
	sum := graph.Digest(m.source.graph)
	table := crc32.MakeTable(crc32.Castagnoli)
	err := files.Guard(func() error {
		for _, n := range m.source.graph.Leaves("param") {
			for _, p := range n.Storage.Pieces {
				a, err := m.source.weights(p.Tensor)
				if err != nil {
					return err
				}
				fmt.Fprintln(sum, p.Tensor, a.DType, a.Shape, crc32.Checksum(a.Data, table))
			}
		}
		return nil
	})
	return hex.EncodeToString(sum.Sum(nil)), err
}

// Session returns the model's session: its scheduler, prefix cache and memory plan, for servers.
func (m *Model) Session() *session.Session { return m.session }

// MemoryPlan is the division of a device's memory by [Options.Memory].
type MemoryPlan = session.MemoryPlan

// MemoryPlan returns the division of the device's memory.
func (m *Model) MemoryPlan() MemoryPlan { return m.session.MemoryPlan() }

// ChatTemplate returns the checkpoint's chat template, which makes prompts of conversations; the
// error is [chat.ErrNone] if there is none.
func (m *Model) ChatTemplate() (*chat.Template, error) {
	if m.chat == nil {
		return nil, chat.ErrNone
	}
	return m.chat()
}

// Snapshot is the state of a sequence between steps: [Sequence.Snapshot].
type Snapshot = state.Snapshot

// States lists the states of a sequence between steps. Names and types are those of [Model.Graph],
// for any number of ranks and any layout.
func (m *Model) States() []state.Spec { return m.engine.States() }

// Family returns the checkpoint's model_type, or the name of the graph given to [New].
func (m *Model) Family() string { return m.source.family }

// Vocab returns the number of token ids.
func (m *Model) Vocab() int { return m.source.vocab }

// EOS lists the tokens that end a text, by generation_config.json, config.json, or the tokenizer.
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

// Defaults returns the sampling options of the checkpoint's generation_config.json.
func (m *Model) Defaults() Generate {
	g := m.generation
	return Generate{Temperature: g.Temperature, TopK: g.TopK, TopP: g.TopP, MinP: g.MinP, RepetitionPenalty: g.RepetitionPenalty}
}

// Graph returns the model's graph as its family defines it, or as it was given to [New], with added
// outputs.
func (m *Model) Graph() *graph.Graph { return m.source.graph }

// Compiled returns the graph that runs: partitioned and fused.
func (m *Model) Compiled() *graph.Graph { return m.graph }

// Ranks returns the number of ranks that run the model.
func (m *Model) Ranks() int { return m.engine.Ranks() }

// Engine returns the engine, which runs whole batches. Results of a step are valid until the next
// step of any caller.
func (m *Model) Engine() *exec.Engine { return m.engine }

// Tokenizer returns the model's tokenizer, or an error that says why there is none.
func (m *Model) Tokenizer() (Tokenizer, error) { return m.tokens, m.noTokens }

// Parameters returns the number of parameters; shared ones count once.
func (m *Model) Parameters() int64 {
	var n int64
	for _, p := range m.source.graph.Leaves("param") {
		n += p.Results[0].Type.Elems().At(graph.Sizes{})
	}
	return n
}

package krait

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/state"
	"github.com/krait-ml/krait/exec/state/statefile"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/session/cache"
	"github.com/krait-ml/krait/session/prefix"
	"github.com/krait-ml/krait/session/schedule"
)

// cutAt is what prompts are cut at multiples of, where they share steps: a multiple of
// the chunks that scans are computed in on any device, so that a cut changes no bit.
const cutAt = 32

// schedule makes what lets generations share steps, and beginnings of prompts.
func (m *Model) schedule(o Options) (err error) {
	var kept schedule.Cache
	if err := o.idle(); err != nil {
		return err
	}
	if o.PrefixCache != 0 {
		if err := m.keepPrefixes(o); err != nil {
			return fmt.Errorf("PrefixCache: %w", err)
		}
		kept = m.cache
	}
	l := limits(o, m.engine)
	l.Rows = scoredRows(&l, m.Vocab())
	l.Room, l.Page = m.plan.Room, m.plan.PageTokens
	if m.requests, err = schedule.New(requestEngine{m}, l, kept); err != nil {
		err = fmt.Errorf("MaxTokensPerStep: %w", err)
	}
	return err
}

// Requests is what lets generations share steps, for a server: requests that it is given
// share them, too. Ids of prompts must be below [Model.Vocab].
func (m *Model) Requests() *schedule.Scheduler { return m.requests }

// hostEngine is the engine, which packs what goes to the host where there is a codec for it.
func (m *Model) hostEngine() cache.Engine {
	if m.packing == nil {
		return m.engine
	}
	return packed{m.engine, m.packing}
}

// hostModel is what the host's memory has of tokens.
func (m *Model) hostModel(model prefix.Model) prefix.Model {
	if p := m.packing; p != nil {
		model.CacheBytes, model.StateBytes = p.KVBytes(), p.StateBytes()
	}
	return model
}

// packed is an engine whose states are in codecs on the host.
type packed struct {
	*exec.Engine
	packing *state.Codecs
}

func (p packed) OffloadState(s *state.DeviceState) (*state.HostState, error) {
	h, err := p.Engine.OffloadState(s)
	if err != nil {
		return nil, err
	}
	return p.packing.EncodeState(h)
}

func (p packed) OffloadKV(r *state.DeviceKV) (*state.HostKV, error) {
	h, err := p.Engine.OffloadKV(r)
	if err != nil {
		return nil, err
	}
	return p.packing.EncodeKV(h)
}

func (p packed) LoadState(h *state.HostState) (*state.DeviceState, error) {
	h, err := p.packing.DecodeState(h)
	if err != nil {
		return nil, err
	}
	return p.Engine.LoadState(h)
}

func (p packed) LoadKV(h *state.HostKV) (*state.DeviceKV, error) {
	h, err := p.packing.DecodeKV(h)
	if err != nil {
		return nil, err
	}
	return p.Engine.LoadKV(h)
}

// keepPrefixes makes a cache.
func (m *Model) keepPrefixes(o Options) (err error) {
	begun := time.Now()
	var origin statefile.Origin
	if o.PrefixCacheDir != "" { // or else nobody asks where states come from
		if origin, err = m.origin(); err != nil {
			return err
		}
	}
	model := prefixModel(m.graph, m.engine)
	model.Grain = cmp.Or(o.grain, model.Grain)
	m.cache, err = cache.New(m.hostEngine(), cache.Options{
		Model:     model,
		HostModel: m.hostModel(model),
		Codecs:    m.packing.String(),
		Capacity:  o.PrefixCache,
		Policy:    o.PrefixPolicy,
		Host:      o.PrefixCacheHost,
		Folder:    o.PrefixCacheDir,
		Origin:    origin,
		Now:       func() float64 { return time.Since(begun).Seconds() },
		Enough:    m.enough,
	})
	if err == nil {
		m.warnOfCapacity(o.PrefixCache)
		m.Warnings = append(m.Warnings, m.cache.Warnings()...)
	}
	return err
}

// idle is an error where options are about a prefix cache that there is not.
func (o *Options) idle() error {
	name := ""
	switch {
	case o.PrefixCache != 0:
	case o.PrefixPolicy != "":
		name = "PrefixPolicy"
	case o.PrefixCacheHost != 0:
		name = "PrefixCacheHost"
	case o.PrefixCacheDir != "":
		name = "PrefixCacheDir"
	}
	if name == "" {
		return nil
	}
	return fmt.Errorf("%s is given, and there is no PrefixCache: say how many bytes it has", name)
}

// warnOfCapacity says where a prefix cache is too small for anything.
func (m *Model) warnOfCapacity(bytes int64) {
	what, least := "the attention cache of a token", m.engine.KVBytes()
	if s := m.engine.StateBytes(); s > 0 {
		what, least = "a state", s
	}
	if bytes < least {
		m.Warnings = append(m.Warnings, fmt.Sprintf("a prefix cache of %d bytes keeps nothing: %s of this model has %d", bytes, what, least))
	}
}

// prefixModel is what the tokens of a sequence cost, as prefix caches count.
func prefixModel(g *graph.Graph, e *exec.Engine) prefix.Model {
	p := g.Prefill()
	return prefix.Model{FLOPsPerToken: p.PerToken, FLOPsPerTokenSquared: p.PerTokenSquared, CacheBytes: e.KVBytes(), StateBytes: e.StateBytes(), Grain: prefix.Grain}
}

// PrefixCache counts what the prefix cache has done, and holds; without one, nothing.
func (m *Model) PrefixCache() PrefixCacheStats {
	if m.cache == nil {
		return PrefixCacheStats{}
	}
	return m.cache.Stats()
}

// PrefixCacheBytes is how many bytes the prefix cache has on the device; 0: there is none.
func (m *Model) PrefixCacheBytes() int64 {
	if m.cache == nil {
		return 0
	}
	return m.cache.Capacity()
}

// PrefixCacheNodes lists what the prefix cache holds on the device, as a tree of numbers.
func (m *Model) PrefixCacheNodes() []PrefixCacheNode {
	if m.cache == nil {
		return nil
	}
	return m.cache.Nodes()
}

// PrefixCacheNode is a node of a prefix cache's tree.
type PrefixCacheNode = cache.Node

// PrefixCacheStats are the counters of a prefix cache, and what it holds.
type PrefixCacheStats = cache.Stats

// limits says what a step may have.
func limits(o Options, e *exec.Engine) schedule.Limits {
	l := stepLimits(&o, e.Slots(), roundedAtCuts(e.States()))
	l.Context, l.PromptShare = e.Context(), o.PromptShare
	l.Quantum, l.Snapshots = quantum, snapshotsPerSlot*e.Slots()
	return l
}

// snapshotsPerSlot is how many states are kept at most for requests without slots.
const snapshotsPerSlot = 2

// quantum is how many tokens a request keeps its slot for. A copy of a state takes about a
// hundredth of the time of a step, so that few are enough.
const quantum = 4

// scoredBytes bounds the logits of prompts' tokens that a step gives, beyond a chunk of the least
// size.
const scoredBytes = 64 << 20

// scoredRows is how many tokens of prompts a step gives logits of.
func scoredRows(l *schedule.Limits, vocab int) int {
	n := scoredBytes / 4 / max(vocab, 1)
	return max(l.Grain, min(n-n%l.Grain, l.Longest()))
}

// roundedAtCuts reports whether a state is kept in 16 bits that a step computes with
// all bits of: every cut of a prompt rounds it. A cache is not, since its rows are read
// as they are kept.
func roundedAtCuts(states []state.Spec) bool {
	for _, s := range states {
		if s.Type.DType != graph.F32 && !s.Type.Ragged() {
			return true
		}
	}
	return false
}

// requestEngine is the model as a scheduler uses it.
type requestEngine struct{ *Model }

func (m requestEngine) Alloc() (int, error) { return m.engine.Alloc() }
func (m requestEngine) Free(slot int) error { return m.engine.Free(slot) }
func (m requestEngine) Step(ctx context.Context, b *exec.Batch, read func(*exec.Results) error) error {
	begun := time.Now()
	err := m.step(ctx, b, read)
	if m.cache != nil && err == nil {
		m.cache.Ran(b, time.Since(begun).Seconds())
	}
	return err
}

// Save copies states to the host, as the ranks hold them. Rows of caches stay in their pages.
func (m requestEngine) Save(slot int) (schedule.Saved, error) {
	states, err := m.engine.CopyState(slot)
	if err != nil {
		return nil, err
	}
	defer states.Free()
	host, err := m.engine.OffloadState(states)
	if err != nil {
		return nil, err
	}
	rows, err := m.engine.ShareKV(slot, 0, states.Tokens)
	if err != nil {
		return nil, err
	}
	return &savedRequest{m.engine, host, rows}, nil
}

// savedRequest is what a request without a slot goes on from.
type savedRequest struct {
	engine *exec.Engine
	states *state.HostState
	rows   *state.DeviceKV
}

func (s *savedRequest) Restore(slot int) error {
	states, err := s.engine.LoadState(s.states)
	if err != nil {
		return err
	}
	defer states.Free()
	return s.engine.Resume(slot, states, s.rows)
}

func (s *savedRequest) Free() { s.rows.Free() }

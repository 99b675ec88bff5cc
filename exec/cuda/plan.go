package cuda

import (
	"fmt"

	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/exec/internal/place"
	"github.com/krait-ml/krait/graph"
	kernels "github.com/krait-ml/krait/kernels/cuda"
	"github.com/krait-ml/krait/lowering"
)

// plan is what a rank issues for batches of some sizes: every launch with its
// parameters, worked out once.
type plan struct {
	rank    *rank
	key     planKey
	last    int // when it was used; see plans
	actions []action
	feeds   []feed
	outputs []output
	choose  *choosing    // instead of outputs; nil: tokens are not chosen
	graph   driver.Graph // the whole, captured; nil: not yet
	used    int          // how often it was issued
}

// action is one thing that goes into a stream.
type action struct {
	kind   lowering.Kind // Launch also for what relayouts launch
	stream lowering.Stream
	event  int
	name   string // of the step, for errors
	fn     driver.Function
	config driver.LaunchConfig
	gemm   *driver.GemmCall // instead of a launch
	meet   *exchange        // of an Exchange
}

// sized is the part of a batch's sizes that decides where tensors lie.
func sized(z graph.Sizes) graph.Sizes {
	return graph.Sizes{Tokens: z.Tokens, Seqs: z.Seqs, Rows: z.Rows}
}

// planKey tells plans apart: the sizes of the batch, and the output that tokens are
// chosen from, counted from 1.
type planKey struct {
	z      graph.Sizes
	choose int
}

// plan finds the plan for a batch, or makes it.
func (r *rank) plan(key planKey) (*plan, error) {
	if p := r.plans.find(key); p != nil {
		return p, nil
	}
	if err := r.plans.makeRoom(); err != nil {
		return nil, err
	}
	p, err := r.build(key, r.s.Steps, true)
	if err != nil {
		return nil, err
	}
	r.plans.put(p)
	return p, nil
}

// initPlan is the plan of what is run once.
func (r *rank) initPlan() (*plan, error) { return r.build(planKey{}, r.s.Init, false) }

// builder makes a plan. What needs memory is counted before launches are made,
// since these hold addresses.
type builder struct {
	*plan
	r       *rank
	z       graph.Sizes
	calls   []call
	scratch int64
	staging int64
}

// call is a step with its tensors.
type call struct {
	step *lowering.Step
	on   kernels.Call
}

func (r *rank) build(key planKey, steps []lowering.Step, whole bool) (*plan, error) {
	z := key.z
	b := &builder{plan: &plan{rank: r, key: key}, r: r, z: z}
	if err := r.reserve(z, whole); err != nil {
		return nil, err
	}
	for i := range steps {
		c := call{step: &steps[i]}
		c.on.Attrs = c.step.Attrs
		c.on.Options = kernels.Options{Math: r.machine.device.Math, Shared: r.gpu.ctx.Device().SharedMax}
		for _, ref := range c.step.Args {
			c.on.Args = append(c.on.Args, r.tensor(ref, z))
		}
		for _, ref := range c.step.Results {
			c.on.Results = append(c.on.Results, r.tensor(ref, z))
		}
		b.calls = append(b.calls, c)
		b.needs(&b.calls[i])
	}
	if err := b.lend(); err != nil {
		return nil, err
	}
	for i := range b.calls {
		if err := b.add(&b.calls[i]); err != nil {
			return nil, fmt.Errorf("%s: %w", b.calls[i].step.Name, err)
		}
	}
	if whole && key.choose > 0 && r.s.Rank == 0 {
		if err := b.chooseTokens(key.choose - 1); err != nil {
			return nil, err
		}
	}
	if whole {
		b.io()
	}
	return b.plan, nil
}

// reserve makes room for a batch; if memory moves, older plans are of no use.
func (r *rank) reserve(z graph.Sizes, whole bool) error {
	if !whole {
		return nil
	}
	moved, err := r.arena.reserve(r.gpu, place.Arena(r.s, z))
	if err != nil {
		return fmt.Errorf("activations: %w", err)
	}
	in, out := r.ioBytes(z)
	for _, f := range []func() (bool, error){
		func() (bool, error) { return r.inputs.reserve(r.gpu, int64(in)) },
		func() (bool, error) { return r.fed.reserve(r.gpu, in) },
		func() (bool, error) { return r.outputs.reserve(r.gpu, out) },
	} {
		m, err := f()
		if err != nil {
			return err
		}
		moved = moved || m
	}
	if moved {
		return r.forget()
	}
	return nil
}

// needs counts the memory that a step needs beside its tensors.
func (b *builder) needs(c *call) {
	switch c.step.Kind {
	case lowering.Launch:
		n := b.kernel(c).Scratch(&c.on)
		if g := b.product(c); g != nil && g.In != driver.F32 {
			n = max(n, int64(g.M*g.K*g.In.Bytes()))
		}
		b.scratch = max(b.scratch, n)
	case lowering.Exchange:
		b.staging = max(b.staging, b.r.stagingBytes(c))
	}
}

func (b *builder) kernel(c *call) kernels.Kernel {
	k, ok := kernels.Kernels[c.step.Op.Name]
	if !ok {
		panic("BUG: CUDA has no kernel for " + c.step.Op.Name)
	}
	return k
}

// lend makes scratch and staging large enough.
func (b *builder) lend() error {
	s, err := b.r.scratch.reserve(b.r.gpu, b.scratch)
	if err != nil {
		return fmt.Errorf("scratch of kernels: %w", err)
	}
	t, err := b.r.staging.reserve(b.r.gpu, b.staging)
	if err != nil {
		return fmt.Errorf("staging of collectives: %w", err)
	}
	if s || t {
		return b.r.forget()
	}
	return nil
}

// tensor is where a tensor lies for a batch.
func (r *rank) tensor(ref lowering.Ref, z graph.Sizes) kernels.Tensor {
	o := place.NewOperand(r.s, ref)
	o.Resize(z, r.machine.slots, r.machine.room)
	b := &r.s.Buffers[ref.Buffer]
	base := r.memory[ref.Buffer]
	switch {
	case place.InArena(b):
		at, _ := place.At(r.s, b, z)
		base = r.arena.ptr + driver.Ptr(at)
	case b.Space == lowering.State:
		base = r.states + driver.Ptr(b.Offset)
	case b.Space == lowering.Input:
		base = r.inputs.ptr + driver.Ptr(r.inputAt(ref.Buffer, z))
	}
	return kernels.Tensor{Tensor: o.Tensor, Ptr: uint64(base) + uint64(o.Offset*o.DType.Bytes())}
}

// add appends what a step issues.
func (b *builder) add(c *call) error {
	switch c.step.Kind {
	case lowering.Record, lowering.Wait:
		b.actions = append(b.actions, action{kind: c.step.Kind, stream: c.step.Stream, event: c.step.Event})
		return nil
	case lowering.Exchange:
		x, err := b.r.exchange(c)
		if err != nil {
			return err
		}
		b.actions = append(b.actions, action{kind: lowering.Exchange, stream: lowering.Comm, name: c.step.Name, meet: x})
		return nil
	case lowering.Relayout:
		return b.launches(c.step.Name, c.step.Stream, b.r.relayout(c))
	}
	if c.on.Results[0].Rows() == 0 || c.on.Results[0].Cols == 0 {
		return nil
	}
	c.on.Scratch = uint64(b.r.scratch.ptr)
	if g := b.product(c); g != nil {
		return b.gemm(c, g)
	}
	list, err := b.kernel(c).Launches(&c.on)
	if err != nil {
		return err
	}
	return b.launches(c.step.Name, c.step.Stream, list)
}

// launches appends launches of kernels.
func (b *builder) launches(name string, s lowering.Stream, list []kernels.Launch) error {
	more, err := b.r.actions(name, s, list)
	b.actions = append(b.actions, more...)
	return err
}

// actions are launches of kernels as actions.
func (r *rank) actions(name string, s lowering.Stream, list []kernels.Launch) ([]action, error) {
	var out []action
	for i := range list {
		l := &list[i]
		f, err := r.gpu.function(l)
		if err != nil {
			return nil, err
		}
		out = append(out, action{kind: lowering.Launch, stream: s, name: name, fn: f,
			config: driver.LaunchConfig{Grid: l.Grid, Block: l.Block, Shared: l.Shared, Params: l.Params}})
	}
	return out, nil
}

// decodes reports whether a batch is worth a captured graph: a token per sequence.
func (p *plan) decodes() bool {
	return p.key.z.Seqs > 0 && p.key.z.Tokens == p.key.z.Seqs
}

func (p *plan) close() error {
	if p.graph == nil {
		return nil
	}
	return p.graph.Close()
}

package cuda

import (
	"slices"

	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/graph"
	kernels "github.com/krait-ml/krait/kernels/cuda"
	"github.com/krait-ml/krait/lowering"
)

// builder makes a program.
type builder struct {
	*program
	r    *rank
	z    graph.Sizes
	done *call // the norm that the last collective has done as well
}

// programs returns the programs of the GPU's ranks, building those that are missing. Memory for all
// ranks is reserved first: programs hold addresses, also of each other's memory.
func (g *gpu) programs(key programKey) ([]*program, error) {
	known := true
	for _, r := range g.ranks {
		known = known && r.programs.find(key) != nil
	}
	if !known {
		if err := g.reserve(key); err != nil {
			return nil, err
		}
	}
	var list []*program
	for _, r := range g.ranks {
		p, err := r.program(key)
		if err != nil {
			return nil, r.where(err)
		}
		list = append(list, p)
	}
	return list, nil
}

// reserve grows the memory of all ranks for a program. If some of it moves, older programs are
// dropped.
func (g *gpu) reserve(key programKey) error {
	moved := false
	for _, r := range g.ranks {
		m, err := r.reserve(r.needs(key))
		if err != nil {
			return r.where(err)
		}
		moved = moved || m
	}
	if moved {
		return g.forget()
	}
	return nil
}

// program returns a rank's program, building it if needed. Its memory is reserved.
func (r *rank) program(key programKey) (*program, error) {
	if p := r.programs.find(key); p != nil {
		return p, nil
	}
	if err := r.programs.makeRoom(); err != nil {
		return nil, err
	}
	p, err := r.build(key)
	if err == nil && !key.once {
		r.programs.put(p)
	}
	return p, err
}

func (r *rank) build(key programKey) (*program, error) {
	b := &builder{program: &program{rank: r, key: key}, r: r, z: key.z}
	err := r.each(key, func(c *call) error {
		from := len(b.actions)
		err := b.add(c)
		for i := from; i < len(b.actions); i++ {
			b.actions[i].step = c.step
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	b.depend()
	if key.once {
		return b.program, nil
	}
	b.io()
	return b.program, nil
}

// add appends the actions of a step.
func (b *builder) add(c *call) error {
	switch c.step.Kind {
	case lowering.Record, lowering.Wait:
		b.actions = append(b.actions, action{kind: c.step.Kind, stream: c.step.Stream, event: c.step.Event})
		return nil
	case lowering.Collective:
		if list, norm := b.r.overPeersWithNorm(c); norm != nil {
			b.done = norm
			return b.launches(c.step.Name, c.step.Stream, list)
		}
		if list, ours, err := b.r.overPeers(c); ours || err != nil {
			if err != nil {
				return err
			}
			return b.launches(c.step.Name, c.step.Stream, list)
		}
		x, err := b.r.collective(c)
		if err != nil {
			return err
		}
		b.actions = append(b.actions, action{kind: lowering.Collective, stream: c.step.Stream, name: c.step.Name, with: x})
		return nil
	case lowering.Relayout:
		return b.launches(c.step.Name, c.step.Stream, b.r.relayout(c))
	}
	if c == b.done {
		return nil
	}
	if c.on.Results[0].Cols == 0 || !slices.ContainsFunc(c.on.Results, func(t kernels.Tensor) bool { return t.Rows() > 0 }) {
		return nil
	}
	if !hasKernel(c.step) {
		b.onHost(c)
		return nil
	}
	c.on.Scratch, c.on.Arrivals = uint64(b.r.scratch.ptr), uint64(b.r.arrivals)
	if err := b.keep(c); err != nil {
		return err
	}
	return b.r.kinds(b.key, c, func(again int) error {
		for _, part := range c.kernel().Parts(&c.on) {
			if err := b.again(c, &part, again); err != nil {
				return err
			}
		}
		return nil
	})
}

// again appends a part, and where it reads segments once for each of their tables.
func (b *builder) again(c *call, part *kernels.Part, tables int) error {
	seg := segmentsOf(part.Call)
	if seg < 0 {
		return b.part(c, part)
	}
	table := &part.Args[seg].Ptr
	defer func(first uint64) { *table = first }(*table)
	for range tables {
		if err := b.part(c, part); err != nil {
			return err
		}
		*table += uint64(b.key.tableSize())
	}
	return nil
}

// part appends one of the operations by which a step is done.
func (b *builder) part(c *call, part *kernels.Part) error {
	if g := b.r.product(c, part); g != nil {
		return b.gemm(c, part, g)
	}
	list, err := part.Launches(part.Call)
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

// dependentRows is the most tokens of a step with dependent launches. In longer prompts, waiting
// blocks take the room of others, and gather on the multiprocessors that end first.
const dependentRows = 128

// depend marks launches for programmatic dependent launch (PDL) that come right after another
// launch in their stream, in steps of up to dependentRows tokens. An action after an event, a
// product of cuBLAS or a collective of NCCL begins when all before it has ended.
func (b *builder) depend() {
	if b.z.Tokens > dependentRows {
		return
	}
	after := map[lowering.Stream]bool{} // a launch is the last in the stream
	for i := range b.actions {
		a := &b.actions[i]
		launch := a.fn != nil
		a.config.Dependent = launch && a.waits && after[a.stream]
		after[a.stream] = launch
	}
}

// actions returns the actions that launch kernels.
func (r *rank) actions(name string, s lowering.Stream, list []kernels.Launch) ([]action, error) {
	var out []action
	for i := range list {
		l := &list[i]
		f, err := r.gpu.function(l)
		if err != nil {
			return nil, err
		}
		out = append(out, action{kind: lowering.Launch, stream: s, name: name, fn: f, waits: r.gpu.waits(l),
			config: driver.LaunchConfig{Grid: l.Grid, Block: l.Block, Shared: l.Shared, Params: l.Params, For: name}})
	}
	return out, nil
}

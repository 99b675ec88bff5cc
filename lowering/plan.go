package lowering

import (
	"errors"
	"slices"

	"github.com/krait-ml/krait/graph"
)

// Plan says what schedules take, without running them.
type Plan struct {
	Ranks       []RankPlan
	Collectives []CollectivePlan // of one step, in order; the same for all ranks
	RowPlace    graph.PlaceKind  // see [Schedule.RowPlace]
	RowRanks    int              // see [Schedule.RowRanks]
	Mesh        graph.Mesh       // zero: all ranks are along one axis
	Stages      []StagePlan      // pipeline stages; nil: there is one
}

// StagePlan is what a pipeline stage has.
type StagePlan struct {
	Blocks []string // layers.N, in their order
	// Shared is the bytes of parameters that other stages have, too, such as those of a shared block,
	// or of an embedding that is the head as well, on the stage's first rank.
	Shared int64
	// Passed is the bytes that a rank sends to the next stage.
	Passed graph.Poly
}

// RankPlan is what one rank needs.
type RankPlan struct {
	Weights   int64      // bytes of parameters, in the format that the graph has them
	Constants int64      // bytes of what is computed from parameters once
	State     int64      // bytes per slot
	Cache     int64      // bytes per slot and token of its sequence
	Trial     int64      // bytes per trial of a few tokens: see [Schedule.TrialBytes]
	Arena     graph.Poly // bytes of activations at their peak, for a batch
	// Per step of a batch that wants tokens, and no other output; of all outputs where
	// the graph has no tokens.
	Launches    int // kernels
	Copies      int // steps that only move data
	Collectives int
	// PeerNorms counts the kernels that the launch of an all_reduce does as well where ranks sum
	// over peer memory.
	PeerNorms int
}

// CollectivePlan is one collective of a step.
type CollectivePlan struct {
	Name  string // of its first result
	Kind  string // the name of the operation: all_reduce
	Block string // layers.N, "" outside of all
	Stage int    // the pipeline stage whose ranks run it, or send
	Along string // the axis of the mesh that it runs along, "" where all ranks of a stage take part
	// Elems and Bytes are the payload: each operand whole and once.
	Elems, Bytes graph.Poly
	// Sent is what all ranks together send in a ring: [graph.Sent].
	Sent  graph.Poly
	ranks int
}

// SentPerRank is the bytes that a rank sends for a batch, on average where shards are uneven.
func (c *CollectivePlan) SentPerRank(z graph.Sizes) float64 {
	if c.Kind == Send.Name || c.Kind == SendStates.Name || c.Kind == ReceiveStates.Name { // one sends all
		return c.Sent.Float(z)
	}
	return c.Sent.Float(z) / float64(c.ranks)
}

// Sent is the bytes that a rank sends for a batch, of the stage where that is most.
func (p *Plan) Sent(z graph.Sizes) int64 {
	var sums [graph.MaxMesh]float64
	for i := range p.Collectives {
		sums[p.Collectives[i].Stage] += p.Collectives[i].SentPerRank(z)
	}
	return int64(slices.Max(sums[:]))
}

// NewPlan works out the plan of the schedules of all ranks. Schedules of which
// there are none, or that do not have the same collectives, are an error.
func NewPlan(schedules []*Schedule) (*Plan, error) {
	if len(schedules) == 0 {
		return nil, errors.New("there is no schedule")
	}
	if err := sameCollectives(schedules); err != nil {
		return nil, err
	}
	p := &Plan{RowPlace: schedules[0].RowPlace(), RowRanks: schedules[0].RowRanks(), Mesh: schedules[0].Mesh, Stages: planStages(schedules)}
	for _, s := range schedules {
		p.Ranks = append(p.Ranks, s.plan())
	}
	for _, s := range schedules {
		if s.Rank > 0 || s.Replica > 0 {
			continue
		}
		for _, st := range s.collectives() {
			if st.Op != Receive {
				p.Collectives = append(p.Collectives, s.planExchange(st))
			}
		}
	}
	return p, nil
}

func (s *Schedule) plan() RankPlan {
	r := RankPlan{Weights: s.Bytes[Param], Constants: s.Bytes[Constant], State: s.Bytes[State], Cache: s.Bytes[Cache], Trial: s.TrialBytes()}
	for space := PerToken; space <= Fixed; space++ {
		r.Arena = r.Arena.Plus(s.Count(space).Times(graph.Const(s.Bytes[space])))
	}
	wanted := s.chosen()
	for i, st := range s.Steps {
		if !wanted.Needs(st.For) {
			continue
		}
		if _, ok := s.Then(i); ok {
			r.PeerNorms++
		}
		switch st.Kind {
		case Launch:
			r.Launches++
		case Relayout:
			r.Copies++
		case Collective:
			r.Collectives++
		}
	}
	return r
}

func (s *Schedule) planExchange(st *Step) CollectivePlan {
	c := CollectivePlan{Name: st.Name, Kind: st.Op.Name, Block: graph.BlockOf(st.Name), Stage: s.Stage, Along: st.Attrs.Text(alongAttr), ranks: s.Group(st).Size}
	types := s.Payload(st)
	c.Elems, c.Bytes = graph.Payload(types...)
	for _, t := range types {
		c.Sent = c.Sent.Plus(graph.Sent(st.Op, t, c.ranks))
	}
	return c
}

// InPlace is the bytes of parameters that are one run of the whole, so that the CPU finds them in
// the checkpoint's file: those that are split along rows, or not at all. It copies the others.
func (s *Schedule) InPlace() (n int64) {
	for i := range s.Buffers {
		b := &s.Buffers[i]
		if b.Space == Param && (b.Type.Layout.Kind == graph.Replicated || b.Type.Layout.Axis == 0 && s.inOneRun(b.Type)) {
			n += b.Bytes
		}
	}
	return n
}

// inOneRun reports whether what the rank has of a parameter is one run of its first axis.
func (s *Schedule) inOneRun(t graph.Type) bool {
	share, ranks, at := s.Share(t)
	return len(share.Extents(nil, ranks, at)) == 1
}

// planStages is what the stages have, if there are several.
func planStages(schedules []*Schedule) (list []StagePlan) {
	if schedules[0].Mesh.Along(graph.PP) == 1 {
		return nil
	}
	users := map[string]int{} // stages by parameter
	var first []*Schedule
	for _, s := range schedules {
		if s.Rank == 0 && s.Replica == 0 {
			first = append(first, s)
			s.eachParam(func(b *Buffer) { users[b.Name]++ })
		}
	}
	for _, s := range first {
		x := StagePlan{}
		s.eachParam(func(b *Buffer) {
			if users[b.Name] > 1 {
				x.Shared += b.Bytes
			}
		})
		for i := range s.Steps {
			st := &s.Steps[i]
			if st.Op == Send {
				c := s.planExchange(st)
				x.Passed = x.Passed.Plus(c.Sent)
			}
			if b := graph.BlockOf(st.Name); b != "" && st.Kind == Launch && !slices.Contains(x.Blocks, b) {
				x.Blocks = append(x.Blocks, b)
			}
		}
		list = append(list, x)
	}
	return list
}

func (s *Schedule) eachParam(f func(b *Buffer)) {
	for i := range s.Buffers {
		if b := &s.Buffers[i]; b.Space == Param {
			f(b)
		}
	}
}

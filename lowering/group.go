package lowering

import (
	"fmt"

	"github.com/krait-ml/krait/graph"
)

// Group is the ranks that take part in a collective: Size of them from First on, Stride apart.
type Group struct{ First, Stride, Size int }

// At is the i-th rank of the group.
func (g Group) At(i int) int { return g.First + i*g.Stride }

// Index is the place of a rank in the group; -1: it is not there.
func (g Group) Index(rank int) int {
	for i := range g.Size {
		if g.At(i) == rank {
			return i
		}
	}
	return -1
}

// Send and Receive are a collective of two: a rank of a pipeline stage sends tensors, as it has
// them, to the rank of the next stage that has the same share. They are steps of schedules, and no
// operations of a graph: only lowering cuts a graph in stages.
var (
	Send    = &graph.Op{Name: "send", Doc: "tensors go to the next stage", Class: graph.Collective, Variadic: true}
	Receive = &graph.Op{Name: "receive", Doc: "tensors come from the stage before", Class: graph.Collective, Variadic: true}
)

// between reports whether a step passes tensors between stages.
func (st *Step) between() bool { return st.Op == Send || st.Op == Receive }

// alongAttr is the attribute of a collective that runs along one axis of a mesh of several.
const alongAttr = "along"

// World is the rank's number among the ranks of all stages and replicas, as the mesh numbers them.
func (s *Schedule) World() int {
	return s.Rank + s.Ranks*(s.Stage+s.Mesh.Along(graph.PP)*s.Replica)
}

// Worlds is the number of ranks of all stages and replicas.
func (s *Schedule) Worlds() int {
	return s.Ranks * s.Mesh.Along(graph.PP) * s.Mesh.Along(graph.DP)
}

// Last reports whether the rank is of the last stage, which has the outputs.
func (s *Schedule) Last() bool { return s.Stage == s.Mesh.Along(graph.PP)-1 }

// Group is the ranks of the world that take part in a collective of the schedule: those along the
// axis that it names; those of the stage where it names none; or the sender and the receiver.
func (s *Schedule) Group(st *Step) Group {
	me := s.World()
	switch {
	case st.chained():
		return s.turnGroup(st)
	case st.Op == Send:
		return Group{me, s.Ranks, 2}
	case st.Op == Receive:
		return Group{me - s.Ranks, s.Ranks, 2}
	}
	if name := st.Attrs.Text(alongAttr); name != "" {
		for a := graph.TP; a <= graph.CP; a++ {
			if a.String() == name {
				list := s.Mesh.Group(me, a)
				return Group{list[0], list[min(1, len(list)-1)] - list[0], len(list)}
			}
		}
	}
	return Group{me - s.Rank, 1, s.Ranks}
}

// Payload lists the types of what a collective moves: values as they are over the ranks that take
// part, which may have but a share of them, or as the rank has them, of what passes between stages.
func (s *Schedule) Payload(st *Step) []graph.Type {
	types := typesOf(st.Args)
	if st.chained() {
		types = types[:len(types)-1]
	}
	if st.between() {
		types = append(types, typesOf(st.Results)...)
	}
	for i, t := range types {
		if st.between() || st.chained() {
			types[i] = s.Local(t)
		} else {
			types[i], _, _ = s.ShareOf(st, t)
		}
	}
	return types
}

// Giver is the schedule whose rank returns the outputs of a step: of the ranks of the first
// replica, the first of the last stage.
func Giver(schedules []*Schedule) *Schedule {
	for _, s := range schedules {
		if s.Last() {
			return s
		}
	}
	return schedules[0]
}

// placeText is how the first line of schedule text says where on a mesh the rank is.
func (s *Schedule) placeText() string {
	if s.Mesh == (graph.Mesh{}) {
		return ""
	}
	return fmt.Sprintf(" mesh=%s stage=%d replica=%d", s.Mesh, s.Stage, s.Replica)
}

// checkMesh: the rank is on its mesh.
func (s *Schedule) checkMesh() error {
	m := s.Mesh
	if m == (graph.Mesh{}) && s.Stage == 0 && s.Replica == 0 {
		return nil
	}
	if n := m.Along(graph.TP) * m.Along(graph.CP); n != s.Ranks || s.Stage < 0 || s.Stage >= m.Along(graph.PP) || s.Replica < 0 || s.Replica >= m.Along(graph.DP) {
		return fmt.Errorf("there is no stage %d of %d ranks and replica %d on the mesh %s", s.Stage, s.Ranks, s.Replica, m)
	}
	return nil
}

// passing is the step that sends or receives tensors. Its name is that of the first of them, and
// says between which stages they pass.
func (s *Schedule) passing(op *graph.Op, list []Ref, on Stream) Step {
	st := Step{Kind: Collective, Stream: on, Op: op}
	to, way := s.Stage+1, "sent_to"
	if st.Args = list; op == Receive {
		st.Args, st.Results = nil, list
		to, way = s.Stage, "received_in"
	}
	name := op.Name
	if len(list) > 0 {
		name = list[0].Name
	}
	st.Name = fmt.Sprintf("%s.%s_%d", name, way, to)
	return st
}

// checkPassing: a stage sends to one after it, and receives from one before it.
func (s *Schedule) checkPassing(st *Step) error {
	switch {
	case st.Kind != Collective || st.Stream != Comm || st.Loop != 0:
		return fmt.Errorf("%s is on the %s stream; it must be on %s, in no loop", st, st.Stream, Comm)
	case st.Op == Send && (len(st.Args) == 0 || len(st.Results) > 0) || st.Op == Receive && (len(st.Results) == 0 || len(st.Args) > 0):
		return fmt.Errorf("%s: %d operands and %d results", st, len(st.Args), len(st.Results))
	case st.Op == Send && s.Last() || st.Op == Receive && s.Stage == 0:
		return fmt.Errorf("%s: there is no stage beyond %d of %d", st, s.Stage, s.Mesh.Along(graph.PP))
	}
	return nil
}

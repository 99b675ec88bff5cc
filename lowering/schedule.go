// Package lowering turns a graph into a schedule per rank: the steps that the
// rank runs, and where in memory every tensor lies.
//
// Sizes that depend on the batch stay symbolic: the arena has one region per
// symbol (tokens, sequences, rows) that is planned for a count of one, so that
// binding a batch is a multiplication. A schedule prints as text.
package lowering

import (
	"fmt"
	"strings"

	"github.com/krait-ml/krait/graph"
)

// Space says in which memory a buffer is.
type Space uint8

// The spaces.
const (
	Param    Space = iota // the checkpoint
	State                 // a row per slot, kept between steps
	Input                 // given with each batch
	Constant              // computed once from parameters
	PerToken              // in the arena, Offset and Bytes per token
	PerSeq                // in the arena, per sequence
	PerRow                // in the arena, per wanted row
	Fixed                 // in the arena, one for the batch
)

var spaceNames = [...]string{"param", "state", "input", "constant", "token", "seq", "row", "fixed"}

// String is the name of the space in schedule text.
func (s Space) String() string { return spaceNames[s] }

// Schedule is what one rank runs.
type Schedule struct {
	Name    string
	Rank    int
	Ranks   int
	Buffers []Buffer
	Init    []Step // once, when the weights are there
	Steps   []Step // for every batch
	Outputs []Output
	// Bytes is the size of each region: for the spaces of the arena, the peak
	// of what is live per token, sequence or row.
	Bytes [len(spaceNames)]int64
}

// Buffer is a tensor in memory.
type Buffer struct {
	Value  *graph.Value // its name and type; for parameters and state what the rank has of it
	Space  Space
	Offset int64 // bytes into the region, times the count of the space
	Bytes  int64 // likewise; for state, per slot
}

// Ref is a tensor as a step sees it: a buffer or a view of one.
type Ref struct {
	Buffer int
	Offset int // elements from the beginning of the buffer
	Stride int // elements from one entry of the first axis to the next
	Dims   []graph.Dim
}

// Step launches one kernel.
type Step struct {
	Name    string // of the first result, for errors and profiles
	Op      *graph.Op
	Attrs   graph.Attrs
	Args    []Ref
	Results []Ref
	Cost    graph.Cost
}

// Output is a value that the caller gets after a step.
type Output struct {
	Name string
	Ref  Ref
}

// String writes the schedule as text: buffers, then steps.
func (s *Schedule) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "schedule %q rank=%d ranks=%d\n", s.Name, s.Rank, s.Ranks)
	for i, bytes := range s.Bytes {
		if bytes > 0 {
			fmt.Fprintf(&b, "region %s %d bytes\n", Space(i), bytes)
		}
	}
	for _, buf := range s.Buffers {
		fmt.Fprintf(&b, "buffer %s %s+%d %d bytes : %s\n", buf.Value.Name, buf.Space, buf.Offset, buf.Bytes, buf.Value.Type)
	}
	for _, st := range s.Init {
		b.WriteString("init " + s.stepText(st))
	}
	for _, st := range s.Steps {
		b.WriteString("step " + s.stepText(st))
	}
	for _, o := range s.Outputs {
		fmt.Fprintf(&b, "output %s = %s\n", o.Name, s.refText(o.Ref))
	}
	return b.String()
}

func (s *Schedule) stepText(st Step) string {
	var b strings.Builder
	for i, r := range st.Results {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(s.refText(r))
	}
	fmt.Fprintf(&b, " = %s", st.Op.Name)
	for i, r := range st.Args {
		b.WriteString([]string{" ", ", "}[min(i, 1)] + s.refText(r))
	}
	return b.String() + "\n"
}

// refText writes a view as name[offset:stride].
func (s *Schedule) refText(r Ref) string {
	v := s.Buffers[r.Buffer].Value
	if r.Offset == 0 && r.Stride == rowElems(v.Type.Dims) {
		return v.Name
	}
	return fmt.Sprintf("%s[%d:%d]", v.Name, r.Offset, r.Stride)
}

// rowElems is the number of elements below the first axis, whose size may be a
// symbol.
func rowElems(dims []graph.Dim) int {
	n := 1
	for i, d := range dims {
		if i > 0 {
			n *= d.Len()
		}
	}
	return n
}

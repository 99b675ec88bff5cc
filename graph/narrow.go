package graph

import "fmt"

// Narrow says in which batches a device may keep a value of f32 in bf16 between two kernels: the
// pass formats decides, by what the kernels take. Only batches with more than [NarrowRows] rows of
// the value count: others have kernels for few rows, which take f32.
type Narrow uint8

// The batches in which a value is in bf16.
const (
	NarrowNever   Narrow = iota
	NarrowPrompts        // those in which some sequence has several tokens
	NarrowAlways         // those, and those in which every sequence has one token
)

// NarrowRows is the number of rows up to which every value is in the format of its type.
const NarrowRows = 32

var narrowTexts = [...]string{"", "bf16 in prompts", "bf16"}

// String is what graph and schedule text say after "as": nothing of NarrowNever.
func (n Narrow) String() string { return narrowTexts[n] }

// ParseNarrow is the inverse of [Narrow.String].
func ParseNarrow(text string) (Narrow, error) {
	for n, known := range narrowTexts {
		if text == known {
			return Narrow(n), nil
		}
	}
	return 0, fmt.Errorf("a value is kept as %q; it may be as %s, or as %s", text, NarrowAlways, NarrowPrompts)
}

// In reports whether the value is in bf16 in a batch with that many rows of it.
func (n Narrow) In(rows int64, z Sizes) bool {
	return rows > NarrowRows && (n == NarrowAlways || n == NarrowPrompts && z.Tokens != z.Seqs)
}

// narrow reads what may follow a type.
func (s *scanner) narrow() Narrow {
	switch {
	case !s.eat("as bf16"):
		return NarrowNever
	case s.eat("in prompts"):
		return NarrowPrompts
	}
	return NarrowAlways
}

// checkNarrow checks that only kernels have a value in bf16, and that a view has the format of what
// it is a view of.
func checkNarrow(g *Graph, n *Node) error {
	for i, v := range n.Args {
		switch {
		case n.Op.Class == View && v.Narrow != n.Results[0].Narrow:
			return fmt.Errorf("operand %d (%s) is kept %s, and the view %s is not", i, v.Name, orTyped(v.Narrow), orTyped(n.Results[0].Narrow))
		case v.Narrow != NarrowNever && n.Op.Class != View && n.Op.Class != Compute:
			return fmt.Errorf("operand %d (%s) is kept as %s, which only kernels take", i, v.Name, v.Narrow)
		}
	}
	for _, v := range n.Results {
		switch {
		case v.Narrow == NarrowNever:
		case g.Stage != FusedStage:
			return fmt.Errorf("%s is kept as %s, which is decided at stage fused, and the graph is %s", v.Name, v.Narrow, g.Stage)
		case v.Type.DType != F32 || n.Op.Class != View && n.Op.Class != Compute:
			return fmt.Errorf("%s is kept as %s; only values in f32 that a kernel writes may be", v.Name, v.Narrow)
		}
	}
	return nil
}

func orTyped(n Narrow) string {
	if n == NarrowNever {
		return "as its type says"
	}
	return "as " + n.String()
}

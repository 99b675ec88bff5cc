package graph

import "fmt"

// Narrow says in which batches a device may keep a value of f32 in bf16 between two kernels, or
// in pieces: three bf16 for each number, whose sum it is, as products by weights in bf16 take
// them. The pass formats decides, by what the kernels take. Only batches with more than
// [NarrowRows] rows of the value count, or [PiecesRows]: others have kernels for few rows, which
// take f32.
type Narrow uint8

// The batches in which a value is in bf16, or in pieces.
const (
	NarrowNever   Narrow = iota
	NarrowPrompts        // those in which some sequence has several tokens
	NarrowAlways         // those, and those in which every sequence has one token
	PiecesPrompts        // likewise
	PiecesAlways
)

// NarrowRows is the number of rows up to which every value is in the format of its type, and
// PiecesRows that up to which none is in pieces.
const (
	NarrowRows = 32
	PiecesRows = 128
)

var narrowTexts = [...]string{"", "bf16 in prompts", "bf16", "pieces in prompts", "pieces"}

// String is what graph and schedule text say after "as": nothing of NarrowNever.
func (n Narrow) String() string { return narrowTexts[n] }

// ParseNarrow is the inverse of [Narrow.String].
func ParseNarrow(text string) (Narrow, error) {
	for n, known := range narrowTexts {
		if text == known {
			return Narrow(n), nil
		}
	}
	return 0, fmt.Errorf("a value is kept as %q; it may be as %s or as %s, each also in prompts", text, NarrowAlways, PiecesAlways)
}

// InPieces reports whether the value is in pieces, and not in bf16.
func (n Narrow) InPieces() bool { return n >= PiecesPrompts }

// Bytes is what a number takes where it is so.
func (n Narrow) Bytes() int {
	switch {
	case n == NarrowNever:
		return F32.Bytes()
	case n.InPieces():
		return 3 * BF16.Bytes()
	}
	return BF16.Bytes()
}

// Room is what to reserve for a value that takes some bytes in f32, as which few rows are.
func (n Narrow) Room(bytes int64) int64 {
	return max(bytes, bytes/int64(F32.Bytes())*int64(n.Bytes()))
}

// In reports whether the value is in bf16, or in pieces, in a batch with that many rows of it.
func (n Narrow) In(rows int64, z Sizes) bool {
	least := int64(NarrowRows)
	if n.InPieces() {
		least = PiecesRows
	}
	always := n == NarrowAlways || n == PiecesAlways
	return n != NarrowNever && rows > least && (always || z.Tokens != z.Seqs)
}

// narrow reads what may follow a type.
func (s *scanner) narrow() Narrow {
	for _, n := range [...]Narrow{NarrowAlways, PiecesAlways} {
		switch {
		case !s.eat("as " + n.String()):
		case s.eat("in prompts"):
			return n - 1
		default:
			return n
		}
	}
	return NarrowNever
}

// checkNarrow checks that only kernels have a value in bf16 or in pieces, and that a view has the
// format of what it is a view of.
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

// Package lowering turns a graph into a schedule per rank: the steps that the
// rank runs, on which stream, and where in memory every tensor lies.
//
// Sizes that depend on the batch stay symbolic: the arena has one region per symbol (tokens,
// sequences, rows) that is planned for a count of one, so that binding a batch is a multiplication.
// A schedule prints as text and is parsed from it, checks itself ([Schedule.Check]), and says
// without running what it takes ([NewPlan]).
package lowering

import (
	"fmt"

	"github.com/krait-ml/krait/graph"
)

// Space says in which memory a buffer is.
type Space uint8

// The spaces.
const (
	Param    Space = iota // the checkpoint
	State                 // kept between steps: a slot's states are one run, Offset and Bytes of it
	Cache                 // likewise, but each by itself: rows per slot, one for each of its tokens
	Input                 // given with each batch
	Constant              // computed once from parameters
	PerToken              // in the arena, Offset and Bytes per token
	PerSeq                // in the arena, per sequence
	PerRow                // in the arena, per wanted row
	// Likewise, where a rank has a share of them: per one of the largest share.
	PerTokenShare
	PerSeqShare
	PerRowShare
	PerLargest // tokens of whole sequences
	// Tokens of a piece, or a share of them: what follows the region of all tokens, or of a
	// share. Offsets below 0 are in that one, where it is free.
	PerPiece
	PerPieceShare
	Fixed // in the arena, one for the batch
)

var spaceNames = [...]string{"param", "state", "cache", "input", "constant", "token", "seq", "row",
	"token_share", "seq_share", "row_share", "sequence_share", "piece", "piece_share", "fixed"}

// String is the name of the space in schedule text.
func (s Space) String() string { return spaceNames[s] }

// OfPiece reports whether what lies there has room for a piece of the batch.
func (s Space) OfPiece() bool { return s == PerPiece || s == PerPieceShare }

// Before is the region that the one of pieces follows; other spaces are their own.
func (s Space) Before() Space {
	switch s {
	case PerPiece:
		return PerToken
	case PerPieceShare:
		return PerTokenShare
	}
	return s
}

// Place is where a buffer lies, for a count of one: the region of pieces goes on where the
// one before it ends.
func (s *Schedule) Place(b *Buffer) (region Space, at int64) {
	if region = b.Space.Before(); region != b.Space {
		return region, s.Bytes[region] + b.Offset
	}
	return region, b.Offset
}

// aligned reports whether buffers of the space begin at multiples of a cache line:
// weights lie as the file has them, inputs and caches by themselves.
func (s Space) aligned() bool { return s != Param && s != Input && s != Cache }

// Count is how often a region repeats: a symbol, a share of one, a number of it at most, or once.
func (s *Schedule) Count(space Space) graph.Poly {
	ranks := s.Ranks
	switch space {
	case PerToken:
		return graph.Var(graph.Tokens)
	case PerSeq:
		return graph.Var(graph.Seqs)
	case PerRow:
		return graph.Var(graph.Rows)
	case PerTokenShare:
		return graph.Share(graph.Tokens, ranks)
	case PerSeqShare:
		return graph.Share(graph.Seqs, ranks)
	case PerRowShare:
		return graph.Share(graph.Rows, ranks)
	case PerLargest:
		return graph.Var(graph.Largest)
	case PerPiece:
		return graph.AtMost(graph.Tokens, s.PieceTokens)
	case PerPieceShare:
		return graph.ShareAtMost(graph.Tokens, ranks, s.PieceTokens)
	}
	return graph.Const(1)
}

// Stream is a queue of steps. Steps of one stream run in order; steps of
// different streams run at the same time unless events order them.
type Stream uint8

// The streams.
const (
	Compute Stream = iota // kernels
	Comm                  // collectives
)

const numStreams = 2

var streamNames = [numStreams]string{"compute", "comm"}

// String is the name of the stream in schedule text.
func (s Stream) String() string { return streamNames[s] }

// Schedule is what one rank runs. The streams may run the steps in any order
// that streams and events allow; the order of Steps is one of them.
type Schedule struct {
	Name string
	// Rank is the rank's number among the Ranks that have shares of the same values: all, or those
	// of its stage and replica on a mesh.
	Rank, Ranks int
	// Mesh is empty where all ranks have shares of the same values.
	Mesh           graph.Mesh
	Stage, Replica int // the rank's place along [graph.PP] and [graph.DP]

	Buffers []Buffer
	Init    []Step // once, when the weights are there; on the compute stream
	Steps   []Step // for every batch
	Outputs []Output
	// PieceTokens is how many tokens a piece has at most, of which loops run one after
	// another; 0: there are no loops.
	PieceTokens int
	// Bytes is the size of each region: for the spaces of the arena, the peak of what is live per
	// token, sequence or row; for states what a slot takes, for caches what a token of one does.
	Bytes [len(spaceNames)]int64
}

// Buffer is a tensor in memory.
type Buffer struct {
	Name    string         // of the value
	Type    graph.Type     // over all ranks; the rank has its share
	Storage *graph.Storage // parameters: where the checkpoint has it
	Part    *graph.Part    // states and caches: the field that it is of a state of the model; nil: all of it
	Space   Space
	Offset  int64 // bytes into the region, times the count of the space
	// Narrow says in which batches a device keeps the tensor in bf16 or in pieces; there is room for
	// f32 always, since few rows are in f32.
	Narrow graph.Narrow
	Bytes  int64 // of the rank's share, likewise; for state, per slot; for a cache, per slot and token
	// For lists the outputs, by their index, that an input is there for: it is not asked
	// for where a batch wants none of them; nil: every batch has it.
	For []int
}

// State is the name and the type of the model's state that a buffer of state is, or is a part of.
func (b *Buffer) State() (name string, t graph.Type) {
	return stateOf(b.Name, b.Type, b.Part)
}

// Pieces says where in a row of the model's state a rank's row of the buffer is.
func (s *Schedule) Pieces(b *Buffer) graph.Pieces {
	share, ranks, at := s.Share(b.Type)
	return pieces(share, b.Part, ranks, at)
}

// Ref is a tensor as a step sees it: a buffer or a view of one.
type Ref struct {
	Name   string     // of the value
	Type   graph.Type // over all ranks; the rank has its share
	Buffer int
	Offset int // elements from the beginning of the buffer
	Stride int // elements from one entry of the first axis to the next
}

// Kind says what a step does.
type Kind uint8

// The kinds of steps.
const (
	Launch     Kind = iota // run the kernel of Op
	Collective             // take part in the collective Op
	Relayout               // shard: keep the rank's part; term: clear what rank 0 keeps; field: copy it
	Record                 // Event happens when the stream comes here
	Wait                   // the stream goes on after Event
)

// Step is one entry of a stream.
type Step struct {
	Kind    Kind
	Stream  Stream
	Event   int    // of Record and Wait
	Name    string // of the first result, for errors and profiles
	Op      *graph.Op
	Attrs   graph.Attrs
	Args    []Ref
	Results []Ref
	Cost    graph.Cost // over all ranks
	// Loop tells loops apart, counted from 1: steps that follow each other and have the same
	// run on the rows of a piece of the batch's tokens, and then on those of the next. 0:
	// the step runs once.
	Loop int
	// For lists the outputs, by their index, that the step is there for: batches that
	// want none of them leave it out; nil: it always runs.
	For []int
}

// ArgTypes are the types of the operands, over all ranks.
func (st *Step) ArgTypes() []graph.Type { return typesOf(st.Args) }

func typesOf(refs []Ref) []graph.Type {
	types := make([]graph.Type, len(refs))
	for i := range refs {
		types[i] = refs[i].Type
	}
	return types
}

// BySequence reports whether the rank has tokens of whole sequences, or of parts of them: what it
// holds depends not only on the sizes of the batch, but on which tokens are whose.
func (s *Schedule) BySequence() bool { return s.Bytes[PerLargest] > 0 }

// RowPlace is how ranks hold tokens where [Schedule.BySequence] is true, else Whole.
func (s *Schedule) RowPlace() graph.PlaceKind {
	if !s.BySequence() {
		return graph.Whole
	}
	for i := range s.Buffers {
		t := &s.Buffers[i].Type
		for _, l := range []*graph.Layout{&t.Layout, &t.Context} {
			if l.ByBatch() && l.Place[0].Kind > graph.Even {
				return l.Place[0].Kind
			}
		}
	}
	return graph.Whole
}

// Rounded reports whether a state is stored in 16 bits but computed in f32: each cut of a prompt
// rounds it. A KV cache is not such a state, since attention reads its stored form.
func (s *Schedule) Rounded() bool {
	for i := range s.Buffers {
		if b := &s.Buffers[i]; b.Space == State && b.Type.DType != graph.F32 {
			return true
		}
	}
	return false
}

// Output is a value that the caller gets after a step.
type Output struct {
	Name string
	Ref  Ref
}

// Across reports whether values lie along both TP and CP.
func (s *Schedule) Across() bool {
	return s.Mesh.Along(graph.TP) > 1 && s.Mesh.Along(graph.CP) > 1
}

// over is the mesh by which values lie: of TP and CP where they lie along both.
func (s *Schedule) over() graph.Mesh {
	if s.Across() {
		return graph.Mesh{graph.TP: s.Mesh[graph.TP], graph.CP: s.Mesh[graph.CP]}
	}
	return graph.Mesh{graph.TP: s.Ranks}
}

// Local is what the rank holds of a value of type t.
func (s *Schedule) Local(t graph.Type) graph.Type { return s.over().Local(t, s.Rank) }

// Share is [graph.Mesh.Share] of a value of type t, for the ranks along TP: they have its units.
// Where values lie along one axis, it is the type, the number of ranks, and the rank.
func (s *Schedule) Share(t graph.Type) (share graph.Type, ranks, at int) {
	return s.over().Share(t, graph.TP, s.Rank)
}

// RowShare is likewise for the ranks that share the rows of the batch of a value of type t; false
// where the rank has all rows.
func (s *Schedule) RowShare(t graph.Type) (share graph.Type, ranks, at int, ok bool) {
	a, ok := t.RowsAlong()
	share, ranks, at = s.over().Share(t, a, s.Rank)
	return share, ranks, at, ok && ranks > 1
}

// ShareOf is likewise for the ranks that take part in a collective or a relayout.
func (s *Schedule) ShareOf(st *Step, t graph.Type) (share graph.Type, ranks, at int) {
	a := graph.TP
	if st.Attrs.Text(alongAttr) == graph.CP.String() {
		a = graph.CP
	}
	return s.over().Share(t, a, s.Rank)
}

// RowRanks is the number of ranks that share the tokens of a batch where [Schedule.BySequence] is
// true.
func (s *Schedule) RowRanks() int {
	if over := s.over(); over.Along(graph.CP) > 1 {
		return over.Along(graph.CP)
	}
	return s.Ranks
}

// inBlocks is the bytes of what the rank holds of a parameter in blocks.
func (s *Schedule) inBlocks(t graph.Type) int64 {
	share, ranks, at := s.Share(t)
	return int64(graph.BlocksOf(share, ranks, at).Bytes(s.Local(t).Lines()))
}

// kindOf is the kind of step that an operation becomes.
func kindOf(op *graph.Op) (Kind, error) {
	switch op.Class {
	case graph.Compute:
		return Launch, nil
	case graph.Collective:
		return Collective, nil
	case graph.Relayout, graph.View:
		return Relayout, nil
	}
	return 0, fmt.Errorf("%s is not a step of a schedule", op.Name)
}

// sizeOf is the bytes of a local type per count of the symbol that its first
// axis may be, and the space of a value of that shape.
func sizeOf(t graph.Type) (bytes int64, space Space, err error) {
	bytes, space = int64(t.DType.Bytes()), Fixed
	if t.DType.InBlocks() {
		space, ok := rowSpaces[rows{t.Dims[0].Sym, t.Dims[0].Over > 0}]
		if !ok {
			return 0, 0, fmt.Errorf("%s: a result cannot be as long as %s", t, t.Dims[0])
		}
		return int64(t.DType.RowBytes(graph.RowElems(t.Dims))), space, nil
	}
	if t.Ragged() {
		return bytes * int64(graph.RowElems(t.Dims)), Cache, nil
	}
	for i, d := range t.Dims {
		switch {
		case d.Sym == 0:
			bytes *= int64(d.Len())
		case i > 0:
			return 0, 0, fmt.Errorf("%s: only the first axis may be a symbol", t)
		default:
			bytes *= int64(max(1, d.Times))
			var ok bool
			if space, ok = rowSpaces[rows{d.Sym, d.Over > 0}]; !ok {
				return 0, 0, fmt.Errorf("%s: a result cannot be as long as %s", t, d)
			}
		}
	}
	return bytes, space, nil
}

// room is the bytes, per count of a region, of a tensor whose shape asks for one, and
// whether it may lie there. Where ranks have even shares of the tokens, all tokens are
// as many shares as there are ranks: so one takes the place of the other.
func (s *Schedule) room(space, shape Space, bytes int64) (int64, bool) {
	switch {
	case (space == PerTokenShare || space == PerPieceShare) && shape == PerToken:
		return bytes * int64(s.Ranks), true
	case space == PerPiece:
		return bytes, shape == PerToken
	}
	return bytes, space.has(shape)
}

// rows is the size of a first axis, or of a share of it.
type rows struct {
	sym   graph.Sym
	share bool
}

// rowSpaces are the spaces that repeat, by what a first axis is.
var rowSpaces = map[rows]Space{
	{graph.Tokens, false}: PerToken, {graph.Seqs, false}: PerSeq, {graph.Rows, false}: PerRow,
	{graph.Tokens, true}: PerTokenShare, {graph.Seqs, true}: PerSeqShare, {graph.Rows, true}: PerRowShare,
	{graph.Largest, false}: PerLargest,
}

package lowering

import (
	"fmt"

	"github.com/krait-ml/krait/graph"
)

// LoopEnd is the end of the loop that a step is in, or of the step.
func LoopEnd(steps []Step, i int) int {
	end := i + 1
	for steps[i].Loop > 0 && end < len(steps) && steps[end].Loop == steps[i].Loop {
		end++
	}
	return end
}

// PieceCount is how many pieces loops take for a number of tokens: the fewest possible.
func (s *Schedule) PieceCount(tokens int) int {
	if s.PieceTokens == 0 {
		return 1
	}
	return max(1, (tokens+s.PieceTokens-1)/s.PieceTokens)
}

// Piece is the rows of piece k of a number of tokens. They are as even as possible.
func (s *Schedule) Piece(tokens, k int) graph.Run {
	return graph.Owned(tokens, s.PieceCount(tokens), k)
}

// checkLoops: the steps of a loop are together, and there are pieces for them.
func (s *Schedule) checkLoops() []error {
	var errs []error
	seen := map[int]bool{}
	for i := 0; i < len(s.Steps); i = LoopEnd(s.Steps, i) {
		st := &s.Steps[i]
		switch {
		case st.Loop < 0 || st.Loop > 0 && s.PieceTokens < 1:
			errs = append(errs, fmt.Errorf("%s is in loop %d, of pieces of %d tokens", st, st.Loop, s.PieceTokens))
		case seen[st.Loop]:
			errs = append(errs, fmt.Errorf("%s is apart from the rest of loop %d", st, st.Loop))
		}
		seen[st.Loop] = st.Loop > 0
	}
	return errs
}

// checkLooped: a step of a loop makes rows of the same rows, or moves them between ranks;
// what has room for a piece is seen in loops alone.
func (s *Schedule) checkLooped(st *Step) error {
	along := false
	for _, refs := range [][]Ref{st.Args, st.Results} {
		for i := range refs {
			r := &refs[i]
			byBatch := r.Type.Layout.ByBatch()
			along = along || byBatch
			switch {
			case st.Loop == 0 && s.Buffers[r.Buffer].Space.OfPiece():
				return fmt.Errorf("%s: of %s there is a piece, which loops alone see", st, r.Name)
			case st.Loop > 0 && byBatch && (st.Kind != Collective || r.Type.Dims[0].Sym != graph.Tokens):
				return fmt.Errorf("%s: ranks have parts of the rows of %s, which a loop goes through", st, r.Name)
			}
		}
	}
	ofRows := along || st.Kind == Launch && st.Op.RowWise() || sumsWhole(st.Op) || st.Op.Class == graph.View
	if st.Loop > 0 && !ofRows {
		return fmt.Errorf("%s is in a loop, and not of rows of tokens", st)
	}
	for i := range st.Results {
		if r := &st.Results[i]; st.Loop > 0 && (len(r.Type.Dims) == 0 || r.Type.Dims[0].Sym != graph.Tokens) {
			return fmt.Errorf("%s is in a loop, and %s has no row per token", st, r.Name)
		}
	}
	return nil
}

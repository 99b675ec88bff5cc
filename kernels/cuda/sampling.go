package cuda

import (
	"fmt"

	"github.com/krait-ml/krait/kernels"
)

var _ = kernels.Register(Kernels, Set{"choose": {launch: choose, scratch: choiceScratch}})

const (
	choiceBlock  = 256             // threads
	choicePieces = 2 * choiceBlock // of a row at most
	choiceBlocks = 256             // that a launch has, where rows are long enough
	longPiece    = 2048            // tokens of a piece, which has more only where there would be too many pieces

	choiceRow = choicePieces*(8+4+8+12) + 16 + 4096*16 // bytes of struct Row
)

var mostChoicePieces = choicePieces // tests have fewer

// choicePiece is how many tokens of a row a block has.
func choicePiece(rows, n int) int {
	each := min(longPiece, ceilDiv(n, ceilDiv(choiceBlocks, max(1, rows))))
	return ceilDiv(max(each, ceilDiv(n, mostChoicePieces)), choiceBlock) * choiceBlock
}

func choiceScratch(c *Call) int64 { return int64(c.Args[0].Rows()) * choiceRow }

// choose takes a block per piece of a row, in three launches, always: what rows want is in device
// memory. Where the highest token is taken, the second writes it, and blocks have nothing else to
// do. Which tokens top-k keeps, and a token that is not drawn, are exact. Weights of tokens are
// whole multiples of 2^-40 of the best one's and exact to 2^-20 of it, so that top-p, and where one
// token's range of random numbers ends, are exact to as much for each token before.
func choose(c *Call) error {
	logits, choice, seen, ids := &c.Args[0], &c.Args[1], &c.Args[2], &c.Results[0]
	n := logits.Cols
	piece := choicePiece(logits.Rows(), n)
	if n > 1<<30 {
		return fmt.Errorf("rows of %d tokens; choose takes up to %d", n, 1<<30)
	}
	params := Struct{logits.Ptr, choice.Ptr, seen.Ptr, c.Scratch, ids.Ptr, logits.stride(), choice.stride(), seen.stride(), n, piece}
	for _, kernel := range []string{"choose_best", "choose_bins", "choose_token"} {
		c.launch("sampling", kernel, [3]int{logits.Rows(), ceilDiv(n, piece), 1}, [3]int{choiceBlock}, 0, params)
	}
	return nil
}

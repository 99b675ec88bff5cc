package cuda

import "github.com/krait-ml/krait/kernels"

var _ = kernels.Register(Kernels, Set{"choose": {launch: choose}})

// choose takes a block per row. Which tokens top-k keeps, and a token that is not
// drawn, are exact. Weights of tokens are whole multiples of 2^-40 of the best one's
// and exact to 2^-20 of it, so that top-p, and where one token's range of random
// numbers ends, are exact to as much for each token before.
func choose(c *Call) error {
	logits, choice, seen, ids := &c.Args[0], &c.Args[1], &c.Args[2], &c.Results[0]
	c.launch("sampling", "choose", [3]int{logits.Rows(), 1, 1}, [3]int{1024}, 0,
		ids.Ptr, logits.Ptr, logits.stride(), logits.Cols, choice.Ptr, choice.stride(), seen.Ptr, seen.stride())
	return nil
}

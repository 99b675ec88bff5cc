package graph

// Prefill is the cost of a prompt of L tokens, and the size of the state after it.
type Prefill struct {
	// PerToken·L + PerTokenSquared·L² floating-point operations. The part of any
	// prompt, the logits of its last token, is left out.
	PerToken, PerTokenSquared float64
	CacheBytes                int64 // of attention, per token, over all ranks
	StateBytes                int64 // of states, over all ranks
}

// Prefill adds up the costs of the nodes, and the bytes of the states.
func (g *Graph) Prefill() Prefill {
	var p Prefill
	for _, t := range g.Cost().FLOPs {
		switch e, c := t.exp, float64(t.coef); {
		case e[Cached.index()] > 0:
			panic("BUG: FLOPs that depend on the size of a cache")
		case e[Tokens.index()]+e[Pairs.index()] == 0:
		case e[Tokens.index()]+2*e[Pairs.index()] > 2:
			panic("BUG: FLOPs that grow faster than the square of the tokens")
		case e[Pairs.index()] == 1: // L·(L+1)/2
			p.PerToken += c / 2
			p.PerTokenSquared += c / 2
		case e[Tokens.index()] == 2:
			p.PerTokenSquared += c
		default:
			p.PerToken += c
		}
	}
	one := Sizes{Tokens: 1, Seqs: 1, Rows: 1, Cached: 1, Pairs: 1}
	for _, n := range g.Leaves("state") {
		t := n.Results[0].Type
		if b := t.Bytes().At(one); t.Ragged() {
			p.CacheBytes += b
		} else {
			p.StateBytes += b
		}
	}
	return p
}

package graph

import "strings"

// Prefill is the cost of a prompt of L tokens, and the size of the state after it.
type Prefill struct {
	// PerToken·L + PerTokenSquared·L² floating-point operations. The part of any
	// prompt, the logits of its last token, is left out.
	PerToken, PerTokenSquared float64
	CacheBytes                int64 // of attention, per token, over all ranks
	StateBytes                int64 // of states, over all ranks
}

// Prefill adds up the costs of the nodes, and the bytes of the states.
func (g *Graph) Prefill() Prefill { return prefillOf(g.Nodes) }

// PrefillKinds are the kinds of layers that [Graph.PrefillByKind] tells apart.
var PrefillKinds = []string{"attention", "MLP", "SSM", "other"}

// PrefillByKind is [Graph.Prefill] by kind of layer: attention has a KV cache, an SSM states of
// one size, an MLP (also of experts) products in a block and neither, and others are such as norms.
func (g *Graph) PrefillByKind() map[string]Prefill {
	layers, kinds := map[string][]*Node{}, map[string][]*Node{}
	var order []string
	for _, n := range g.Nodes {
		name := layerOf(n.Name())
		if layers[name] == nil {
			order = append(order, name)
		}
		layers[name] = append(layers[name], n)
	}
	for _, name := range order {
		kind := "other"
		for _, n := range layers[name] {
			if op := n.Op.Name; BlockOf(n.Name()) != "" && (strings.Contains(op, "matmul") || strings.Contains(op, "experts")) {
				kind = "MLP"
			}
			if n.Op.Name == "state" {
				if kind = "SSM"; n.Results[0].Type.Ragged() {
					kind = "attention"
				}
				break
			}
		}
		kinds[kind] = append(kinds[kind], layers[name]...)
	}
	costs := map[string]Prefill{}
	for kind, nodes := range kinds {
		costs[kind] = prefillOf(nodes)
	}
	return costs
}

// layerOf returns the scope of a name inside its block, such as layers.3.mixer.
func layerOf(name string) string {
	block := BlockOf(name)
	inside, _, _ := strings.Cut(strings.TrimPrefix(name[len(block):], "."), ".")
	return block + "." + inside
}

func prefillOf(nodes []*Node) Prefill {
	var p Prefill
	var cost Cost
	for _, n := range nodes {
		cost = cost.Plus(n.Cost())
	}
	for _, t := range cost.FLOPs {
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
	for _, n := range nodes {
		if n.Op.Name != "state" {
			continue
		}
		t := n.Results[0].Type
		if b := t.Bytes().At(one); t.Ragged() {
			p.CacheBytes += b
		} else {
			p.StateBytes += b
		}
	}
	return p
}

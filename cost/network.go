package cost

import "math/bits"

// Network is what connects nodes, each a machine whose ranks have a [Link]. Its algorithms carry
// messages from node to node; their bandwidth is that of a rail.
type Network struct {
	Link
	Ranks Figure // of a full node
	Rails Figure // ports of a node to the network, which its ranks share evenly
}

// networkNames are the algorithms that a network has, or says that it has not: the others of
// [algorithmNames] write into the memory of other ranks.
var networkNames = algorithmNames[:2]

// rails is how many rails some ranks of a node have, if that many of its ranks use the network at
// the same time. A rank alone has one rail, or its share of a full node's if that is more.
func (n *Network) rails(ranks, using int) float64 {
	each := max(1, n.Rails.Value/n.Ranks.Value)
	return float64(ranks) * min(each, n.Rails.Value/float64(using))
}

// Reach says how the ranks of an exchange lie on nodes. The zero Reach is one node.
type Reach struct {
	Nodes       int     // that have some of the ranks
	Least, Most int     // ranks on a node
	Rails       float64 // of a node that are theirs, where they have the fewest
}

// Level is a level of hardware: within a node, or between nodes.
type Level int

// The levels.
const (
	Within Level = iota
	Between
	numLevels = int(Between) + 1
)

// String names the level as tables do.
func (l Level) String() string { return [numLevels]string{"within a node", "between nodes"}[l] }

// Best is the fastest way for an exchange among ranks that lie on nodes: an algorithm of the link
// within one node; otherwise a ring or a tree of all ranks, or the hierarchical way. Of equal ones
// it is the first, in this order. The network must not be nil if there are several nodes.
func (p *Profile) Best(e Exchange, r Reach) Travel {
	if r.Nodes <= 1 {
		return p.Link.Best(e)
	}
	var best Travel
	for i := range p.Network.Algorithms {
		a := &p.Network.Algorithms[i]
		switch near := p.Link.named(a); {
		case a.Name == "ring":
			best = best.or(ringAcross(a, near, e, r))
		case e.Phases == 2:
			best = best.or(treeAcross(a, near, e, r))
		}
	}
	if r.Most > 1 && r.Most*r.Nodes == e.Ranks {
		best = best.or(p.hierarchical(e, r))
	}
	return best
}

// named is the link's algorithm with the name and protocol of another, nil if it has none.
func (l *Link) named(a *Algorithm) *Algorithm {
	for i := range l.Algorithms {
		if b := &l.Algorithms[i]; b.Name == a.Name && b.Protocol == a.Protocol {
			return b
		}
	}
	return nil
}

// ringAcross is a ring of n ranks on m nodes that enters each node once, by an algorithm of the
// network and the one with its name within nodes. In each phase n-1 steps follow each other, m-1 of
// them between nodes (NCCL's model, ncclTopoTuneModel in src/graph/tuning.cc). All bytes that a
// rank sends pass the slowest link: the ring's rails, or the link within nodes.
//
//	base + phases·((m-1)·step + (n-m)·step within) + sent / min(rails·bandwidth, bandwidth within)
//
// Without a near algorithm, steps within nodes take as long as those between them.
func ringAcross(a, near *Algorithm, e Exchange, r Reach) Travel {
	n, m := float64(e.Ranks), float64(r.Nodes)
	step, bandwidth := a.across(near, r)
	latency := a.Base.Value + float64(e.Phases)*((m-1)*a.Step.Value+(n-m)*step)
	return Travel{a, [numLevels]Leg{Within: {Sent: e.Sent * (n - m) / n}, Between: {e.Sent * m / n, latency, e.Sent / bandwidth}}}
}

// treeAcross is a tree of m nodes whose ranks, at most k on each, are trees. It sums up the tree
// and hands the sum down, in two trees that share the bytes, so that a rank sends as many as in a
// ring (Sanders, Speck and Träff 2009; [Algorithm.takes]).
//
//	base + 2·(⌈log₂ m⌉·step + ⌈log₂ k⌉·step within) + sent / min(rails·bandwidth, bandwidth within)
func treeAcross(a, near *Algorithm, e Exchange, r Reach) Travel {
	n, m := float64(e.Ranks), float64(r.Nodes)
	step, bandwidth := a.across(near, r)
	latency := a.Base.Value + 2*(depth(r.Nodes)*a.Step.Value+depth(r.Most)*step)
	return Travel{a, [numLevels]Leg{Within: {Sent: e.Sent * (n - m) / (n - 1)}, Between: {e.Sent * (m - 1) / (n - 1), latency, e.Sent / bandwidth}}}
}

// depth is that of a binary tree of n ranks.
func depth(n int) float64 { return float64(bits.Len(uint(n - 1))) }

// across is the time of a step within a node, and the bandwidth of the slowest link.
func (a *Algorithm) across(near *Algorithm, r Reach) (step, bandwidth float64) {
	step, bandwidth = a.Step.Value, r.Rails*a.Bandwidth.Value
	if near != nil && r.Most > 1 {
		step, bandwidth = near.Step.Value, min(bandwidth, near.Bandwidth.Value)
	}
	return step, bandwidth
}

// hierarchicalName is that of an exchange in three parts.
var hierarchicalName = &Algorithm{Name: "hierarchical"}

// hierarchical exchanges S bytes within nodes and between them, one after the other, with k ranks
// on each of m nodes (Cho et al., "BlueConnect", 2019; Jia et al., arXiv 1807.11205): an all_reduce
// is a reduce_scatter of S within each node, an all_reduce of each rank's S/k with its likes on
// other nodes, and an all_gather of S within each node. A reduce_scatter is the first two with one
// phase between nodes, an all_gather the last two. Each part has its fastest algorithm.
//
//	phases·(time of one phase of S on k ranks) + (time of S/k on m ranks, one on each node)
func (p *Profile) hierarchical(e Exchange, r Reach) Travel {
	k, m, phases := float64(r.Most), float64(r.Nodes), float64(e.Phases)
	near := p.Link.Best(Exchange{Ranks: r.Most, Phases: 1, Bytes: e.Bytes, Sent: (k - 1) / k * e.Bytes})
	part := Exchange{Ranks: r.Nodes, Phases: e.Phases, Bytes: e.Bytes / k, Sent: phases * (m - 1) / m * e.Bytes / k}
	far := p.Best(part, Reach{Nodes: r.Nodes, Least: 1, Most: 1, Rails: r.Rails / k})
	if near.Algorithm == nil || far.Algorithm == nil {
		return Travel{}
	}
	in := near.Legs[Within]
	return Travel{hierarchicalName, [numLevels]Leg{Within: {phases * in.Sent, phases * in.Latency, phases * in.Moving}, Between: far.Legs[Between]}}
}

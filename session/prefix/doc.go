// Package prefix has the policies of prefix caches as pure data structures: which prefix of a
// prompt hits, where a snapshot pays, and what is evicted. It holds no states; its user does.
//
// # Tree
//
// A [Tree] is a radix tree over tokens for the states of all layers together. A node ends an edge
// of tokens, and may have a state (a snapshot). Its bytes are the tokens of its edge times the KV
// cache's bytes per token, and those of its state. A model without states, [Model.StateBytes] 0, is
// attention only. The root does not count as a node.
//
//   - Lookup: walk the tree while tokens of the input match. With states the hit is the deepest
//     node on the path that has a state and leaves one token to compute; its time is set to now.
//     Attention only hits all matching tokens but one, and touches the node whose edge the walk
//     ended in, or the last one passed.
//   - Marks: prefill takes snapshots at two depths beyond the hit, multiples of the grain
//     ([Model.Grain]): the branch, where the walk ended, since a prefix seen twice is likely to
//     come again, and the end, the last one that leaves a token to compute, for the same input.
//     With a grain of one token there is only a branch, as published, and none if all of the input
//     matched.
//   - Admission, after the last output token: add nodes at the marks and at the end of input and
//     output, all with states and the time now. No other nodes get states. Splitting an edge makes
//     its upper node.
//   - Eviction, while bytes exceed the capacity: of the nodes without children, and those with one
//     child and a state, evict the one of the lowest score; those on the path of the request only
//     if there are no others. A leaf is removed with its edge, and a parent left with one child and
//     no state merges with that child. A node with one child loses its state and merges with the
//     child.
//   - The score is r + α·f, where r is the node's time and f the FLOPs that its edge saves per
//     byte, each normalised over all nodes with bytes to (x − min)/(max − min), and 0 if all are
//     equal. Of equal scores the older goes, then the one made first.
//
// # Policies
//
// An [Adaptive] tree follows the α that hits most in trees beside it (tuned), or evicts by the hits
// that it expects from its history of requests (reuse). [Blocks] is the baseline of serving
// engines: a state for each full block of tokens. [Replay] runs a policy on a trace.
package prefix

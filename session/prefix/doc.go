// Package prefix keeps what was computed for the beginnings of prompts, as a pure data
// structure: it says which prefix of a prompt can be reused, where a state is worth
// keeping, and what goes when memory is short. It holds no states; who uses it does.
//
// # Tree
//
// A [Tree] is a radix tree over tokens for the states of all layers together. A node
// ends an edge of tokens, and may have a state. It holds the tokens of its edge times
// the cache bytes per token, and the bytes of a state if it has one. A model without
// states, [Model.StateBytes] 0, is attention only. The root is no node.
//
//   - Look-up: the input is walked while tokens match. With states the hit is the deepest
//     node on the way that has a state and leaves one token to compute; its time becomes
//     now. Attention only hits all that matched, but for one token to compute, and touches
//     the node whose edge the walk ended in, or the last passed.
//   - Marks: while the input is computed, states are kept at two depths beyond the hit, which
//     are multiples of the grain ([Model.Grain]): the branch, where the walk ended, since a
//     prefix seen twice is likely to come again, and the end, the last one with a token to
//     compute left, for when the same input comes again. With a grain of one token there is
//     only a branch, as published, and none where all of the input matched.
//   - Admission, after the last output token: the nodes at the marks, with states; then
//     that of the whole of input and output, with a state. No other states. What is made,
//     and these, have the time now. Where an edge is split the upper node is made.
//   - Eviction, while bytes are over capacity: of the nodes without children, and those
//     with one child and a state, the one of the lowest score goes; ones on the path of
//     the request only when there are no others. A leaf goes with its edge, and a parent
//     that is left with one child and no state gives its tokens to that child's edge. A
//     node with one child loses its state and gives its tokens to the child's edge.
//   - The score is r + α·f, where r is the node's time and f the FLOPs that its edge saves
//     per byte, each normalised over all nodes that hold bytes to (x − min)/(max − min),
//     and 0 where all are equal. Of equals the older goes, then the one made first.
//
// # Policies
//
// An [Adaptive] tree chooses α by replaying requests, once or now and again. [Blocks] is
// the baseline of serving engines: a state for each full block of tokens. [Replay] holds a
// policy against a trace.
package prefix

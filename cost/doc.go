// Package cost says how long the steps of a schedule take on hardware that is described
// by a [Profile]: a file of figures, each with its source. It runs nothing, and knows
// operations by their rows only.
//
// A launch takes its floating-point operations at the rate of the hardware, or its bytes
// at the bandwidth of memory, whichever is longer, and an overhead. A collective takes
// what the fastest way over its links takes for its bytes: the link within a node, and
// the [Network] between nodes.
package cost

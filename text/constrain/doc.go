// Package constrain holds what a model generates to JSON, of a schema or of none: before
// each token it says which ones may come.
//
// A [Grammar] is compiled from a schema: a network of states, whose edges read a byte or call
// another rule and go on behind it. A [Matcher] is where one text is in it: the set of all
// states, each with its stack of rules to return to. Which tokens may come is found by walking a
// trie of the vocabulary's bytes along with the set.
//
// The text is compact JSON with at most a space behind ":" and ",". There is no way
// into a dead end: a state counts only where the end can be reached from it within the bound of
// depth, and the vocabulary has every ASCII character as a token. Work and memory are bounded: a
// set has at most maxConfigs elements, a matcher at most maxSets sets, and the walk for a token
// at most maxWork steps. Tokens beyond these bounds are not generated; the text stays valid.
package constrain

// Package constrain holds what a model generates to JSON, of a schema or of none, or to an
// expression, a choice or a grammar: before each token it says which ones may come.
//
// A [Grammar] is a network of states, whose edges read a byte or call another rule and go on behind
// it. [Compile] makes one of a schema: nodes (the schema and its parts) become unions of terms, one
// for a kind of values, with intersection and difference; strings, names and numbers become
// automatons, and these and the terms become rules. A [Matcher] is where one text is in a grammar:
// the set of all states, each with its stack of rules to return to. Which tokens may come is found
// by walking a trie of the vocabulary's bytes along with the set. Inside strings the vocabulary
// knows the tokens beforehand. The trie has tokens of equal classes of bytes together, so that a
// set that takes any text of these classes takes them at once. A set that goes on alike for as many
// bytes as tokens have shares another's mask, and one that goes on like another mostly walks where
// they differ.
//
// JSON is compact with at most a space behind ":" and ",". There is no way into a dead end: a state
// counts only where the end can be reached from it within the bound of depth, and the vocabulary
// has every ASCII character as a token. Work and memory are bounded: a set has at most maxConfigs
// elements, a machine at most 2 maxSets sets, and the walk for a token takes at most maxWork steps.
// Tokens beyond these bounds are not generated; the text stays valid.
package constrain

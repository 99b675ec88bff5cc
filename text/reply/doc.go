// Package reply takes apart what a chat model writes: its reasoning, what it says, and calls of
// tools in the notation of its family.
//
// A [Format] is a row of a table, from which both the grammar of calls and their parser are made:
// [Config.Grammar] holds a model to calls whose arguments fulfil the schemas of the tools, and
// [Config.Parser] reads what came, piece by piece as it is generated. Because the grammar holds a
// call from its first byte on, the parser accepts one spelling only.
//
// Some families begin a call or a thought with a special token. Its text has the byte [Special] in
// front, which no UTF-8 has, so that ordinary tokens cannot spell it.
package reply

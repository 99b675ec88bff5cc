// Package board is the page of a server: a chat with its model, and what ranks, batches and
// the prefix cache do while somebody looks.
//
// [Page] is one HTML text without outside parts, which asks the server's API as any client
// does, and /board for a [State] twice in a second. A [Board] makes these. Where nobody has
// asked for a while it keeps nothing, and what it is told of costs a look at the clock.
// A State has numbers: no text, no token, and no name of who asked.
package board

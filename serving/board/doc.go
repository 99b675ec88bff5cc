// Package board has the web page of a server: a chat with its model, and a live view of ranks,
// batches and the prefix cache.
//
// [Page] is one HTML file without external parts. It uses the server's API as any client does, and
// requests a [State] from /board twice a second. A [Board] makes the states. It records only while
// a page is open; otherwise its callbacks only read the clock. A State has numbers: no texts, no
// tokens and no names of clients.
package board

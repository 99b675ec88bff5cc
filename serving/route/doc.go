// Package route balances requests of OpenAI's API over several servers of one model.
//
// The router sends a request to the server with the least work: bytes of prompts to prefill, less
// the bytes that its prefix cache is expected to hold, and tokens to decode. The prompt of a stream
// is work until its first event. Of equals the server with fewer requests is picked, or else the
// one whose last request came first. With prefill servers ([Options.Prefill]), the router also
// picks the one with the fewest bytes of prompts, and picks the decode server by its answers alone.
//
// The router checks each machine every second. A machine whose check fails gets no new requests;
// its active requests continue. A request whose connection fails is retried once on another
// machine, unless the client already got a part of the answer; then the stream ends with an error.
// A machine that fails repeatedly is ejected for a while, longer each time (outlier ejection); a
// request that fails on every machine ejects none.
//
// A request counts as active only after its whole body has arrived. Each client has a share of
// active requests and of bytes.
//
// The router does not query prefix caches: it remembers which prompts it sent to which server. That
// needs no tokenizer and no protocol.
package route

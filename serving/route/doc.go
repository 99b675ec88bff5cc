// Package route divides the requests of OpenAI's API among several servers of one model.
//
// A request goes to the machine that has the least to do for it: the bytes of prompts that
// it has still to read, less what its prefix cache is believed to hold of this one, and the answers that
// it is writing. Where machines of their own read prompts ([Options.Prefill]), one of them is chosen by the
// prompts' bytes, one that answers by its answers.
//
// Machines are checked every second, and get nothing new after a check that failed; what they have
// begun goes on. A request whose connection fails is asked of another machine, once, unless a part
// of the answer was sent already; then the client is told. A machine that fails again and again is
// left out for a while, longer each time (outlier ejection); a request that every machine fails at
// ejects none.
//
// A request takes a place only when all of it is there, and a client has a share of places and
// bytes.
//
// What a machine holds is not asked for, but remembered of what was sent there: that needs no
// tokenizer, and no word from the machine.
package route

package krait

import (
	"github.com/krait-ml/krait/text/sampling"
	"github.com/krait-ml/krait/text/tokenizer"
)

// stopFinder finds stop strings where tokens are chosen, so that a sequence ends at once, and
// counts the tokens that a reader of the text sees whole. It belongs to one goroutine. A nil one
// finds nothing.
type stopFinder struct {
	stream  tokenizer.Stream
	stop    *sampling.Stop
	text    int  // bytes that the tokens gave
	shown   int  // bytes that no stop string can take back
	tokens  int  // pushed
	whole   int  // tokens that end within the bytes shown, as of the last push
	partial bool // the last token gave no text: its character may be incomplete
}

// newStopFinder returns nil where there are no stop strings, or no tokenizer.
func (m *Model) newStopFinder(stops []string) (*stopFinder, error) {
	if len(stops) == 0 || m.tokens == nil {
		return nil, nil
	}
	stop, err := sampling.NewStop(stops)
	return &stopFinder{stream: m.tokens.NewStream(true), stop: stop}, err
}

// push takes a token and reports whether a stop string is complete.
func (f *stopFinder) push(id int) (stopped bool) {
	if f == nil {
		return false
	}
	begin, follows := f.text, !f.partial // the token's text begins at begin if it follows a whole character
	text := f.stream.Push(id)
	shown, stopped := f.stop.Push(text)
	f.text, f.shown, f.partial = f.text+len(text), f.shown+len(shown), text == ""
	f.tokens++
	switch {
	case f.shown == f.text && !f.partial && !stopped:
		f.whole = f.tokens
	case follows && f.shown >= begin:
		f.whole = f.tokens - 1
	}
	return stopped
}

// flush ends the text with a token that is not pushed: all that was held back is shown.
func (f *stopFinder) flush() {
	if f != nil {
		f.whole = f.tokens + 1
	}
}

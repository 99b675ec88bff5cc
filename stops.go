package krait

import (
	"github.com/krait-ml/krait/text/sampling"
	"github.com/krait-ml/krait/text/tokenizer"
)

// stopFinder finds stop strings in the goroutine that chooses tokens, so that a sequence ends at
// once, and counts the tokens whose text is final. A nil one finds nothing.
type stopFinder struct {
	stream  tokenizer.Stream
	stop    *sampling.Stop
	text    int  // bytes of the tokens
	shown   int  // bytes that no stop string can remove
	tokens  int  // pushed
	final   int  // tokens that end within the bytes shown, as of the last push
	partial bool // the last token had no text: its character may be incomplete
}

// newStopFinder returns nil without stop strings or without a tokenizer.
func (m *Model) newStopFinder(o *Generate) (*stopFinder, error) {
	if len(o.Stop) == 0 || m.tokens == nil {
		return nil, nil
	}
	stop, err := sampling.NewStop(o.Stop)
	return &stopFinder{stream: m.newStream(o), stop: stop}, err
}

// push takes a token and reports whether a stop string is complete.
func (f *stopFinder) push(id int) (stopped bool) {
	if f == nil {
		return false
	}
	begin, follows := f.text, !f.partial // the token's text begins at begin if a whole character precedes it
	text := f.stream.Push(id)
	shown, stopped := f.stop.Push(text)
	f.text, f.shown, f.partial = f.text+len(text), f.shown+len(shown), text == ""
	f.tokens++
	switch {
	case f.shown == f.text && !f.partial && !stopped:
		f.final = f.tokens
	case follows && f.shown >= begin:
		f.final = f.tokens - 1
	}
	return stopped
}

// flush ends the text with a token that is not pushed: all of it is final.
func (f *stopFinder) flush() {
	if f != nil {
		f.final = f.tokens + 1
	}
}

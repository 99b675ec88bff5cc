package krait

import (
	"strings"

	"github.com/krait-ml/krait/text/sampling"
	"github.com/krait-ml/krait/text/tokenizer"
)

// writer turns tokens into final text: it holds back incomplete characters and possible beginnings
// of stop strings.
type writer struct {
	stream  tokenizer.Stream // nil without a tokenizer
	stop    *sampling.Stop
	stopped bool
	emit    func(string)
	text    strings.Builder
	taken   int // bytes of the text, by take
}

// newWriter fails for empty stop strings, and for any without a tokenizer.
func (m *Model) newWriter(o *Generate) (*writer, error) {
	stop, err := sampling.NewStop(o.Stop)
	if err != nil {
		return nil, err
	}
	w := &writer{stop: stop, emit: o.OnText}
	if m.tokens == nil {
		if len(o.Stop) > 0 {
			return nil, m.noTokens
		}
		return w, nil
	}
	w.stream = m.newStream(o)
	return w, nil
}

// newStream decodes a text without special tokens, but for those of o.Keep.
func (m *Model) newStream(o *Generate) tokenizer.Stream {
	s := m.tokens.NewStream(true)
	if len(o.Keep) == 0 {
		return s
	}
	return &keeping{s, o.Keep}
}

// keeping is a stream with texts in place of some tokens.
type keeping struct {
	tokenizer.Stream
	texts map[int]string
}

func (k *keeping) Push(id int) string {
	if text, ok := k.texts[id]; ok {
		return k.Flush() + text
	}
	return k.Stream.Push(id)
}

// push takes a token and reports whether a stop string is complete.
func (w *writer) push(id int) bool {
	if w.stream != nil {
		w.write(w.stream.Push(id))
	}
	return w.stopped
}

func (w *writer) write(text string) {
	if w.stopped {
		return
	}
	text, w.stopped = w.stop.Push(text)
	w.out(text)
}

func (w *writer) out(text string) {
	if text == "" {
		return
	}
	w.text.WriteString(text)
	if w.emit != nil {
		w.emit(text)
	}
}

// take returns the text since the last call.
func (w *writer) take() string {
	text := w.text.String()[w.taken:]
	w.taken += len(text)
	return text
}

// flush ends the text and returns all of it.
func (w *writer) flush() string {
	if w.stream != nil && !w.stopped {
		w.write(w.stream.Flush())
	}
	if !w.stopped {
		w.out(w.stop.Flush())
	}
	return w.text.String()
}

package tokenizer

import "strings"

// A pipelineStream is a chain of decoders that ends in a text.
type pipelineStream struct {
	pipeline    *Pipeline
	skipSpecial bool
	first       sink
	text        textSink
}

// NewStream returns a decoder that takes one id at a time.
func (p *Pipeline) NewStream(skipSpecial bool) Stream {
	return p.newStream(skipSpecial)
}

func (p *Pipeline) newStream(skipSpecial bool) *pipelineStream {
	s := &pipelineStream{pipeline: p, skipSpecial: skipSpecial}
	s.first = p.decoder.sink(&s.text, false)
	return s
}

func (s *pipelineStream) Push(id int) string {
	s.push(id)
	return s.text.take()
}

func (s *pipelineStream) Flush() string {
	s.first.flush()
	return s.text.take()
}

func (s *pipelineStream) push(id int) {
	piece, ok := s.pipeline.pieces[id]
	if ok && !(s.skipSpecial && s.pipeline.special[id]) {
		s.first.push(piece)
	}
}

// A textSink collects what comes out of a decoder.
type textSink struct{ text strings.Builder }

func (t *textSink) push(token string) { t.text.WriteString(token) }
func (t *textSink) flush()            {}

func (t *textSink) take() string {
	text := t.text.String()
	t.text.Reset()
	return text
}

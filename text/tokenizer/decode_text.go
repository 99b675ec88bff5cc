package tokenizer

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

func readByteFallback(*object) decoder {
	return newDecoder(func(next sink) sink { return &byteRuns{next: next} })
}

// byteRuns reads byte tokens such as <0x0A>. If those in a row are not UTF-8 as a whole, each of
// them is U+FFFD, so that none is certain before the row ends.
type byteRuns struct {
	next sink
	run  []byte
}

func (b *byteRuns) push(token string) {
	if value, ok := byteToken(token); ok {
		b.run = append(b.run, value)
		return
	}
	b.endRun()
	b.next.push(token)
}

func (b *byteRuns) flush() {
	b.endRun()
	b.next.flush()
}

func (b *byteRuns) endRun() {
	if utf8.Valid(b.run) {
		if len(b.run) > 0 {
			b.next.push(string(b.run))
		}
	} else {
		for range b.run {
			b.next.push(replacement)
		}
	}
	b.run = b.run[:0]
}

func byteToken(token string) (value byte, ok bool) {
	if len(token) != len("<0x00>") || token[:3] != "<0x" || token[5] != '>' {
		return 0, false
	}
	n, err := strconv.ParseUint(token[3:5], 16, 8)
	return byte(n), err == nil
}

func readReplaceDecoder(o *object) decoder {
	pattern, content := o.replacement()
	if re, ok := pattern.(*regex); ok && len(re.program) > maxDecoderProgram {
		o.failField("pattern", "it is too large: %d steps (supported in a decoder: %d)", len(re.program), maxDecoderProgram)
	}
	d := eachToken(func(_ int, token string) string { return replaceAll(nil, token, pattern, content) })
	whole := d.sink
	d.sink = func(next sink, fused bool) sink {
		if old, ok := pattern.(literal); ok && fused {
			return &replacer{old: string(old), new: content, next: next}
		}
		return whole(next, fused)
	}
	return d
}

// A replacer replaces a literal in the parts of one token. It holds back what
// may be the start of the literal.
type replacer struct {
	old, new string
	next     sink
	held     string
}

func (r *replacer) push(part string) {
	text := r.held + part
	var out strings.Builder
	for {
		before, after, found := strings.Cut(text, r.old)
		if !found {
			break
		}
		out.WriteString(before)
		out.WriteString(r.new)
		text = after
	}
	n := min(len(text), len(r.old)-1)
	for !strings.HasPrefix(r.old, text[len(text)-n:]) {
		n--
	}
	out.WriteString(text[:len(text)-n])
	r.held = text[len(text)-n:]
	r.next.push(out.String())
}

func (r *replacer) flush() {
	r.next.push(r.held)
	r.next.flush()
	r.held = ""
}

func readStrip(o *object) decoder {
	s := stripper{content: string(o.char("content"))}
	var start, stop uint32
	o.required("start", &start)
	o.required("stop", &stop)
	s.start, s.stop = int(start), int(stop)

	each := eachToken(func(_ int, token string) string {
		token, _ = trimLeft(token, s.content, s.start)
		token, _ = trimRight(token, s.content, s.stop)
		return token
	})
	return decoder{sink: func(next sink, fused bool) sink {
		if !fused {
			return each.sink(next, false)
		}
		s := s
		s.next, s.left = next, s.start
		return &s
	}}
}

// A stripper cuts a number of characters from the start and the end of one
// token, of which it is given the parts. It holds back what may be the end.
type stripper struct {
	content     string
	start, stop int // how many at most
	next        sink
	left        int // of start
	held        int // of stop
}

func (s *stripper) push(part string) {
	if part == "" {
		return
	}
	part, cut := trimLeft(part, s.content, s.left)
	s.left -= cut
	if part == "" {
		return
	}
	s.left = 0
	body, held := trimRight(part, s.content, s.stop)
	if body == "" {
		// Of what is held, the last ones are the end.
		out := max(0, s.held+held-s.stop)
		s.held += held - out
		s.next.push(strings.Repeat(s.content, out))
		return
	}
	s.next.push(strings.Repeat(s.content, s.held) + body)
	s.held = held
}

func (s *stripper) flush() {
	s.left, s.held = s.start, 0
	s.next.flush()
}

// trimLeft cuts prefix from text up to n times, and returns how often it did.
func trimLeft(text, prefix string, n int) (rest string, cut int) {
	for cut < n && strings.HasPrefix(text, prefix) {
		text = text[len(prefix):]
		cut++
	}
	return text, cut
}

// trimRight cuts suffix from text up to n times, and returns how often it did.
func trimRight(text, suffix string, n int) (rest string, cut int) {
	for cut < n && strings.HasSuffix(text, suffix) {
		text = text[:len(text)-len(suffix)]
		cut++
	}
	return text, cut
}

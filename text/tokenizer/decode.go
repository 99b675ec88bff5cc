package tokenizer

import (
	"encoding/json"
	"strings"
)

// A sink takes the tokens of a text one at a time, and is told when the text
// ends. A decoder is a chain of sinks: each passes on what has become certain.
type sink interface {
	push(token string)
	flush()
}

// A decoder builds its sink in front of the next one. With fused, the tokens
// before it were made one, and what it is given are the parts of this one.
type decoder struct {
	sink  func(next sink, fused bool) sink
	fuses bool // what it passes on are the parts of one token
}

var decoders = component[decoder]{
	field:    "decoders",
	sequence: func(_ *object, parts []decoder) decoder { return decodeInTurn(parts) },
	read: map[string]func(o *object) decoder{
		"BPEDecoder":   readBPEDecoder,
		"ByteFallback": readByteFallback,
		"ByteLevel":    readByteLevelDecoder,
		"CTC":          readCTC,
		"Fuse":         func(*object) decoder { return fuse },
		"Metaspace":    readMetaspaceDecoder,
		"Replace":      readReplaceDecoder,
		"Strip":        readStrip,
		"WordPiece":    readWordPiece,
	},
}

func parseDecoder(raw json.RawMessage) (decoder, error) {
	if raw == nil {
		return joinBySpace, nil
	}
	return decoders.parse("decoder", raw, &chain{decodes: true})
}

func decodeInTurn(parts []decoder) (chain decoder) {
	for _, d := range parts {
		chain.fuses = chain.fuses || d.fuses
	}
	chain.sink = func(next sink, fused bool) sink {
		before := make([]bool, len(parts)) // whether the tokens are fused before each
		for i, d := range parts {
			before[i] = fused
			fused = fused || d.fuses
		}
		for i := len(parts) - 1; i >= 0; i-- {
			next = parts[i].sink(next, before[i])
		}
		return next
	}
	return chain
}

// newDecoder is for a sink that needs whole tokens. Of a fused one, it collects the parts.
func newDecoder(make func(next sink) sink) decoder {
	return decoder{sink: func(next sink, fused bool) sink {
		if fused {
			return &collector{next: make(next)}
		}
		return make(next)
	}}
}

type collector struct {
	next sink
	text strings.Builder
}

func (c *collector) push(part string) { c.text.WriteString(part) }

func (c *collector) flush() {
	c.next.push(c.text.String())
	c.next.flush()
	c.text.Reset()
}

// fuse makes the tokens one.
var fuse = decoder{
	fuses: true,
	sink:  func(next sink, fused bool) sink { return next },
}

// eachToken is a decoder that rewrites each token, given its number.
func eachToken(rewrite func(i int, token string) string) decoder {
	return newDecoder(func(next sink) sink { return &rewriter{rewrite: rewrite, next: next} })
}

type rewriter struct {
	rewrite func(i int, token string) string
	next    sink
	count   int
}

func (r *rewriter) push(token string) {
	r.next.push(r.rewrite(r.count, token))
	r.count++
}

func (r *rewriter) flush() {
	r.count = 0
	r.next.flush()
}

// joinBySpace is the decoder of a file that has none.
var joinBySpace = eachToken(func(i int, token string) string {
	if i > 0 {
		return " " + token
	}
	return token
})

func readMetaspaceDecoder(o *object) decoder {
	m := readMetaspace(o)
	return eachToken(func(i int, token string) string {
		space := " "
		if i == 0 && m.prepend != prependNever {
			space = ""
		}
		return strings.ReplaceAll(token, m.replacement, space)
	})
}

func readByteLevelDecoder(o *object) decoder {
	o.ignore("add_prefix_space", "trim_offsets", "use_regex") // of no effect here
	d := newDecoder(func(next sink) sink { return &byteLevel{next: next} })
	d.fuses = true
	return d
}

// A byteLevel reads the bytes that tokens spell.
type byteLevel struct {
	next sink
	text utf8Buffer
}

func (b *byteLevel) push(token string) { b.next.push(b.text.push(readBytes(token)...)) }

func (b *byteLevel) flush() {
	b.next.push(b.text.flush())
	b.next.flush()
}

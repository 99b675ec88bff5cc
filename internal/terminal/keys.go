package terminal

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"unicode/utf8"
)

// keys is the input of an editor. It gives term.Terminal at most one line per call, so that the
// editor knows whether the end of a line was typed or pasted; it drops control characters from
// pasted text, and translates keys that term.Terminal does not know.
type keys struct {
	in      io.Reader
	out     io.Writer
	before  func() // each read; nil: nothing
	raw     []byte // read, not given yet
	pasting bool
	pasted  bool // the last end of a line was pasted
	cr      bool // the last character given was a pasted carriage return
	drop    bool // the next read gives errDropped
}

// errDropped ends a line that the user drops.
var errDropped = errors.New("dropped")

var pasteBegin, pasteEnd = []byte("\x1b[200~"), []byte("\x1b[201~")

// Keys that the editor handles, in place of term.Terminal: that takes Ctrl-C for the end of the
// input, and knows no characters of two columns.
const (
	deleteKey = iota + 0x1a // at the cursor
	_                       // escape
	leftKey
	rightKey
	dropKey
	backKey
)

// filler follows each character of two columns in the lines of term.Terminal, which counts a column
// for each character. It is no character of any text.
const filler = "\U0010ffff"

// filled adds fillers to a text, clean removes them.
func filled(text string) string {
	var b strings.Builder
	for _, r := range text {
		if b.WriteRune(r); columns(r) == 2 {
			b.WriteString(filler)
		}
	}
	return b.String()
}

func clean(text string) string { return strings.ReplaceAll(text, filler, "") }

// translated are keys in words of term.Terminal: by word, to the ends of the line, delete a word.
var translated = []struct{ key, as string }{
	{"\x03", string(rune(dropKey))}, {"\x7f", string(rune(backKey))}, {"\x08", string(rune(backKey))}, {"\x1b[3~", string(rune(deleteKey))},
	{"\x1b[C", string(rune(rightKey))}, {"\x06", string(rune(rightKey))}, {"\x1b[D", string(rune(leftKey))}, {"\x02", string(rune(leftKey))},
	{"\x1b[1;5C", "\x1b[1;3C"}, {"\x1b[1;5D", "\x1b[1;3D"}, {"\x1bf", "\x1b[1;3C"}, {"\x1bb", "\x1b[1;3D"},
	{"\x1b[1~", "\x1b[H"}, {"\x1b[4~", "\x1b[F"}, {"\x1bOH", "\x1b[H"}, {"\x1bOF", "\x1b[F"}, {"\x1b\x7f", "\x17"},
}

func (k *keys) Read(p []byte) (n int, err error) {
	for {
		if k.drop {
			k.drop = false
			return 0, errDropped
		}
		if n = k.give(p); n > 0 {
			return n, nil
		}
		if k.before != nil {
			k.before()
		}
		var more [4096]byte
		m, err := k.in.Read(more[:])
		if k.raw = append(k.raw, more[:m]...); m == 0 && err != nil {
			return 0, err
		}
	}
}

// give moves input to p, at most to the end of a line or to where it is dropped.
func (k *keys) give(p []byte) (n int) {
	for ended := false; len(k.raw) > 0 && len(p)-n >= 2*len(filler) && !ended; {
		c := k.raw[0]
		after := k.cr && c == '\n'
		k.cr = false
		in, out := 1, k.raw[:1]
		switch {
		case bytes.HasPrefix(k.raw, pasteBegin), bytes.HasPrefix(k.raw, pasteEnd):
			k.pasting = k.raw[4] == '0'
			in, out = len(pasteEnd), k.raw[:len(pasteEnd)]
		case len(k.raw) < len(pasteEnd) && (bytes.HasPrefix(pasteBegin, k.raw) || bytes.HasPrefix(pasteEnd, k.raw)):
			return n // the rest comes
		case c >= utf8.RuneSelf && !utf8.FullRune(k.raw):
			return n
		case c >= utf8.RuneSelf:
			_, in = utf8.DecodeRune(k.raw)
			out = []byte(filled(clean(string(k.raw[:in]))))
		case k.pasting && (after || c < ' ' && c != '\t' && c != '\r' && c != '\n' || c == 0x7f):
			out = nil
		case c == '\r', c == '\n':
			k.pasted, k.cr, ended = k.pasting, k.pasting && c == '\r', true
			out = []byte{'\r'}
		case !k.pasting:
			key := k.key()
			in, out, ended = len(key.key), []byte(key.as), key.as[0] == dropKey
		}
		n += copy(p[n:], out)
		k.raw = k.raw[in:]
	}
	return n
}

// key is the next key.
func (k *keys) key() (key struct{ key, as string }) {
	for _, x := range translated {
		if bytes.HasPrefix(k.raw, []byte(x.key)) {
			return x
		}
	}
	key.key = string(k.raw[:1])
	key.as = key.key
	return key
}

// Write writes to the screen. A tab of the line is as wide as term.Terminal takes it for.
func (k *keys) Write(p []byte) (int, error) {
	_, err := io.WriteString(k.out, clean(strings.ReplaceAll(string(p), "\t", " ")))
	return len(p), err
}

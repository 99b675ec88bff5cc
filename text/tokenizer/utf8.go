package tokenizer

import (
	"strings"
	"unicode/utf8"
)

const replacement = "\uFFFD"

// validUTF8 returns b as text, with one U+FFFD for each maximal malformed part: the longest start
// of a character that another byte could have continued, or else a single byte.
func validUTF8(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	var text strings.Builder
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 {
			n = malformed(b)
			text.WriteString(replacement)
		} else {
			text.Write(b[:n])
		}
		b = b[n:]
	}
	return text.String()
}

// malformed returns the length of the maximal malformed part that b begins with.
func malformed(b []byte) int {
	n := 1
	for n < len(b) && !utf8.FullRune(b[:n+1]) {
		n++
	}
	return n
}

// A utf8Buffer holds back the bytes of a character until it is complete.
type utf8Buffer struct{ pending []byte }

// push adds bytes and returns the text that later bytes cannot change.
func (u *utf8Buffer) push(b ...byte) string {
	u.pending = append(u.pending, b...)
	end := len(u.pending) - incomplete(u.pending)
	text := validUTF8(u.pending[:end])
	u.pending = append(u.pending[:0], u.pending[end:]...)
	return text
}

// flush ends the text: an incomplete character becomes U+FFFD.
func (u *utf8Buffer) flush() string {
	text := validUTF8(u.pending)
	u.pending = u.pending[:0]
	return text
}

// incomplete returns the number of bytes at the end of b that begin a
// character and do not finish it.
func incomplete(b []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		tail := b[len(b)-n:]
		if utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}

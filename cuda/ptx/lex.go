package ptx

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// tokenKind says what a token is. Punctuation is its own kind, by its byte.
type tokenKind uint8

const (
	tokenEnd     tokenKind = 0
	tokenName    tokenKind = 'a' // a name, directive or opcode, dots and all: %r1, $L_1, .reg, ld.global.f32
	tokenInt     tokenKind = 'i'
	tokenFloat32 tokenKind = 'f' // 0f3F800000
	tokenFloat64 tokenKind = 'd' // 0d3FF0000000000000, 1.0
	tokenString  tokenKind = '"'
)

type token struct {
	kind tokenKind
	line int
	text string // names and strings
	bits uint64 // numbers
}

func (t token) String() string {
	switch t.kind {
	case tokenEnd:
		return "the end"
	case tokenName:
		return t.text
	case tokenString:
		return strconv.Quote(t.text)
	case tokenInt, tokenFloat32, tokenFloat64:
		return "a number"
	}
	return string(rune(t.kind))
}

const punctuation = "{}[]()<>,;:+-@!|=*&"

// lex cuts the text into tokens and ends them with one tokenEnd.
func lex(text string) ([]token, error) {
	tokens := make([]token, 0, len(text)/4)
	line := 1
	for i := 0; i < len(text); {
		c := text[i]
		switch {
		case c == '\n':
			line++
			i++
		case c == ' ' || c == '\t' || c == '\r':
			i++
		case strings.HasPrefix(text[i:], "//"):
			if n := strings.IndexByte(text[i:], '\n'); n >= 0 {
				i += n
			} else {
				i = len(text)
			}
		case strings.HasPrefix(text[i:], "/*"):
			n := strings.Index(text[i+2:], "*/")
			if n < 0 {
				return nil, fmt.Errorf("line %d: a comment that does not end", line)
			}
			line += strings.Count(text[i:i+2+n], "\n")
			i += n + 4
		case c == '"':
			n := strings.IndexAny(text[i+1:], "\"\n")
			if n < 0 || text[i+1+n] == '\n' {
				return nil, fmt.Errorf("line %d: a string that does not end", line)
			}
			tokens = append(tokens, token{kind: tokenString, line: line, text: text[i+1 : i+1+n]})
			i += n + 2
		case isDigit(c):
			t, n, err := number(text[i:])
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", line, err)
			}
			t.line = line
			tokens = append(tokens, t)
			i += n
		case isNameStart(c):
			n := nameLen(text[i:])
			tokens = append(tokens, token{kind: tokenName, line: line, text: text[i : i+n]})
			i += n
		case strings.IndexByte(punctuation, c) >= 0:
			tokens = append(tokens, token{kind: tokenKind(c), line: line})
			i++
		default:
			return nil, fmt.Errorf("line %d: unexpected character %q", line, c)
		}
	}
	return append(tokens, token{kind: tokenEnd, line: line}), nil
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

func isNameStart(c byte) bool { return isLetter(c) || strings.IndexByte("_$%.", c) >= 0 }

// nameLen measures a name; "::" belongs to it (.L1::no_allocate), one colon
// ends it (a label).
func nameLen(s string) int {
	n := 1
	for n < len(s) {
		switch {
		case isNameStart(s[n]) && s[n] != '%' || isDigit(s[n]):
			n++
		case strings.HasPrefix(s[n:], "::"):
			n += 2
		default:
			return n
		}
	}
	return n
}

// number reads a literal and says how long it is.
func number(s string) (token, int, error) {
	n := 1
	for n < len(s) && (isDigit(s[n]) || isLetter(s[n]) || s[n] == '.' ||
		(s[n] == '+' || s[n] == '-') && isDecimalExponent(s[:n])) {
		n++
	}
	word := s[:n]
	lower := strings.ToLower(word)
	switch {
	case strings.HasPrefix(lower, "0f"):
		bits, err := strconv.ParseUint(word[2:], 16, 32)
		if err != nil || n != 10 {
			return token{}, 0, fmt.Errorf("%s is not an f32 literal", word)
		}
		return token{kind: tokenFloat32, bits: bits}, n, nil
	case strings.HasPrefix(lower, "0d"):
		bits, err := strconv.ParseUint(word[2:], 16, 64)
		if err != nil || n != 18 {
			return token{}, 0, fmt.Errorf("%s is not an f64 literal", word)
		}
		return token{kind: tokenFloat64, bits: bits}, n, nil
	case !strings.HasPrefix(lower, "0x") && strings.ContainsAny(lower, ".e"):
		v, err := strconv.ParseFloat(word, 64)
		if err != nil {
			return token{}, 0, fmt.Errorf("%s is not a number", word)
		}
		return token{kind: tokenFloat64, bits: math.Float64bits(v)}, n, nil
	}
	bits, err := strconv.ParseUint(strings.TrimSuffix(lower, "u"), 0, 64)
	if err != nil || strings.Contains(word, "_") {
		return token{}, 0, fmt.Errorf("%s is not a number", word)
	}
	return token{kind: tokenInt, bits: bits}, n, nil
}

// isDecimalExponent reports whether a sign may follow: 1e-5, but not 0x1e-5.
func isDecimalExponent(s string) bool {
	lower := strings.ToLower(s)
	return strings.HasSuffix(lower, "e") && !strings.HasPrefix(lower, "0x") && !strings.HasPrefix(lower, "0f") && !strings.HasPrefix(lower, "0d")
}

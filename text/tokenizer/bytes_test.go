package tokenizer

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/krait-ml/krait/internal/prop"
	"pgregory.net/rapid"
)

func TestBytesMalformed(t *testing.T) {
	for _, test := range []struct{ bytes, want string }{
		{"", ""},
		{"caf\xc3\xa9", "café"},
		{"\xff", "\uFFFD"},
		{"\xe2\x82", "\uFFFD"},
		{"\xe2\x82a", "\uFFFDa"},
		{"\xf0\x9f\x98a", "\uFFFDa"},
		{"\xf0\x9f\xf0\x9f\x98\x80", "\uFFFD😀"},
		{"\xe0\x80\x80", "\uFFFD\uFFFD\uFFFD"},            // overlong
		{"\xed\xa0\x80", "\uFFFD\uFFFD\uFFFD"},            // surrogate
		{"\xf4\x90\x80\x80", strings.Repeat("\uFFFD", 4)}, // above U+10FFFF
		{"\xef\xbf\xbd", "\uFFFD"},
	} {
		ids := encode(t, Bytes{}, test.bytes, true)
		if got := (Bytes{}).Decode(ids, false); got != test.want {
			t.Errorf("Decode(% x) = %q, want %q", test.bytes, got, test.want)
		}
	}
}

func TestBytesIDs(t *testing.T) {
	if got := (Bytes{}).Decode([]int{-1, 'a', 256, 'b', 1 << 40}, true); got != "ab" {
		t.Errorf("Decode of ids that are not bytes = %q, want \"ab\"", got)
	}
	for id := range 256 {
		piece, ok := Bytes{}.Piece(id)
		back, ok2 := Bytes{}.ID(piece)
		if !ok || !ok2 || back != id {
			t.Errorf("ID(Piece(%d)) = %d", id, back)
		}
	}
	if _, ok := (Bytes{}).Piece((Bytes{}).Size()); ok {
		t.Error("Piece(Size()) exists")
	}
}

func TestBytesStream(t *testing.T) {
	prop.Check(t, func(t *rapid.T) {
		b := rapid.SliceOf(rapid.OneOf(
			rapid.SampledFrom([]byte("a\x80\xbf\xc3\xe2\xed\xf0\xf4\x9f\x90")),
			rapid.Byte(),
		)).Draw(t, "bytes")
		ids := encode(t, Bytes{}, string(b), false)
		checkStream(t, Bytes{}, ids, false)
		if utf8.Valid(b) && (Bytes{}).Decode(ids, false) != string(b) {
			t.Fatalf("valid text % x does not round-trip", b)
		}
	})
}

// checkStream requires that a stream gives what Decode gives, in whole characters.
func checkStream(t interface{ Fatalf(string, ...any) }, tok Tokenizer, ids []int, skipSpecial bool) {
	var text strings.Builder
	stream := tok.NewStream(skipSpecial)
	for _, id := range ids {
		s := stream.Push(id)
		if !utf8.ValidString(s) {
			t.Fatalf("Push(%d) = %q: not whole characters", id, s)
		}
		text.WriteString(s)
	}
	text.WriteString(stream.Flush())
	if want := tok.Decode(ids, skipSpecial); text.String() != want {
		t.Fatalf("stream of %v = %q, Decode = %q", ids, text.String(), want)
	}
	if s := stream.Flush(); s != "" {
		t.Fatalf("second Flush = %q", s)
	}
}

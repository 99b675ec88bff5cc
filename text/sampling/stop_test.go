package sampling

import (
	"fmt"
	"strings"
	"testing"

	"github.com/krait-ml/krait/internal/prop"
	"pgregory.net/rapid"
)

func newStop(t interface{ Fatal(...any) }, texts ...string) *Stop {
	st, err := NewStop(texts)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// cutAtFirst is what a Stop should give for a whole text.
func cutAtFirst(text string, stops []string) string {
	end := len(text)
	for _, stop := range stops {
		if i := strings.Index(text, stop); i >= 0 {
			end = min(end, i)
		}
	}
	return text[:end]
}

// However a text is cut into pieces, the output is the text up to the first
// occurrence of a stop string: here for every text of six letters a or b, every
// pair of short stop strings, and every cut.
func TestStopExhaustively(t *testing.T) {
	const length = 6
	stops := append(words(1), append(words(2), words(3)...)...)
	for _, text := range words(length) {
		for _, first := range stops {
			for _, second := range stops {
				for cuts := range 1 << (length - 1) { // a bit for each place to cut
					var pieces []string
					begin := 0
					for i := range length {
						if i == length-1 || cuts>>i&1 != 0 {
							pieces = append(pieces, text[begin:i+1])
							begin = i + 1
						}
					}
					checkStop(t, []string{first, second}, pieces)
				}
			}
		}
	}
}

// words returns all words of n letters a or b.
func words(n int) []string {
	if n == 0 {
		return []string{""}
	}
	var list []string
	for _, word := range words(n - 1) {
		list = append(list, word+"a", word+"b")
	}
	return list
}

// The same for longer texts and more stop strings, with letters of two bytes
// that the pieces may cut.
func TestStopInAnyPieces(t *testing.T) {
	letters := rapid.RuneFrom([]rune("abé"))
	prop.Check(t, func(t *rapid.T) {
		stops := rapid.SliceOfN(rapid.StringOfN(letters, 1, 5, -1), 1, 4).Draw(t, "stops")
		rest := rapid.StringOfN(letters, 20, 60, -1).Draw(t, "text")
		var pieces []string
		for rest != "" {
			n := rapid.IntRange(0, min(4, len(rest))).Draw(t, "piece")
			pieces, rest = append(pieces, rest[:n]), rest[n:]
		}
		checkStop(t, stops, pieces)
	})
}

// checkStop checks what a Stop emits for the pieces of a text.
func checkStop(t interface{ Fatal(...any) }, stops, pieces []string) {
	want := cutAtFirst(strings.Join(pieces, ""), stops)
	st := newStop(t, stops...)
	in, out, ended := "", "", false
	for _, piece := range pieces {
		emit, stopped := st.Push(piece)
		in, out = in+piece, out+emit
		switch {
		case ended && (emit != "" || !stopped):
			t.Fatal(fmt.Sprintf("stops %q, pieces %q: %q, %v after the end", stops, pieces, emit, stopped))
		case stopped && out != want:
			t.Fatal(fmt.Sprintf("stops %q, pieces %q: stopped with %q, want %q", stops, pieces, out, want))
		case !stopped && !begins(in[len(out):], stops):
			t.Fatal(fmt.Sprintf("stops %q, pieces %q: held back %q after %q, which begins no stop string", stops, pieces, in[len(out):], out))
		}
		ended = stopped
	}
	if out += st.Flush(); out != want {
		t.Fatal(fmt.Sprintf("stops %q, pieces %q: got %q, want %q", stops, pieces, out, want))
	}
	if again := st.Flush(); again != "" {
		t.Fatal(fmt.Sprintf("flushed %q twice", again))
	}
}

// begins says whether held is the beginning, but not the whole, of a stop string.
func begins(held string, stops []string) bool {
	for _, stop := range stops {
		if strings.HasPrefix(stop, held) && stop != held {
			return true
		}
	}
	return false
}

func TestStop(t *testing.T) {
	for _, c := range []struct {
		stops  []string
		pieces []string
		want   string // emitted by each push, then by Flush; "!" where it stopped
	}{
		{nil, []string{"a", "b"}, `"a" "b" ""`},
		{[]string{"\n\n"}, []string{"a\n", "b\n", "\nc"}, `"a" "\nb" ""! ""`},
		{[]string{"</s>"}, []string{"x<", "/s", ">y", "z"}, `"x" "" ""! ""! ""`},
		{[]string{"</s>"}, []string{"x<", "/s"}, `"x" "" "</s"`},
		{[]string{"b", "abc"}, []string{"xab", "c"}, `"x" ""! ""`},          // abc begins first
		{[]string{"b", "abc"}, []string{"xab", "d"}, `"x" "a"! ""`},         // b does, as it turns out
		{[]string{"b", "abc"}, []string{"xab"}, `"x" "a"`},                  // the same at the end
		{[]string{"aab"}, []string{"a", "a", "a", "b"}, `"" "" "a" ""! ""`}, // a match inside a failed one
		{[]string{"ab", "abc"}, []string{"abc"}, `""! ""`},
		{[]string{"é"}, []string{"\xc3", "\xa9"}, `"" ""! ""`},
	} {
		st := newStop(t, c.stops...)
		var got strings.Builder
		for _, piece := range c.pieces {
			emit, stopped := st.Push(piece)
			mark := ""
			if stopped {
				mark = "!"
			}
			fmt.Fprintf(&got, "%q%s ", emit, mark)
		}
		fmt.Fprintf(&got, "%q", st.Flush())
		if got.String() != c.want {
			t.Errorf("stops %q, pieces %q: got %s, want %s", c.stops, c.pieces, got.String(), c.want)
		}
	}
}

func TestStopErrors(t *testing.T) {
	if _, err := NewStop([]string{"a", ""}); err == nil || err.Error() != "stop string 1 is empty; it would end every text at once" {
		t.Errorf("got %v", err)
	}
}

// Text that matches for long and then fails takes linear time.
func BenchmarkStop(b *testing.B) {
	stop, piece := strings.Repeat("a", 1000)+"b", strings.Repeat("a", 1000)
	for b.Loop() {
		newStop(b, stop).Push(piece)
	}
}

package krait

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/krait-ml/krait/text/tokenizer"
)

// pieces is a tokenizer whose token i is the text i.
type pieces struct {
	tokenizer.Tokenizer
	list []string
}

func (p pieces) NewStream(bool) tokenizer.Stream { return pieceStream(p) }

type pieceStream pieces

func (s pieceStream) Push(id int) string { return s.list[id] }
func (s pieceStream) Flush() string      { return "" }

// TestStopFinder: over random texts in pieces the finder stops where the writer does, and then
// knows as many final tokens as there are, or fewer where it could not know; before, it says of all
// tokens, of all but the last, or what it said.
func TestStopFinder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 30))
	letters := func(least, most int) string {
		b := make([]byte, least+rng.IntN(most-least+1))
		for i := range b {
			b[i] = "abc"[rng.IntN(3)]
		}
		return string(b)
	}
	stopped, short := 0, 0
	for range 3000 {
		m := &Model{tokens: pieces{list: []string{"", "a", "b", "c", letters(2, 3), letters(2, 4), letters(3, 5)}}}
		o := Generate{Stop: []string{letters(1, 4), letters(2, 5)}}
		w, err := m.newWriter(&o)
		if err != nil {
			t.Fatal(err)
		}
		f, err := m.newStopFinder(&o)
		if err != nil {
			t.Fatal(err)
		}
		said := 0
		var ends []int // of the tokens, in the text
		for n := 1; n <= 30; n++ {
			id := rng.IntN(len(m.tokens.(pieces).list))
			ends = append(ends, len(m.tokens.(pieces).list[id]))
			if n > 1 {
				ends[n-1] += ends[n-2]
			}
			stop := f.push(id)
			if stop != w.push(id) {
				t.Fatalf("%q: the finder stops: %v, and the writer does not agree", o.Stop, stop)
			}
			if f.final != n && f.final != n-1 && f.final != said {
				t.Fatalf("%q: after %d tokens %d are final, before %d", o.Stop, n, f.final, said)
			}
			said = f.final
			if !stop {
				continue
			}
			stopped++
			final := 0
			for final < n && ends[final] <= w.text.Len() {
				final++
			}
			if f.final > final {
				t.Fatalf("%q: %d tokens are said to be final of %q, and %d are", o.Stop, f.final, w.text.String(), final)
			}
			if f.final < final {
				short++
			}
			break
		}
	}
	if stopped < 2000 || short > stopped/4 {
		t.Errorf("%d texts were stopped, and in %d of them fewer tokens are known", stopped, short)
	}
}

// TestStopLeaves: a text that a stop string ends leaves the states after what its reader saw, also
// where the stop string has several tokens: a turn that repeats the text and goes on hits all of
// it.
func TestStopLeaves(t *testing.T) {
	m, err := Embedded(Options{PrefixCache: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	prompt := strings.Repeat("In the beginning God created the heaven and the earth. ", 2)
	plain, err := m.Generate(t.Context(), prompt, Generate{MaxTokens: 60})
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= 5; n++ {
		for at := 0; at < 40; at += 13 {
			stop := plain.Text[at : at+n]
			seen := strings.Index(plain.Text, stop)
			o := Generate{MaxTokens: 60, Stop: []string{stop}, Salt: fmt.Sprint(n, at)}
			g, err := m.Generate(t.Context(), prompt, o)
			if err != nil || g.Text != plain.Text[:seen] || g.Reason != ReachedStop {
				t.Fatalf("stop string %q: %+v, %v", stop, g, err)
			}
			next, err := m.Generate(t.Context(), prompt+g.Text+"\nAnd more.", Generate{MaxTokens: 1, Salt: o.Salt})
			if want := len(prompt) + seen; err != nil || next.CachedTokens != want { // a token is a byte
				t.Errorf("stop string %q: %d tokens are hit by the next turn, want %d; %v", stop, next.CachedTokens, want, err)
			}
			if s := m.Session().PrefixCache(); s.Failures > 0 {
				t.Fatalf("%+v", s)
			}
		}
	}
}

package draft

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/krait-ml/krait/internal/prop"
)

// latest is the definition: the place after the latest earlier occurrence of the longest suffix, of
// 2 to 5 tokens, of which none is before begin.
func latest(text []int, begin int) (place, n int) {
	for n := min(longest, len(text)-begin); n >= shortest; n-- {
		for end := len(text) - 1; end-n >= begin; end-- {
			if slices.Equal(text[end-n:end], text[len(text)-n:]) {
				return end, n
			}
		}
	}
	return 0, 0
}

// copying is a text of a few tokens that repeats earlier parts of it.
func copying(r *rand.Rand, n, vocab int) []int {
	var text []int
	for len(text) < n {
		if m := len(text); m > 10 && r.IntN(3) == 0 {
			from := r.IntN(m - 5)
			text = append(text, text[from:from+r.IntN(m-from)]...)
		}
		text = append(text, r.IntN(vocab))
	}
	return text[:n]
}

// TestNGram: a guess is the tokens after the latest earlier place of the longest n-gram, as the
// definition finds it.
func TestNGram(t *testing.T) {
	r := rand.New(rand.NewPCG(prop.Seed(t), 1))
	guesses := 0
	for range 30 {
		d := NGram(nil, "").(*ngram)
		if r.IntN(2) == 0 {
			d.own.window = 20 + r.IntN(100)
		}
		text := copying(r, 600, 2+r.IntN(40))
		for i := range text {
			d.Read(text[i])
			read, n := text[:i+1], r.IntN(20)
			place, want := latest(read, max(i+1-d.own.window, 0))
			grade, got := d.Grade(), d.Draft([]int{-7}, n)
			if grade != want-shortest {
				t.Fatalf("%v: grade %d, the definition has %d tokens", read, grade, want)
			}
			if want == 0 {
				if len(got) != 1 {
					t.Fatalf("%v: a guess %v of nothing", read, got)
				}
				continue
			}
			guesses++
			for k := range n { // a text that ends goes on as if it repeated
				read = append(read[:len(read):len(read)], read[place+k])
			}
			if !slices.Equal(got[1:], read[i+1:]) {
				t.Fatalf("%v at %d: %v, want %v", text[:i+1], place, got[1:], read[i+1:])
			}
		}
	}
	if guesses < 1000 {
		t.Errorf("%d guesses", guesses)
	}
}

// TestPool: a text of a salt helps later ones of the salt, and no others; the pool keeps its size,
// and forgets the salt that was used least recently.
func TestPool(t *testing.T) {
	p := NewPool(1 << 16)
	text := rand.New(rand.NewPCG(1, 1)).Perm(300)
	guess := func(salt string) []int {
		d := NGram(p, salt)
		d.Read(text[100:105]...)
		return d.Draft(nil, 4)
	}
	first := NGram(p, "a")
	first.Read(text...)
	if got := guess("a"); len(got) > 0 {
		t.Errorf("%v before the first text has ended", got)
	}
	first.Close()
	if got := guess("a"); !slices.Equal(got, text[105:109]) {
		t.Errorf("%v, want %v", got, text[105:109])
	}
	if got := guess("b"); len(got) > 0 {
		t.Errorf("another salt's %v", got)
	}
	end := NGram(p, "a")
	if end.Read(text[295:]...); len(end.Draft(nil, 4)) > 0 {
		t.Errorf("%v after the end of a text", end.Draft(nil, 4))
	}
	for i := range 100 {
		d := NGram(p, fmt.Sprint(i))
		d.Read(text...)
		d.Close()
		if guess("a"); p.Bytes() > 1<<16 {
			t.Fatalf("%d bytes", p.Bytes())
		}
	}
	if got := guess("a"); !slices.Equal(got, text[105:109]) {
		t.Errorf("the salt in use was evicted: %v", got)
	}
	if len(p.texts) < 3 || p.texts["0"] != nil {
		t.Errorf("%d salts are left, the oldest among them: %v", len(p.texts), p.texts["0"] != nil)
	}
	long := NGram(p, "a")
	for range 50 {
		long.Read(text...)
		long.Close()
	}
	if p.Bytes() > 1<<16 {
		t.Errorf("a long text makes it %d bytes", p.Bytes())
	}
}

// BenchmarkNGram is the time of a token that is read and looked up.
func BenchmarkNGram(b *testing.B) {
	text := copying(rand.New(rand.NewPCG(1, 1)), 1<<16, 5000)
	d := NGram(nil, "")
	var guess []int
	for i := range b.N {
		d.Read(text[i%len(text)])
		guess = d.Draft(guess[:0], 8)
	}
}

// BenchmarkTrees tells what a second branch could save: the steps that a text takes with one line
// of drafts, and with the better of two lines whose first tokens differ, at no cost of the second.
// The second follows the latest earlier place of the same n-gram, or of shorter ones.
func BenchmarkTrees(b *testing.B) {
	const drafts = 7
	for _, file := range []string{"../../testdata/val.txt", "../../graph/derive.go", "../../docs/api.md"} {
		text, err := os.ReadFile(file)
		if err != nil {
			b.Fatal(err)
		}
		tokens := words(string(text))
		b.Run(filepath.Base(file), func(b *testing.B) {
			for b.Loop() {
				one, two := steps(tokens, drafts, 1), steps(tokens, drafts, 2)
				b.ReportMetric(float64(len(tokens))/float64(one), "tokens/step")
				b.ReportMetric(float64(one)/float64(two), "gain")
			}
		})
	}
}

// words numbers the words of a text, and what is between them.
func words(text string) (tokens []int32) {
	numbers := map[string]int32{}
	for _, w := range regexp.MustCompile(`\w+|\W`).FindAllString(text, -1) {
		if _, ok := numbers[w]; !ok {
			numbers[w] = int32(len(numbers))
		}
		tokens = append(tokens, numbers[w])
	}
	return tokens
}

// steps is how many steps a text takes if each checks up to some lines of drafts.
func steps(tokens []int32, drafts, lines int) (n int) {
	for at := longest; at < len(tokens); n++ {
		best := 0
		for _, place := range places(tokens, at, lines) {
			right := 0
			for right < drafts && at+right < len(tokens) && tokens[place+right] == tokens[at+right] {
				right++
			}
			best = max(best, right)
		}
		at += best + 1
	}
	return n
}

// places are the latest places after the n-grams that end before at, of different next tokens, of
// the longest n-grams first.
func places(tokens []int32, at, most int) (out []int) {
	for n := longest; n >= shortest; n-- {
		for place := at - 1; place >= n && len(out) < most; place-- {
			same := slices.Equal(tokens[place-n:place], tokens[at-n:at])
			if same && !slices.ContainsFunc(out, func(p int) bool { return tokens[p] == tokens[place] }) {
				out = append(out, place)
			}
		}
	}
	return out
}

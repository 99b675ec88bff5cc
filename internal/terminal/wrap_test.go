package terminal

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/krait-ml/krait/internal/prop"
	"github.com/krait-ml/krait/internal/terminal/ptytest"
)

// wrapped is what a screen of some columns shows of Markdown.
func wrapped(columns int, parts ...string) (text string, raw string) {
	s := ptytest.NewScreen(columns)
	w := NewWrapped(s)
	w.width = func() int { return columns }
	for _, p := range parts {
		w.Write([]byte(p))
	}
	w.End()
	return s.Text(), s.Raw.String()
}

// TestWrapped: lines by hand, in 20 columns.
func TestWrapped(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"In the beginning God created the heaven.", "In the beginning\nGod created the\nheaven."},
		{"one\n\ntwo  three", "one\n\ntwo  three"},
		{"- an item of several words\n  - one below it here\n12. a number of words", "- an item of\n  several words\n  - one below it\n    here\n12. a number of\n    words"},
		{"> quoted text of many words", "> quoted text of\n> many words"},
		{"```go\nfunc f(a, b, c, d int) {}\n        x\n```\nand prose after the code", "```go\nfunc f(a, b, c, d in\nt) {}\n        x\n```\nand prose after the\ncode"},
		{"| a | table | of | columns |", "| a | table | of | c\nolumns |"},
		{"Supercalifragilisticexpialidocious", "Supercalifragilistic\nexpialidocious"},
		{"a supercalifragilistic b", "a\nsupercalifragilistic\nb"},
		{"bad \x1b[31m \x07 \u202e", "bad ␛[31m ␇ \ufffd"},
		{"-1 is a number, and - no item of a list", "-1 is a number, and\n- no item of a list"},
	} {
		if got, _ := wrapped(20, c.text); got != c.want {
			t.Errorf("%q:\n%s\nwant\n%s", c.text, got, c.want)
		}
	}
	if got, raw := wrapped(20, "# A `b` c"); !strings.Contains(raw, "\x1b[0;1m# A \x1b[0;36m`b`") {
		t.Errorf("%q: %q", got, raw)
	}
	t.Setenv("NO_COLOR", "1")
	if got, raw := wrapped(20, "# A `b` c"); strings.Contains(raw, "m") {
		t.Errorf("%q: %q", got, raw)
	}
}

// TestWrappedCuts: text in parts looks as it does whole, with a status meanwhile, which goes; no
// character but blanks is lost or moved, and no line of prose is longer than the window.
func TestWrappedCuts(t *testing.T) {
	words := []string{"a", "of", "several", "`code`", "-", "1.", ">", "#", "\n", "\n", "\n```\n", "|", "  ", "internationalization", "tail\t", "é"}
	random := rand.New(rand.NewPCG(prop.Seed(t), 0))
	for range 300 {
		var b strings.Builder
		for range 40 {
			b.WriteString(words[random.IntN(len(words))])
			if random.IntN(4) > 0 {
				b.WriteByte(' ')
			}
		}
		text := b.String()
		columns := 12 + random.IntN(60)
		want, _ := wrapped(columns, text)
		s := ptytest.NewScreen(columns)
		w := NewWrapped(s)
		w.width = func() int { return columns }
		seen := false
		for rest := []rune(text); len(rest) > 0; {
			n := 1 + random.IntN(min(8, len(rest)))
			w.Status("generated 12 tokens at 8.1 tokens/s")
			w.Write([]byte(string(rest[:n])))
			rest = rest[n:]
			lines := strings.Split(s.Text(), "\n")
			seen = seen || strings.HasPrefix(lines[len(lines)-1], "generated")
		}
		if !seen {
			t.Errorf("no status below:\n%s", s.Text())
		}
		if w.End(); s.Text() != want {
			t.Fatalf("%q in parts:\n%s\nwhole:\n%s", text, s.Text(), want)
		}
		if letters(s.Text()) != letters(text) {
			t.Fatalf("%q:\n%s", text, s.Text())
		}
	}
}

// letters are the characters of a text that are no blanks. Marks of quotations repeat.
func letters(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), ""), ">", "")
}

// TestColumns: wide characters have two columns, and lines break before any of them.
func TestColumns(t *testing.T) {
	for r, want := range map[rune]int{'a': 1, 'é': 1, '日': 2, '한': 2, '，': 2, '🙂': 2, '\u0301': 0, '\u200d': 0, '→': 1, 'Ж': 1} {
		if got := columns(r); got != want {
			t.Errorf("%c: %d columns, want %d", r, got, want)
		}
	}
	var b strings.Builder
	w := NewWrapped(&b)
	w.width = func() int { return 10 }
	w.Write([]byte("日本語日本語日本語"))
	w.End()
	if got := strings.ReplaceAll(b.String(), "\x1b[J", ""); got != "日本語日\n本語日本\n語\n" {
		t.Errorf("%q", got)
	}
}

// TestBreak: lines break at words, and hold as many as fit.
func TestBreak(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"[ended by token limit]", "[ended by\ntoken\nlimit]"},
		{"ten of ten\n\n  ab", "ten of ten\n\n  ab"},
		{"a 日本語日本 b", "a\n日本語日本\nb"},
		{"one twelveletters b", "one\ntwelveletters\nb"},
	} {
		if got := broken(c.text, 10); got != c.want {
			t.Errorf("%q:\n%s\nwant\n%s", c.text, got, c.want)
		}
	}
}

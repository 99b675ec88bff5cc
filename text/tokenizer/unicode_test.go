package tokenizer

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"github.com/krait-ml/krait/internal/goldens"
)

// TestUnicodeVersion fails when Go's tables are newer than those from which
// the tables of this package tell the differences.
func TestUnicodeVersion(t *testing.T) {
	if unicode.Version != "15.0.0" || norm.Version != "15.0.0" {
		t.Errorf("unicode %s and norm %s: make the tables of unicode.go relative to them, not to 15.0.0",
			unicode.Version, norm.Version)
	}
}

// TestUnicodeTables compares every code point, by default one of seven, with what the reference
// said.
func TestUnicodeTables(t *testing.T) {
	data, err := os.ReadFile("testdata/unicode-vs-15.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Classes map[string]struct{ Added, Removed []string }
		Inert   []string `json:"nfc_inert"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	ascii := func(r rune) bool { return r < 128 && (unicode.IsPunct(r) || unicode.IsSymbol(r)) }
	step := rune(1)
	if goldens.Few(t) {
		step = 7
	}
	for name, diff := range file.Classes {
		base := func(r rune) bool { return unicode.Is(unicode.Categories[name[strings.Index(name, "_")+1:]], r) }
		var got runeSet
		switch name {
		case "Digits":
			got, base = digits(), unicode.IsNumber
		case "Punctuation":
			got, base = punctuation(), func(r rune) bool { return unicode.IsPunct(r) || ascii(r) }
		default:
			got = categories()[name[strings.Index(name, "_")+1:]]
		}
		added, removed := parseSet(strings.Join(diff.Added, " ")), parseSet(strings.Join(diff.Removed, " "))
		for r := rune(0); r <= unicode.MaxRune; r += step {
			want := (base(r) || added.contains(r)) && !removed.contains(r)
			if got.contains(r) != want {
				t.Errorf("%s: contains(%U) = %v, want %v", name, r, !want, want)
			}
		}
	}
	want := parseSet(strings.Join(file.Inert, " "))
	for r := rune(0); r <= unicode.MaxRune; r += step {
		if inert().contains(r) != want.contains(r) {
			t.Errorf("inert: contains(%U) = %v", r, inert().contains(r))
		}
		if isSpace(r) != unicode.IsSpace(r) {
			t.Errorf("isSpace(%U) = %v", r, isSpace(r))
		}
	}
}

func TestRuneSetAlgebra(t *testing.T) {
	letters := tableSet(unicode.L)
	other := letters.complement()
	both := union(letters, other)
	if len(both) != 1 || both[0] != (runeRange{0, unicode.MaxRune}) {
		t.Errorf("a set and its complement make %v", both)
	}
	if left := intersection(letters, other); len(left) > 0 {
		t.Errorf("a set and its complement share %v", left)
	}
	for r := range unicode.MaxRune + 1 {
		if letters.contains(r) != unicode.IsLetter(r) || other.contains(r) == unicode.IsLetter(r) {
			t.Fatalf("%U is in the wrong set", r)
		}
	}
}

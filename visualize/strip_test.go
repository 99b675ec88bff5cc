package visualize

import (
	"fmt"
	"strings"
	"testing"

	"github.com/krait-ml/krait/internal/prop"
	"pgregory.net/rapid"
)

func TestRepeats(t *testing.T) {
	m := strings.Repeat
	for sequence, want := range map[string]string{
		"":                                  "",
		"M":                                 "M",
		m("M", 64):                          "M×64",
		m("MNMNANMN", 4):                    "MNMNANMN×4",
		"MMH" + m("M", 4) + "H" + m("M", 2): "MMHMM×2",
		m("MMMMMH", 6) + "MM":               "MMMMMH×6 M×2",
		m("M", 9) + "A" + m("MMMMMMMMA", 2) + "MMMM": "M MMMMMMMMA×3 M×4",
	} {
		s := make([]int, len(sequence))
		for i := range sequence {
			s[i] = int(sequence[i])
		}
		var rows []string
		for _, r := range repeats(s) {
			row := sequence[r.first : r.first+r.len]
			if r.times > 1 {
				row += fmt.Sprintf("×%d", r.times)
			}
			rows = append(rows, row)
		}
		if got := strings.Join(rows, " "); got != want {
			t.Errorf("%s is written %s, want %s", sequence, got, want)
		}
	}
}

// Whatever the layers are, the rows say them all, in order.
func TestRepeatsAreAll(t *testing.T) {
	prop.Check(t, func(t *rapid.T) {
		s := rapid.SliceOf(rapid.IntRange(0, 2)).Draw(t, "layers")
		var got []int
		for _, r := range repeats(s) {
			if r.first != len(got) || r.len < 1 || r.len > patternMax || r.times < 1 {
				t.Fatalf("row %+v after %d layers", r, len(got))
			}
			for range r.times {
				got = append(got, s[r.first:r.first+r.len]...)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(s) {
			t.Fatalf("rows say %v of %v", got, s)
		}
	})
}

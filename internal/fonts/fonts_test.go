package fonts

import "testing"

// TestWidth: a line is the sum of its letters, and what the table does not have is an em.
func TestWidth(t *testing.T) {
	for _, c := range []struct {
		text string
		size float64
		bold bool
		want float64
	}{
		{"", 11, false, 0}, {"Wi", 10, false, 12.67}, {"Wi", 10, true, 14.46}, {"…", 9, false, 9}, {"~\u00a0", 10, false, 11.56}, {"\n", 10, true, 10},
	} {
		if got := Width(c.text, c.size, c.bold); got < c.want-1e-9 || got > c.want+1e-9 {
			t.Errorf("%q of size %g is %g wide, want %g", c.text, c.size, got, c.want)
		}
	}
}

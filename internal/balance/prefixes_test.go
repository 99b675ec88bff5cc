package balance

import (
	"hash/maphash"
	"strings"
	"testing"
)

// TestSeen: what is remembered is what was sent, of the last prompts all, and there is a bound.
func TestSeen(t *testing.T) {
	seed := maphash.MakeSeed()
	of := func(tenant, text string) []uint64 { return Blocks(seed, []byte(tenant), []byte(text)) }
	var s Prefixes
	a := strings.Repeat("a", 3*BlockBytes+5)
	s.Add(of("x", a))
	for _, c := range []struct {
		tenant, text string
		want         int
	}{
		{"x", a, 3 * BlockBytes}, {"x", a + "b", 3 * BlockBytes}, {"x", a[:2*BlockBytes+1] + strings.Repeat("b", 200), 2 * BlockBytes},
		{"y", a, 0}, {"x", "b" + a, 0}, {"x", a[:BlockBytes-1], 0}, {"x", "", 0}, {"xa", a[1:], 0},
	} {
		if got := s.Match(of(c.tenant, c.text)); got != c.want {
			t.Errorf("%s %.10q: %d bytes, want %d", c.tenant, c.text, got, c.want)
		}
	}
	for i := range 5 * mostBlocks {
		s.Add([]uint64{uint64(i)})
		if len(s.now)+len(s.before) > 2*mostBlocks {
			t.Fatalf("%d blocks are kept", len(s.now)+len(s.before))
		}
	}
	for i := range mostBlocks {
		if s.Match([]uint64{uint64(5*mostBlocks - 1 - i)}) == 0 {
			t.Fatalf("of the last %d one is forgotten: %d", mostBlocks, i)
		}
	}
	if s.Match(of("x", a)) != 0 {
		t.Error("what was long ago is remembered")
	}
}

package prove

import "testing"

// TestTitle: numbered blocks are ranges, others are listed.
func TestTitle(t *testing.T) {
	for _, c := range []struct {
		blocks []string
		want   string
	}{
		{nil, "outside of blocks"},
		{[]string{"layers.7"}, "layers.7"},
		{[]string{"layers.3", "layers.4", "layers.5"}, "layers.3 and the 2 after it"},
		{[]string{"layers.0", "layers.1", "layers.2", "layers.4", "layers.9", "layers.10"}, "layers.0-2, 4, 9-10"},
		{[]string{"layers.0", "shared"}, "layers.0, shared"},
	} {
		if got := (Part{Blocks: c.blocks}).title(); got != c.want {
			t.Errorf("%v: %s, want %s", c.blocks, got, c.want)
		}
	}
}

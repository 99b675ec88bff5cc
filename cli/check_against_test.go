package cli

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/krait-ml/krait/exec/cpu"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/kernels/reference"
	"github.com/krait-ml/krait/lab/check"
)

// TestTallied: calls of own kernels are counted apart, and the others are named.
func TestTallied(t *testing.T) {
	own := kernels.Set{}
	for name, k := range reference.Kernels {
		if name != "selective_scan" && name != "embedding" {
			own[name] = k
		}
	}
	set, share := tallied(own)
	dir, last := t.TempDir(), [2]int{}
	tell := func(done, all int) { last = [2]int{done, all} }
	if err := check.Record(context.Background(), "../testdata/golden/mamba-a", &cpu.Device{Kernels: set}, filepath.Join(dir, "x.safetensors"), tell); err != nil {
		t.Fatal(err)
	}
	if last != [2]int{32, 32} {
		t.Errorf("progress ends at %v, want 32 of 32 tokens", last)
	}
	// Each of 10 steps has an embedding and 3 scans.
	if got, want := share(), "computed 313 of 353 operations; plain kernels computed embedding, selective_scan"; got != want {
		t.Errorf("%q; want %q", got, want)
	}
	if _, share := tallied(nil); share() != "" {
		t.Errorf("plain kernels alone have the share %q", share())
	}
}

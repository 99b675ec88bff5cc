package tests

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/exec/cpu"
	"github.com/krait-ml/krait/internal/covering"
)

// TestHitsAfterOthers: an exact hit has the bits of the whole prompt, also where another prompt or
// its answer ended inside of a block before the hit, and so has rows of other bits there: by the
// narrow product, or by a partial chunk of ssd_scan. In KV pages of any size, from the host tier,
// and from a folder.
func TestHitsAfterOthers(t *testing.T) {
	pages, tiers := []int{1, 16, 24, 64}, []string{"device", "host", "folder"}
	for _, c := range covering.Cases(t, len(pages), len(tiers), 2) {
		page, tier := pages[c[0]], tiers[c[1]]
		dir, on := "../testdata/golden/jamba", emulatedWide(t, 2)
		if c[2] == 1 { // which has ssd_scan
			dir, on = "../testdata/golden/bamba", &cpu.Device{Workers: 2}
		}
		t.Run(fmt.Sprintf("%s/%s/page=%d", filepath.Base(dir), tier, page), func(t *testing.T) {
			alone := openModel(t, dir, krait.Options{Slots: 1, Device: on})
			o := krait.Options{Slots: 2, Device: on, PageTokens: page, PrefixCache: 1 << 40}
			switch e := alone.Engine(); tier {
			case "host": // the device has room for one sequence
				o.PrefixPolicy, o.PrefixCacheHost = "lru", 1<<40
				o.PrefixCache = 4*e.StateBytes() + 300*e.KVBytes()
			case "folder":
				o.PrefixCacheDir = t.TempDir()
			}
			r := &hitReader{t: t, alone: alone, m: openModel(t, dir, o), between: func(r *hitReader) {}}
			switch tier {
			case "host":
				r.between = (*hitReader).fill
			case "folder":
				r.between = func(r *hitReader) {
					if err := r.m.Close(); err != nil {
						t.Fatal(err)
					}
					r.m = openModel(t, dir, o)
				}
			}
			r.read(0, 1, r.prompt(100, 1))
			r.read(64, 1, r.prompt(100, 7))
			r.read(64, 1, r.prompt(200, 2))
			r.read(192, 1, r.prompt(200, 3))
			between := r.between
			r.between = func(*hitReader) {} // the device keeps rows of these beside states of the host
			r.read(64, 1, r.prompt(100, 8))
			r.read(64, 1, r.prompt(100, 9))
			r.between = between
			r.read(192, 1, r.prompt(200, 10))
			answer := r.read(64, 90, r.prompt(70, 4))
			said := slices.Concat(r.prompt(70, 4), answer[:80])
			r.read(64, 1, append(said, 5, 5, 5))
			r.read(128, 1, append(said, 6, 6, 6))
		})
	}
}

// hitReader compares answers with a cache to those without one.
type hitReader struct {
	t        *testing.T
	alone, m *krait.Model
	between  func(*hitReader) // is called after each
}

// prompt is n tokens that all prompts share and a tail.
func (r *hitReader) prompt(n, tail int) []int {
	return append(slices.Clone(randomIDs(200, r.m.Vocab())[:n]), tail, tail, tail)
}

// read returns the answer to a prompt, of which some tokens hit.
func (r *hitReader) read(hit, tokens int, prompt []int) []int {
	r.t.Helper()
	g := krait.Generate{MaxTokens: tokens, IgnoreEOS: true, LogProbs: true}
	want, err := r.alone.GenerateIDs(r.t.Context(), prompt, g)
	if err != nil {
		r.t.Fatal(err)
	}
	got, err := r.m.GenerateIDs(r.t.Context(), prompt, g)
	if err != nil || got.CachedTokens != hit {
		r.t.Fatalf("of %d tokens %d hit, want %d: %v", len(prompt), got.CachedTokens, hit, err)
	}
	if !slices.Equal(got.IDs, want.IDs) || !reflect.DeepEqual(got.LogProbs, want.LogProbs) {
		r.t.Errorf("after a hit of %d of %d tokens: %v, alone %v", hit, len(prompt), got, want)
	}
	r.between(r)
	return got.IDs
}

// fill evicts what was read from the device.
func (r *hitReader) fill() {
	for n := range 2 {
		g := krait.Generate{MaxTokens: 1, IgnoreEOS: true}
		if _, err := r.m.GenerateIDs(r.t.Context(), randomIDs(201+n, r.m.Vocab()), g); err != nil {
			r.t.Fatal(err)
		}
	}
}

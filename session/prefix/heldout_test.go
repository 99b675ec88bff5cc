package prefix_test

import (
	"fmt"
	"testing"

	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/session/prefix"
)

// heldOut is a trace with a seed that no policy was changed after, and a cache for it.
type heldOut struct {
	name     string
	model    prefix.Model
	capacity int64
	trace    []prefix.Request
}

// shapes of traces: kinds of package workload; one with floods of prompts that never come again;
// documents in turn; two kinds at once; documents of drifting popularity; one kind after another.
var shapes = []string{"chat", "agent", "fewshot", "docs", "tools", "flood", "cycle", "mix", "zipf", "phase"}

// models of the held-out traces.
var heldModels = []struct {
	name string
	prefix.Model
}{
	{"hybrid", prefix.Model{FLOPsPerToken: 12.5e9, FLOPsPerTokenSquared: 65_536, CacheBytes: 65_536, StateBytes: 26_787_840, Grain: prefix.Grain}},
	{"states only", prefix.Model{FLOPsPerToken: 14e9, StateBytes: 50 << 20, Grain: prefix.Grain}},
	{"attention only", prefix.Model{FLOPsPerToken: 14e9, FLOPsPerTokenSquared: 458_752, CacheBytes: 458_752, Grain: prefix.Grain}},
}

// drawHeldOut draws number i of the traces: shapes, models and capacities in turn.
func drawHeldOut(i int) heldOut {
	shape, m := shapes[i%len(shapes)], heldModels[i/len(shapes)%len(heldModels)]
	trace := shapeTrace(shape, uint64(14_000_000+i))
	whole := prefix.NewTree(m.Model, prefix.MostBytes, 0)
	for _, r := range trace {
		whole.Serve(r)
	}
	share := []float64{0.4, 0.2, 0.1, 0.05, 0.02}[i/(len(shapes)*len(heldModels))%5]
	return heldOut{fmt.Sprintf("%d, %s, %s, %g of all bytes", i, shape, m.name, share), m.Model, int64(share * float64(whole.Bytes())), trace}
}

func (h heldOut) hits(t *testing.T, policy string, capacity int64) int64 {
	t.Helper()
	r, err := prefix.Replay(policy, h.model, capacity, h.trace)
	if err != nil {
		t.Fatal(err)
	}
	return r.HitTokens
}

// TestHeldOut: on traces that no policy was changed after, of 500 requests and more, the default
// hits at least 99 % of the tokens that lru hits, and so does tuned; and the default more on most
// of those whose capacity binds. KRAIT_TEST_ALL replays 150.
func TestHeldOut(t *testing.T) {
	const all = 150
	step := 17 // all shapes, models and capacities
	switch {
	case goldens.All():
		step = 1
	case goldens.Few(t):
		step = 37
	}
	binding, more := 0, 0
	for i := 0; i < all; i += step {
		h := drawHeldOut(i)
		lru, whole := h.hits(t, "lru", h.capacity), h.hits(t, "lru", prefix.MostBytes)
		reuse, tuned := h.hits(t, prefix.Default, h.capacity), h.hits(t, "tuned", h.capacity)
		t.Logf("%s, %d requests: lru hits %d tokens, without a limit %d; tuned %+.1f %%, %s %+.1f %%", h.name, len(h.trace),
			lru, whole, percentOver(tuned, lru), prefix.Default, percentOver(reuse, lru))
		if len(h.trace) < 500 {
			t.Errorf("%s: %d requests are too few to say anything", h.name, len(h.trace))
		}
		if 100*min(reuse, tuned) < 99*lru {
			t.Errorf("%s: %s hits %d tokens, tuned %d, lru %d", h.name, prefix.Default, reuse, tuned, lru)
		}
		if 100*lru < 98*whole {
			binding++
			if reuse > lru {
				more++
			}
		}
	}
	t.Logf("capacity binds on %d traces; %s hits more than lru on %d", binding, prefix.Default, more)
	if 2*more < binding || binding < all/step/2 {
		t.Errorf("%s hits more than lru on %d of %d traces whose capacity binds, want half", prefix.Default, more, binding)
	}
}

// TestTunedFollows: on stationary traces tuned hits at least 97 % of the tokens of the best fixed
// α, also where the α on trial need many requests to tell, and where reuse hits less than that.
func TestTunedFollows(t *testing.T) {
	for _, c := range []struct {
		model int
		share float64
		seed  uint64
	}{{0, 0.05, 317}, {2, 0.05, 10_000_027}} {
		h := heldOut{heldModels[c.model].name, heldModels[c.model].Model, prefix.MostBytes, kindTrace("docs", 1500, c.seed, 1)}
		whole := prefix.NewTree(h.model, h.capacity, 0)
		for _, r := range h.trace {
			whole.Serve(r)
		}
		h.capacity = int64(c.share * float64(whole.Bytes()))
		best := int64(0)
		for _, alpha := range prefix.Alphas {
			best = max(best, h.hits(t, fmt.Sprint("flop:", alpha), h.capacity))
		}
		tuned, reuse := h.hits(t, "tuned", h.capacity), h.hits(t, "reuse", h.capacity)
		t.Logf("%s: the best α hits %d tokens, tuned %+.1f %%, reuse %+.1f %%", h.name, best, percentOver(tuned, best), percentOver(reuse, best))
		if 100*tuned < 97*best {
			t.Errorf("%s: tuned hits %d tokens, the best α %d", h.name, tuned, best)
		}
	}
}

func percentOver(a, b int64) float64 { return 100 * (float64(a)/float64(max(b, 1)) - 1) }

package prefix

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	share "github.com/krait-ml/krait/internal/goldens"
)

// unlimited is a capacity that nothing reaches.
const unlimited = MostBytes

// TestThirdTime: with a grain of one token a prefix is reused when it is seen for the third time,
// not the second.
func TestThirdTime(t *testing.T) {
	for name, m := range models {
		tree, want := NewTree(m, unlimited, 0), []int{0, 0, 5}
		switch {
		case m.StateBytes == 0:
			want[1] = 5 // attention only needs no state
		case m.Grain > 1: // the end of the first prompt is where they part, at the grain
			want = []int{0, 3, 3}
		}
		for i, end := range []string{"x", "y", "z"} {
			if hit := tree.Serve(request(float64(i), "ababa"+end, "")); hit != want[i] {
				t.Errorf("%s: time %d reuses %d tokens, want %d", name, i+1, hit, want[i])
			}
		}
	}
}

// TestSecondTurn: a conversation goes on where it was.
func TestSecondTurn(t *testing.T) {
	for name, m := range models {
		tree := NewTree(m, unlimited, 0)
		tree.Serve(request(0, "abc", "cab"))
		if hit := tree.Serve(request(1, "abccabaa", "")); hit != 6 {
			t.Errorf("%s: the second turn reuses %d tokens, want 6", name, hit)
		}
		// The whole prompt again: one token is computed, and there is no state before it.
		want := map[bool]int{true: 6, false: 7}[m.StateBytes > 0]
		if hit := tree.Serve(request(2, "abccabaa", "")); hit != want {
			t.Errorf("%s: the same prompt again reuses %d tokens, want %d", name, hit, want)
		}
	}
}

// TestRegenerate: the second reading of a prompt hits all but the tokens after the last multiple of
// the grain below its end, whatever came of it, and of a prompt that shares its beginning what they
// share, down to the grain, the second time.
func TestRegenerate(t *testing.T) {
	m := models["hybrid"]
	for m.Grain = 2; m.Grain < 20; m.Grain++ {
		for n := 1; n < 50; n++ {
			prompt := strings.Repeat("abcabbc", 8)[:n]
			tree := NewTree(m, unlimited, 0)
			want := (n - 1) / m.Grain * m.Grain
			for i, output := range []string{"ab", "", "ccc"} {
				if hit := tree.Serve(request(float64(i), prompt, output)); i > 0 && hit != want {
					t.Fatalf("grain %d: reading %d of %d tokens hits %d, want %d", m.Grain, i+1, n, hit, want)
				}
			}
			tree = NewTree(m, unlimited, 0)
			tree.Serve(request(0, prompt+strings.Repeat("x", m.Grain), ""))
			tree.Serve(request(1, prompt+strings.Repeat("y", m.Grain), ""))
			if hit := tree.Serve(request(2, prompt+strings.Repeat("z", m.Grain), "")); hit != n/m.Grain*m.Grain {
				t.Fatalf("grain %d: %d tokens are shared, and %d hit", m.Grain, n, hit)
			}
		}
	}
}

// traceOf draws requests that share beginnings.
func traceOf(seed uint64, n int) (trace []Request) {
	rng := rand.New(rand.NewPCG(seed, 10))
	var before []string
	for i := range n {
		input, output := drawRequest(rng, before)
		before = append(before, input+output)
		trace = append(trace, request(float64(i), input, output))
	}
	return trace
}

// TestFewStates: a request adds at most two states, and with a grain three.
func TestFewStates(t *testing.T) {
	states := func(tree *Tree) (n int) {
		for _, x := range tree.nodes {
			n += int(number(x.state))
		}
		return n
	}
	for name, want := range map[string]int{"hybrid": 2, "grain": 3} {
		most := 0
		for seed := range uint64(20) {
			tree := NewTree(models[name], unlimited, 0)
			for _, r := range traceOf(seed, 50) {
				was := states(tree)
				tree.Serve(r)
				most = max(most, states(tree)-was)
			}
		}
		if most != want {
			t.Errorf("%s: a request adds up to %d states, want %d", name, most, want)
		}
	}
}

// TestUnlimited: without a limit α makes no difference, and attention only reuses the
// longest beginning that any earlier request shares.
func TestUnlimited(t *testing.T) {
	seeds := uint64(20)
	if share.Few(t) {
		seeds = 5
	}
	for seed := range seeds {
		trace := traceOf(seed, 50)
		for name, m := range models {
			want, err := Replay("lru", m, unlimited, trace)
			if err != nil {
				t.Fatal(err)
			}
			for _, policy := range []string{"flop:0.1", "flop:10", "tuned", "reuse"} {
				got, err := Replay(policy, m, unlimited, trace)
				if err != nil || !slices.Equal(got.Hits, want.Hits) || got.Evictions != 0 || got.Alpha != nil {
					t.Errorf("seed %d, %s: %s is not lru: %v", seed, name, policy, err)
				}
			}
		}
		got, err := Replay("lru", models["attention"], unlimited, trace)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range trace {
			longest := 0
			for _, x := range trace[:i] {
				longest = max(longest, agree(r.Tokens, x.Tokens, 0, min(r.InputLen-1, x.Tokens.Len())))
			}
			if got.Hits[i] != longest {
				t.Errorf("seed %d: request %d reuses %d tokens, want %d", seed, i, got.Hits[i], longest)
			}
		}
	}
}

// TestSmall: capacities below one request, and below one state, are caches of nothing.
func TestSmall(t *testing.T) {
	for name, m := range models {
		for _, policy := range []string{"blocks1", "lru", "flop:2", "tuned", "reuse"} {
			p, err := NewPolicy(policy, m, 1)
			if err != nil {
				t.Fatal(err)
			}
			for i, r := range traceOf(1, 50) {
				if hit := p.Serve(r); hit != 0 || p.Bytes() > 1 && name != "free" {
					t.Fatalf("%s, %s: request %d hits %d, and %d bytes are in use", name, policy, i, hit, p.Bytes())
				}
			}
		}
	}
}

// TestNone keeps nothing, and needs no capacity.
func TestNone(t *testing.T) {
	got, err := Replay("none", models["hybrid"], 0, traceOf(1, 20))
	if err != nil || got.HitTokens != 0 || got.FLOPsSaved != 0 || got.FLOPs == 0 || len(got.Hits) != 20 {
		t.Error(got, err)
	}
}

// TestBadPolicies: what is wrong is said.
func TestBadPolicies(t *testing.T) {
	for _, c := range []struct {
		name     string
		m        Model
		capacity int64
		want     string
	}{
		{"lru", models["hybrid"], 0, "a capacity of 0 bytes"},
		{"lru", models["hybrid"], -1, "a capacity of -1 bytes"},
		{"tuned", models["hybrid"], MostBytes + 1, "it must be from 1 to"},
		{"lfu", models["hybrid"], 1, `policy "lfu": it must be none`},
		{"blocks0", models["hybrid"], 1, "a block has 1 to"},
		{"blocks", models["hybrid"], 1, "a block has 1 to"},
		{"flop:", models["hybrid"], 1, "α must be a number"},
		{"flop:-1", models["hybrid"], 1, "α must be a number"},
		{"flop:NaN", models["hybrid"], 1, "α must be a number"},
		{"flop:Inf", models["hybrid"], 1, "α must be a number"},
		{"lru", Model{1, 1, 0, 0, 0}, 1, "there is nothing to cache"},
		{"lru", Model{-1, 1, 1, 0, 0}, 1, "-1 FLOPs per token"},
		{"none", Model{1, 1e300, 1, 0, 0}, 1, "both must be from 0"},
		{"lru", Model{1, 1, -1, 0, 0}, 1, "neither may be negative"},
		{"lru", Model{1, 1, 1 << 40, 0, 0}, 1, "neither may be over"},
	} {
		if _, err := NewPolicy(c.name, c.m, c.capacity); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestPublished: figures of a hybrid with 4 attention, 24 SSM and 28 MLP layers of width
// 4096, state 128, in 16 bits, which were recomputed from the formulas.
func TestPublished(t *testing.T) {
	const d, n = 4096, 128
	m := Model{
		FLOPsPerToken:        4*8*d*d + 28*16*d*d + 24*(12*d*d+16*d*n+10),
		FLOPsPerTokenSquared: 4 * 4 * d,
		CacheBytes:           4 * 4 * d,
		StateBytes:           24 * (2*d*n + (2*d+2*n)*4*2),
	}
	if m.CacheBytes != 65_536 || m.StateBytes != 26_787_840 {
		t.Errorf("%d bytes per token, %d per state", m.CacheBytes, m.StateBytes)
	}
	if got := m.FLOPs(1000); got != 602_406_912_000+7_516_192_768_000+5_033_165_040_000 {
		t.Errorf("%v FLOPs for 1000 tokens", got)
	}
	if got := m.Bytes(1000, true); got != 92_323_840 || int(m.FLOPs(1000)/float64(got)+0.5) != 142_453 {
		t.Errorf("%d bytes, %v FLOPs a byte", got, m.FLOPs(1000)/float64(got))
	}
	if got := int(m.FLOPs(10_000)/float64(m.Bytes(10_000, true)) + 0.5); got != 201_446 {
		t.Errorf("%d FLOPs a byte for 10,000 tokens", got)
	}
	if got := NewBlocks(m, unlimited, 32).bytes; got != 28_884_992 {
		t.Errorf("a block of 32 has %d bytes", got)
	}
	var b Builder
	b.Append(7, 10_000)
	blocks := NewBlocks(m, unlimited, 16)
	blocks.Serve(Request{0, b.Tokens(), 10_000})
	if got := blocks.Bytes(); got != 17_397_760_000 {
		t.Errorf("10,000 tokens by blocks of 16 have %d bytes", got)
	}
}

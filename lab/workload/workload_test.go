package workload

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/krait-ml/krait/session/prefix"
)

func write(t *testing.T, o Options) string {
	t.Helper()
	trace, err := Make(o)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := prefix.WriteTrace(&text, trace); err != nil {
		t.Fatal(err)
	}
	if _, err := prefix.ReadTrace(bytes.NewReader(text.Bytes())); err != nil {
		t.Fatalf("%+v: %v", o, err)
	}
	return text.String()
}

// TestSeeds: the same options give the same trace, with other seeds another; what they
// give does not change from one version to the next without being seen here.
func TestSeeds(t *testing.T) {
	want := map[string]string{"chat": "4f5d372b", "agent": "8a599c3b", "fewshot": "c0d64cc9", "docs": "dcc04695", "tools": "f34ea285"}
	for _, kind := range Names() {
		o := Options{Kind: kind, Sessions: 3, Seed: 5, Pause: -1}
		text := write(t, o)
		if text != write(t, o) {
			t.Errorf("%s is another each time", kind)
		}
		if sum := fmt.Sprintf("%.4x", sha256.Sum256([]byte(text))); sum != want[kind] {
			t.Errorf("%s is %s, was %s", kind, sum, want[kind])
		}
		o.Seed++
		if text == write(t, o) {
			t.Errorf("%s is the same with another seed", kind)
		}
	}
}

// TestShapes: requests are what the kinds say, up to chance.
func TestShapes(t *testing.T) {
	for _, c := range []struct {
		kind                string
		perSession          float64 // requests
		input, hits, output float64 // tokens of a request, and the share that an endless cache hits
	}{
		{"chat", 4.8, 2200, 0.9, 270},
		{"agent", 22.5, 17000, 0.93, 150},
		{"fewshot", 1, 3500, 0.95, 32},
		{"docs", 1, 7000, 0.75, 130},
		// A lognormal length has a mean of e^(sigma²/2) times its median. Before a step there are 7
		// others on average, as steps of long trajectories are many: 1500 + 3492 + 7·(153 + 1232).
		// New are 3492 tokens in one step of 8, and else 1232.
		{"tools", 8, 14687, 0.897, 153},
	} {
		const sessions = 600
		trace, err := Make(Options{Kind: c.kind, Sessions: sessions, Seed: 1, Rate: 2, Pause: -1})
		if err != nil {
			t.Fatal(err)
		}
		r, err := prefix.Replay("lru", prefix.Model{FLOPsPerToken: 1, CacheBytes: 1, StateBytes: 1}, prefix.MostBytes, trace)
		if err != nil {
			t.Fatal(err)
		}
		out := 0
		for i, x := range trace {
			out += x.Tokens.Len() - x.InputLen
			if i > 0 && x.At <= trace[i-1].At {
				t.Fatalf("%s: request %d is at %v, that before it at %v", c.kind, i, x.At, trace[i-1].At)
			}
		}
		n := float64(len(trace))
		for what, x := range map[string][2]float64{
			"requests of a session": {n / sessions, c.perSession},
			"tokens of input":       {float64(r.InputTokens) / n, c.input},
			"tokens of output":      {float64(out) / n, c.output},
			"hits":                  {float64(r.HitTokens) / float64(r.InputTokens), c.hits},
		} {
			if math.Abs(x[0]-x[1]) > 0.25*x[1] {
				t.Errorf("%s: %s are %g, about %g are meant", c.kind, what, x[0], x[1])
			}
		}
		if end := trace[0].At; end > 60 {
			t.Errorf("%s begins after %g seconds", c.kind, end)
		}
	}
}

// TestVocabulary: ids are below it.
func TestVocabulary(t *testing.T) {
	trace, err := Make(Options{Kind: "chat", Sessions: 20, Vocab: 7, Pause: 1})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int32]bool{}
	for _, r := range trace {
		for i := range r.Tokens.Len() {
			seen[r.Tokens.At(i)] = true
		}
	}
	for id := range seen {
		if id < 0 || id >= 7 {
			t.Errorf("token %d", id)
		}
	}
	if len(seen) != 7 {
		t.Errorf("%d of 7 tokens are used", len(seen))
	}
}

// TestBad: what is wrong is said.
func TestBad(t *testing.T) {
	for want, o := range map[string]Options{
		`unknown trace "x"; use one of [chat agent fewshot docs tools]`: {Kind: "x", Sessions: 1},
		"0 sessions":              {Kind: "chat"},
		"1000001 sessions":        {Kind: "chat", Sessions: MostSessions + 1},
		"the vocabulary is 1":     {Kind: "chat", Sessions: 1, Vocab: 1},
		"-1 sessions per second":  {Kind: "chat", Sessions: 1, Rate: -1},
		"NaN sessions per second": {Kind: "chat", Sessions: 1, Rate: math.NaN()},
		"pauses of +Inf seconds":  {Kind: "chat", Sessions: 1, Pause: math.Inf(1)},
	} {
		if _, err := Make(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", o, err, want)
		}
	}
	defer func(n int) { mostIDs = n }(mostIDs)
	mostIDs = 1000
	if _, err := Make(Options{Kind: "chat", Sessions: 1}); err == nil || !strings.Contains(err.Error(), "use up all token ids") {
		t.Error(err)
	}
}

// TestRegular: the regular share of a pause is the same for all.
func TestRegular(t *testing.T) {
	for _, regular := range []float64{0.8, 1} {
		trace, err := Make(Options{Kind: "tools", Sessions: 1, Seed: 3, Pause: 10, Regular: regular})
		if err != nil || len(trace) < 3 {
			t.Fatal(len(trace), err)
		}
		for i := 1; i < len(trace); i++ {
			if pause := trace[i].At - trace[i-1].At; pause < 10*regular-1e-5 || regular == 1 && pause > 10+1e-5 {
				t.Errorf("%g of a pause of 10 s is regular: %g s", regular, pause)
			}
		}
	}
	if _, err := Make(Options{Kind: "tools", Sessions: 1, Regular: 1.5}); err == nil {
		t.Error("more than all of a pause is regular")
	}
}

package prefix

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// goldens are the traces of testdata/golden/cache.
var goldens = []string{"agent-hybrid", "chat-attention", "chat-hybrid", "docs-hybrid",
	"edges-attention", "edges-hybrid", "edges-small", "edges-ssm", "fewshot-ssm"}

const goldenDir = "../../testdata/golden/cache"

func readGolden(t testing.TB, name string) []Request {
	t.Helper()
	f, err := os.Open(filepath.Join(goldenDir, name+".jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	trace, err := ReadTrace(f)
	if err != nil {
		t.Fatal(err)
	}
	return trace
}

// TestGolden: another implementation of the published rules (a grain of one token) gives the same.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob(goldenDir + "/*.jsonl")
	if err != nil || len(files) != len(goldens) {
		t.Fatalf("%s has %d traces, want %d: %v", goldenDir, len(files), len(goldens), err)
	}
	for _, name := range goldens {
		t.Run(name, func(t *testing.T) {
			trace := readGolden(t, name)
			var want struct {
				Model    Model
				Capacity int64
				Results  []Result
			}
			data, err := os.ReadFile(filepath.Join(goldenDir, name+".json"))
			if err == nil {
				err = json.Unmarshal(data, &want)
			}
			if err != nil || len(want.Results) != 6 {
				t.Fatal(len(want.Results), err)
			}
			for _, w := range want.Results {
				policy := w.Policy
				if strings.Trim(policy, "0123456789.") == "" {
					policy = "flop:" + policy
				}
				s := Simulation{Policy: policy, Model: want.Model, Capacity: want.Capacity}
				if policy == "tuned" { // the published rule has no guard
					compare(t, s.serve(&published{Tree: NewTree(want.Model, want.Capacity, 0)}, trace), &w)
					continue
				}
				got, err := s.Run(trace)
				if err != nil {
					t.Fatal(err)
				}
				compare(t, got, &w)
			}
		})
	}
}

func compare(t *testing.T, got, want *Result) {
	t.Helper()
	near := func(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Abs(b) }
	switch {
	case !slices.Equal(got.Hits, want.Hits):
		for i, h := range got.Hits {
			if h != want.Hits[i] {
				t.Errorf("%s: request %d hits %d, want %d", got.Policy, i, h, want.Hits[i])
				return
			}
		}
	case got.Evictions != want.Evictions, got.InputTokens != want.InputTokens, got.HitTokens != want.HitTokens,
		!near(got.FLOPs, want.FLOPs), !near(got.FLOPsSaved, want.FLOPsSaved),
		(got.Alpha == nil) != (want.Alpha == nil), got.Alpha != nil && *got.Alpha != *want.Alpha:
		got.Hits, want.Hits = nil, nil
		t.Errorf("%s: got\n%+v, want\n%+v", got.Policy, got, want)
	}
}

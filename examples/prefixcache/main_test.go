package main

import (
	"strings"
	"testing"

	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/session/prefix"
)

// TestRun: every setting has its line, the same each time.
func TestRun(t *testing.T) {
	var first, second strings.Builder
	for _, out := range []*strings.Builder{&first, &second} {
		if err := run(out, 4, server{flops: 5e14}); err != nil {
			t.Fatal(err)
		}
	}
	rows := 2
	for _, s := range sections(4) {
		rows += 1 + len(s.rows)
	}
	if first.String() != second.String() || strings.Count(first.String(), "\n") != rows {
		t.Errorf("%d lines are wanted, twice the same:\n%s%s", rows, first.String(), second.String())
	}
	if err := run(&first, 0, server{flops: 5e14}); err == nil || !strings.Contains(err.Error(), "agent, 0, 20 GB: 0 sessions") {
		t.Error(err)
	}
}

// TestModel: the figures that were recomputed from the formulas.
func TestModel(t *testing.T) {
	m := published.model()
	if m.CacheBytes != 65_536 || m.StateBytes != 26_787_840 || m.FLOPs(1000) != 602_406_912_000+7_516_192_768_000+5_033_165_040_000 {
		t.Errorf("%+v, %v FLOPs", m, m.FLOPs(1000))
	}
}

// TestRegular: the published gain over LRU of leaves needs pauses that hardly vary. With
// exponential ones there is none.
func TestRegular(t *testing.T) {
	goldens.CI(t)
	gain := func(regular float64) float64 {
		o, err := setting{trace: agents(60, regular), model: published, gigabytes: 20}.measure(server{flops: 5e14})
		if err != nil {
			t.Fatal(err)
		}
		return o.rate[5] / o.rate[2]
	}
	if regular, random := gain(0.8), gain(0); regular < 1.24 || random > 1.05 {
		t.Errorf("the released score hits %.2f times what LRU of leaves does with regular pauses, and %.2f times with random ones", regular, random)
	}
}

// TestP95: of prompts that wait for each other, and of those that do not.
func TestP95(t *testing.T) {
	m := prefix.Model{FLOPsPerToken: 1, CacheBytes: 1}
	var trace []prefix.Request
	for range 20 {
		trace = append(trace, prefix.Request{At: 1, InputLen: 10})
	}
	hits := make([]int, 20)
	if alone, queued := (server{10, false}).p95(m, trace, hits), (server{10, true}).p95(m, trace, hits); alone != 1 || queued != 19 {
		t.Errorf("%v s, and %v s with a queue; want 1 and 19", alone, queued)
	}
	hits[0] = 5
	if got := (server{10, true}).p95(m, trace, hits); got != 18.5 {
		t.Errorf("%v s", got)
	}
}

package calibrate

import (
	"context"
	"maps"
	"math"
	"os"
	"reflect"
	"slices"
	"testing"

	"github.com/krait-ml/krait/checkpoint/synth"
	"github.com/krait-ml/krait/cost"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/lab/bench"
	"github.com/krait-ml/krait/lowering"
)

// TestRun: a small calibration gives a profile that can be read, with the rates of what
// models are made of, by ranks and rows; and predictions come out of it.
func TestRun(t *testing.T) {
	if _, err := machineMemory(); err != nil {
		t.Skip(err)
	}
	o := Options{Ranks: []int{1, 2}, Model: "../../testdata/golden/mamba-a"}
	for _, name := range []string{"jamba", "mamba2-g1"} {
		config, err := os.ReadFile("../../testdata/golden/" + name + "/config.json")
		if err != nil {
			t.Fatal(err)
		}
		o.models = append(o.models, synth.Options{Config: config, From: name})
	}
	p, err := Run(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	if p, err = cost.Parse("local", p.Text()); err != nil {
		t.Fatal(err)
	}
	for _, op := range []string{"matmul/bf16/short", "selective_scan", "ssd_scan", "conv1d_silu", "add_rmsnorm", "attention"} {
		for _, want := range []cost.Point{{Ranks: 1, Rows: 1}, {Ranks: 1, Rows: 3}, {Ranks: 1, Rows: 512}, {Ranks: 2, Rows: 8}, {Ranks: 2, Rows: 64}} {
			if !slices.ContainsFunc(p.Operations[op].Points, func(x cost.Point) bool { return x.Ranks == want.Ranks && x.Rows == want.Rows && x.Rate > 0 }) {
				t.Errorf("%s has no rate of %d rows on %d ranks: %+v", op, want.Rows, want.Ranks, p.Operations[op])
			}
		}
	}
	if list, err := Check(context.Background(), p, o); err != nil || len(list) != 2*len(prompts) || list[0].Model != "mamba-a" {
		t.Errorf("%v, of a given model: %+v", err, list)
	}
	o.Model, o.Parts, o.Runs = "", true, 2
	if goldens.Few(t) {
		o.models = o.models[:1]
	}
	list, err := Check(context.Background(), p, o)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != o.Runs*len(o.models)*2*len(prompts) {
		t.Errorf("%d comparisons", len(list))
	}
	for _, x := range list {
		if !(x.Predicted.TTFT > 0 && x.Predicted.TPOT > 0 && x.Measured.TTFT > 0 && x.Measured.TPOT > 0) {
			t.Errorf("%+v", x)
		}
		for _, op := range []string{"matmul/bf16/short", rest} {
			if !slices.ContainsFunc(x.Parts, func(p Part) bool { return p.What == op && (p.Predicted > 0 || op == rest) && p.Measured > 0 }) {
				t.Errorf("%s on %d ranks: no part %s in %+v", x.Model, x.Ranks, op, x.Parts)
			}
		}
	}
}

// TestClose: 15 % more or less than measured are close, further are not.
func TestClose(t *testing.T) {
	for predicted, want := range map[float64]bool{0.84: false, 0.86: true, 1: true, 1.14: true, 1.16: false} {
		c := Comparison{Predicted: Times{TTFT: predicted, TPOT: 2}, Measured: Times{TTFT: 1, TPOT: 2}}
		if ttft, tpot := c.Close(); ttft != want || !tpot {
			t.Errorf("%g beside 1: %v, and equal times %v", predicted, ttft, tpot)
		}
	}
}

// TestRecord: what is made of events: rates of operations, gaps, and what ranks are in collectives.
func TestRecord(t *testing.T) {
	works := map[string]*cost.Work{"a": {Key: "silu", Share: 0.5, FLOPs: graph.Const(100), Rows: graph.Const(4)}, "b": {Key: "silu", Share: 1, FLOPs: graph.Const(10), Rows: graph.Const(4)}}
	s := &session{samples: newSamples(bench.Roofline{Bytes: 7, FLOPs: 1000, Threads: 2}), works: []map[string]*cost.Work{works, works}, keep: true}
	met := func(rank int, from, to float64, bytes int64) exec.Event {
		return exec.Event{Rank: rank, Kind: lowering.Collective, Name: "sum", Start: from, End: to, Bytes: bytes}
	}
	s.record([]exec.Event{
		{Rank: 0, Name: "a", Start: 1, End: 3}, met(0, 3.5, 7, 8), {Rank: 0, Name: "b", Start: 7.5, End: 8},
		{Rank: 1, Name: "a", Start: 1, End: 4}, met(1, 4.5, 7, 8), {Rank: 1, Name: "b", Start: 7.25, End: 8.25},
	})
	if s.took != 7.25 {
		t.Errorf("the events took %g", s.took)
	}
	if ops := s.ops(); !maps.Equal(ops, map[at]sum{{"silu", 2, 4}: {120, 6.5}}) {
		t.Errorf("%+v", ops)
	}
	// The last rank comes at 4.5; of 7.25 seconds the ranks are 3 in the sum on average.
	if !reflect.DeepEqual(s.gaps, []float64{.5, .5, .5, .25}) || !reflect.DeepEqual(s.travel, map[payload][]float64{{2, 8}: {2.5}}) ||
		!reflect.DeepEqual(s.waits, map[int][]wait{2: {{4.25, .5}}}) {
		t.Errorf("%v, %v, %v", s.gaps, s.travel, s.waits)
	}
	s.record([]exec.Event{met(0, 10, 14.5, 108), met(1, 10, 14.5, 108)})
	if base, bandwidth := s.fit(); base != 2.5 || math.Abs(bandwidth-54) > 1e-9 {
		t.Errorf("%g seconds, %g bytes per second", base, bandwidth)
	}
	if always, straggle := s.waiting(); always != 0 || math.Abs(straggle-.5/4.25) > 1e-12 {
		t.Errorf("ranks wait %g seconds, and %g of a second", always, straggle)
	}
	s.host = []float64{3, 1, 2, 4, 5}
	p := s.profile(1e9)
	if p.Overhead.Launch.Value != .5 || p.Overhead.Step.Value != 3 || p.Operations["silu"].Points[0] != (cost.Point{Ranks: 2, Rows: 4, Rate: 120 / 6.5}) {
		t.Errorf("%+v", p)
	}
}

// TestUsualSteps: the middle half of steps counts for all of their operations, whose times add up.
func TestUsualSteps(t *testing.T) {
	a, b := at{"silu", 1, 4}, at{"relu", 1, 4}
	m := &samples{runs: map[run][]sum{
		{0, batch{1, 4}, a}: {{10, 1}, {10, 9}, {10, 2}, {10, 4}, {10, 100}},
		{0, batch{1, 4}, b}: {{20, 5}, {20, 1}, {20, 6}, {20, 8}, {20, 1}},
		{1, batch{4, 1}, a}: {{30, 4}},
	}}
	// The steps take 6, 10, 8, 12 and 101. Sums are exact, in any order.
	if got, want := m.ops(), (map[at]sum{a: {40, 4 + 5}, b: {20, 5}}); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	m.runs[run{given, batch{1, 4}, b}] = []sum{{7, 3}}
	if got, want := m.ops(), (map[at]sum{a: {40, 4 + 5}, b: {7, 3}}); !reflect.DeepEqual(got, want) {
		t.Errorf("with a given model: %v, want %v", got, want)
	}
}

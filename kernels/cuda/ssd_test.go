package cuda

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"pgregory.net/rapid"
)

// withScores runs f with C Bᵀ made before all scans in chunks, or before none.
func withScores(apart bool, f func()) {
	was, wasMMA := ssdApart, ssdMMAApart
	defer func() { ssdApart, ssdMMAApart = was, wasMMA }()
	ssdApart, ssdMMAApart = math.MaxInt, math.MaxInt
	if apart {
		ssdApart, ssdMMAApart = 0, 0
	}
	f()
}

// TestScores: C Bᵀ that is made before the scan, once for all heads of a group, gives the bits that
// blocks give which make their own, and both what the reference gives: of segments around the
// lengths of chunks, in all formats, where what is put out is aligned and where it is not.
func TestScores(t *testing.T) {
	for _, name := range []string{"ssd_scan", "ssd_scan_gated"} {
		op := findOp(t, name)
		test := func(t *rapid.T) { checkScores(t, op) }
		check(t, name, test)
		until(t, test, "ssd_scores.ssd_scores_32", "ssd_scores.ssd_scores_16", "ssd_mma_scores.ssd_mma_scores", "ssd_mma_scores.ssd_mma_scores_bf16")
	}
}

func checkScores(t *rapid.T, op *graph.Op) {
	d, dev := newDraw(t), newDevice(t)
	d.decode, d.lens, d.most = false, []int{0, 1, 5, 31, 32, 33, 63, 64, 65, 130}, 3
	d.aligned = d.pick("aligned", 0, 1, 1) == 1
	o := Options{Math: Math(d.pick("math", 0, 1)), Shared: d.pick("shared", 0, 0, 99<<10, 15<<10)}
	next := ssdOf(d, d.pick("p", 4, 8, 16, 36, 64), d.pick("n", 3, 4, 8, 16, 20, 64, 136))
	if op.Name == "ssd_scan_gated" {
		next = gatedCase(d, next, graph.Attrs{"min": 0.0, "max": math.Inf(1)})
	}
	c := next()
	if o.Math == BF16 && o.Shared != 15<<10 && d.pick("bf16", 0, 1) == 1 {
		d.inBF16(op, &c)
	}
	y := d.pick("y", 0, 0, 1) // where y and z begin
	var results [2][]kernels.Tensor
	var launches []Launch
	for i, apart := range []bool{false, true} {
		withScores(apart, func() {
			on := dev.deviceCall(op, &c, map[int]Tensor{}, func() int { return 0 })
			on.Options, on.Results[0] = o, dev.empty(&c.Results[0], y)
			if op.Name == "ssd_scan_gated" {
				on.Args[7] = dev.upload(&c.Args[7], y)
			}
			launches = dev.compute(op, on, d.rng.Uint64())
			for k := range c.Results {
				got := clone(&c.Results[k])
				dev.download(on.Results[k], &got)
				results[i] = append(results[i], got)
			}
		})
	}
	share := roundedReference(op, &c, launches)
	for i := range c.Results {
		same(t, fmt.Sprint("apart, result ", i), &results[1][i], &results[0][i], 0)
		if share > 0 {
			same(t, "result", &results[0][i], &c.Results[i], share)
		} else {
			sameKept(t, &results[0][i], &c.Results[i], 1e-5)
		}
	}
}

// TestSSDPlan: whether C Bᵀ is made before, and whether segments are scanned in pieces, is decided
// by numbers of sequences, tokens, heads and channels.
func TestSSDPlan(t *testing.T) {
	for _, c := range []struct {
		sequences, tokens, heads int
		math                     Math
		want                     string
	}{
		{1, 64, 24, F32, "split_scores (2,1,1) split (1,24,2)"}, // mamba2-130m
		{1, 511, 24, F32, "split_scores (16,1,1) split (1,24,2)"},
		{1, 512, 24, F32, "split_scores (16,1,1) split (1,24,2)"},
		{1, 1023, 24, F32, "split_scores (32,1,1) split (1,24,2)"},
		{1, 1024, 24, F32, "split_scores (32,1,1) split_ends (4,24,2) scan_starts (1,24,64) split (4,24,2)"},
		{1, 1536, 24, F32, "split_scores (48,1,1) split_ends (3,24,2) scan_starts (1,24,64) split (3,24,2)"},
		{1, 2048, 24, BF16, "mma_ends_128 (4,24,2) scan_starts (1,24,64) mma_128 (4,24,2)"},
		{2, 2048, 19, F32, "split_scores (65,1,1) split_ends (5,19,2) scan_starts (2,19,64) split (5,19,2)"},
		{2, 2047, 19, F32, "split_scores (65,1,1) split (2,19,2)"},
		{1, 2048, 38, F32, "split_scores (64,1,1) split_ends (4,38,2) scan_starts (1,38,64) split (4,38,2)"},
		{1, 2048, 39, F32, "split_scores (64,1,1) split (1,39,2)"},
		{1, 2048, 26, BF16, "mma_ends_128 (4,26,2) scan_starts (1,26,64) mma_128 (4,26,2)"},
		{1, 2048, 27, BF16, "mma_128 (1,27,2)"},
		{1, 2048, 10, BF16, "mma_ends_128 (8,10,2) scan_starts (1,10,64) mma_128 (8,10,2)"}, // mamba2-2.7b on 8 ranks
		{1, 2048, 80, F32, "split_scores (64,1,1) split (1,80,2)"},
		{1, 2048, 80, BF16, "mma_128 (1,80,2)"},
		{1, 3840, 80, BF16, "mma_scores (60,1,1) mma_128 (1,80,2)"},
	} {
		rows := func(cols int) Tensor { return Tensor{Tensor: shaped(graph.F32, c.tokens, cols)} }
		x, state := rows(64*c.heads), Tensor{Tensor: shaped(graph.F32, slots, c.heads, 64, 128)}
		call := &Call{Args: []Tensor{x, rows(c.heads), {Tensor: shaped(graph.F32, c.heads)}, rows(128), rows(128), state, {Tensor: shaped(graph.I32, c.sequences, 3)}},
			Results: []Tensor{x, state}, Options: Options{Math: c.math}}
		got := planned(t, "ssd_scan", call, func(launches []Launch) (n int64) {
			for _, l := range launches {
				if strings.Contains(l.Function, "scores") {
					n += 4 * int64(c.tokens) * map[Math]int64{F32: 32 + 4 + 2*128, BF16: 64}[c.math]
				}
				if strings.Contains(l.Function, "ends") {
					n += 4 * int64(l.Grid[0]) * int64(c.heads) * (64*128 + 1)
				}
			}
			return n
		})
		if got = strings.ReplaceAll(got, "ssd_", ""); got != c.want {
			t.Errorf("%d sequences of %d tokens, %d heads: %s, want %s", c.sequences, c.tokens, c.heads, got, c.want)
		}
	}
}

package tests

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/cuda/sim"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/cuda"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/covering"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/lowering"
)

// shardedSteps are batches, as the number of new tokens of each sequence in them: a
// prompt, on its own and beside others; one long sequence beside many short ones; fewer
// tokens than ranks; at last as many tokens in as many sequences, which end elsewhere.
var shardedSteps = [][]int{{7, 0, 0, 0, 0}, {1, 5, 0, 0, 2}, {2, 31, 1, 1, 1}, {1, 1, 1, 1, 1}, {0, 0, 1, 0, 0}, {0, 1, 0, 1, 0}, {3, 1, 0, 0, 9}, {9, 1, 0, 0, 3}}

// TestShardedActivations: where ranks have parts of the residual stream, a batch gives the
// bits, of all logits and states, that it gives where all have all of it: partial sums
// are added in the same order, and rows are computed one like the other.
func TestShardedActivations(t *testing.T) {
	goldens.CI(t)
	counts := []int{2, 3, 8}
	if goldens.All() {
		counts = []int{1, 2, 3, 4, 8}
	}
	folders := covering.Drawn(t, goldens.Folders(t, ".."))
	cases := covering.Each(t, []int{len(folders)}, len(counts), 2, len(inPieces))
	if goldens.All() {
		cases = covering.Each(t, []int{len(folders)}, len(counts)) // each by both placements, in all pieces
	}
	for _, c := range cases {
		dir, ranks := folders[c[0]], counts[c[1]]
		t.Run(fmt.Sprintf("%s/tp=%d", filepath.Base(dir), ranks), func(t *testing.T) {
			t.Parallel()
			list, pieces := byTokens(ranks), inPieces
			if !goldens.All() {
				list, pieces = []krait.Sharding{list[0], list[1+c[2]]}, inPieces[c[3]:][:1]
			}
			compareSharded(t, dir, list, pieces, shardedSteps, nil)
		})
	}
}

// TestShardedActivationsCUDA is the same on simulated GPUs: one that the ranks share, and
// one for each, joined by NCCL.
func TestShardedActivationsCUDA(t *testing.T) {
	goldens.CI(t)
	list := []struct {
		model       string
		ranks, gpus int
		layers      int // with every kind
	}{{"mamba-a", 2, 1, 1}, {"jamba", 3, 1, 3}, {"mamba2-g4", 2, 2, 1}, {"bamba", 3, 3, 2}}
	list = covering.Drawn(t, list)
	cases := covering.Each(t, []int{len(list), 2, 2})[:1]
	if goldens.All() {
		cases = covering.Each(t, []int{len(list)})
	}
	for _, x := range cases {
		c := list[x[0]]
		t.Run(fmt.Sprintf("%s/tp=%d on %d", c.model, c.ranks, c.gpus), func(t *testing.T) {
			t.Parallel()
			shardings, pieces, steps := byTokens(c.ranks), inPieces[1:], fewTokens(shardedSteps[2:], 3)
			if !goldens.All() {
				steps = steps[:4]
				shardings, pieces = []krait.Sharding{shardings[0], shardings[1+x[1]]}, pieces[x[2]:][:1]
			}
			compareSharded(t, shallow(t, c.model, c.layers), shardings, pieces, steps, simulatedGPUs(c.gpus))
		})
	}
}

// fewTokens shortens sequences to at most that many tokens; by 3 a batch has no more than 8: on
// CUDA products of more rows have a kernel of their own, whose bits are others.
func fewTokens(steps [][]int, most int) [][]int {
	var out [][]int
	for _, step := range steps {
		step = slices.Clone(step)
		for i := range step {
			step[i] = min(step[i], most)
		}
		out = append(out, step)
	}
	return out
}

// simulatedGPUs opens devices of a number of simulated GPUs, on which bits do not depend on how
// many rows a rank has.
func simulatedGPUs(gpus int) func() exec.Device {
	return func() exec.Device {
		return &cuda.Device{Driver: sim.New(sim.Options{Devices: gpus, NoBLAS: true}), BatchInvariant: true}
	}
}

// byTokens is by channel, and by both placements of tokens.
func byTokens(ranks int) []krait.Sharding {
	return []krait.Sharding{{Ranks: ranks}, {Ranks: ranks, Strategy: "sequence"}, {Ranks: ranks, Strategy: "batch"}}
}

// hoistedByTokens is the same where statistics travel beside what they are of.
func hoistedByTokens(t *testing.T, ranks int) []krait.Sharding {
	list := []krait.Sharding{{Ranks: ranks, Strategy: "hoisted"}}
	for _, place := range []string{"even", "sequence"} {
		file := filepath.Join(t.TempDir(), place+".place")
		if err := os.WriteFile(file, []byte("# Hoisted, with tokens split.\nwith norm-hoist\nborder "+place+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		list = append(list, krait.Sharding{Ranks: ranks, Place: file})
	}
	return list
}

// inPieces are of how many tokens; 0: whole.
var inPieces = []int{0, 3, 1}

// compareSharded runs the batches with the first sharding, whole, and wants its bits of each other
// and in each pieces; with KRAIT_TEST_ALL of every two.
func compareSharded(t *testing.T, dir string, shardings []krait.Sharding, pieces []int, steps [][]int, device func() exec.Device) {
	var want [][]float32
	var states []*krait.Snapshot
	run := func(sharding krait.Sharding, pieces int) {
		strategy := fmt.Sprintf("%s%s in pieces of %d", sharding.Strategy, sharding.Place, pieces)
		o := krait.Options{Slots: len(shardedSteps[0]), PieceTokens: pieces, Sharding: sharding}
		if device != nil {
			o.Device = device()
		}
		m, err := krait.Open(dir, o)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close() // all at once would take gigabytes
		got, snapshots := runSharded(t, m, steps)
		if want == nil {
			want, states = got, snapshots
		}
		for i := range want {
			if !sameBits(got[i], want[i]) {
				t.Errorf("%s: the logits of step %d have other bits than where tokens are whole", strategy, i)
			}
		}
		for i, s := range snapshots {
			sameSnapshot(t, fmt.Sprintf("%s: sequence %d", strategy, i), s, states[i])
		}
	}
	run(shardings[0], 0)
	for _, c := range covering.Each(t, []int{len(shardings) - 1, len(pieces)}) {
		run(shardings[1+c[0]], pieces[c[1]])
	}
}

// TestStatisticsBesideSums: the statistic of a hoisted norm is scattered along tokens in
// the launch of what it is divided into, with a block's bits, bytes and proof as they are
// where tokens are whole; on GPUs too, where only the sums are rounded as well.
func TestStatisticsBesideSums(t *testing.T) {
	goldens.CI(t)
	const tokens = 7
	for _, c := range []struct {
		model, block string
		ranks, gpus  int
	}{
		{"mamba2-g1", "all_gather 64, reduce_scatter 65", 2, 0},
		{"mamba2-g1", "all_gather 64, reduce_scatter 65", 3, 1},
		{"mamba2-g1", "all_gather 64, reduce_scatter 65", 2, 2},
		{"falcon-h1", "all_gather 64, reduce_scatter 129, all_gather 64, reduce_scatter 64", 3, 0},
		{"bamba", "all_gather 64, reduce_scatter 65, all_gather 64, reduce_scatter 64", 8, 0},
	} {
		if c.gpus == 2 && !goldens.All() {
			continue
		}
		t.Run(fmt.Sprintf("%s/tp=%d on %d", c.model, c.ranks, c.gpus), func(t *testing.T) {
			t.Parallel()
			dir, shardings := "../testdata/golden/"+c.model, hoistedByTokens(t, c.ranks)
			if c.gpus > 0 {
				for i := range shardings {
					shardings[i].Payload = "out_proj_raw=bf16"
				}
				compareSharded(t, shallow(t, c.model, 1), shardings[:2], inPieces[1:2], [][]int{{1, 4, 0, 0, 0}, {0, 1, 0, 0, 0}, {5, 1, 1, 0, 0}}, simulatedGPUs(c.gpus))
				return
			}
			compareSharded(t, dir, shardings, covering.Drawn(t, inPieces), shardedSteps, nil)
			for _, quantize := range []string{"", "out_proj_raw.rs=bf16"} {
				sharding := shardings[1]
				sharding.Payload = quantize
				m := openModel(t, dir, krait.Options{Sharding: sharding})
				counts := countPrompt(t, m, tokens)
				if got := perToken(counts, "layers.0", tokens); got != c.block {
					t.Errorf("%s: %s, want %s per token", quantize, got, c.block)
				}
				comparePlan(t, m, counts, graph.Sizes{Tokens: tokens, Seqs: 1, Rows: 1})
				compareProof(t, m, sharding, counts, tokens)
			}
		})
	}
}

// contextParallel places the weights of attention and MLPs on every rank, and tokens whole, even
// and by sequence.
func contextParallel(t *testing.T, ranks int) []krait.Sharding {
	text, err := os.ReadFile("../testdata/places/context.place")
	if err != nil {
		t.Fatal(err)
	}
	var list []krait.Sharding
	for _, place := range []string{"whole", "even", "sequence"} {
		file := filepath.Join(t.TempDir(), place+".place")
		if err := os.WriteFile(file, []byte(strings.ReplaceAll(string(text), "even", place)), 0o600); err != nil {
			t.Fatal(err)
		}
		list = append(list, krait.Sharding{Ranks: ranks, Place: file})
	}
	return list
}

// TestContextParallel: attention of some of the tokens, with all keys and values, gives the bits
// that it gives of all, and all ranks keep the same caches. Where its weights and the MLP's are
// whole, the gather of keys and values is the block's only collective.
func TestContextParallel(t *testing.T) {
	const tokens = 9
	for _, c := range []struct {
		model, block string
		ranks, gpus  int
	}{
		{"bamba", "all_gather 64", 2, 0},
		{"bamba", "all_gather 64", 8, 0},
		{"falcon-h1", "all_gather 128, all_reduce 1, reduce_scatter 64", 3, 0},
		{"bamba", "", 3, 1},
		{"bamba", "", 2, 2},
	} {
		if c.gpus == 1 && !goldens.All() || (c.gpus == 2 || c.ranks == 8) && goldens.Few(t) {
			continue
		}
		t.Run(fmt.Sprintf("%s/tp=%d on %d", c.model, c.ranks, c.gpus), func(t *testing.T) {
			t.Parallel()
			dir, shardings := "../testdata/golden/"+c.model, contextParallel(t, c.ranks)
			if c.gpus > 0 {
				steps := [][]int{{2, 39, 1, 0, 0}, {0, 1, 0, 0, 0}, {1, 1, 1, 0, 0}, {5, 1, 1, 0, 0}}
				var want [][]float32
				if dir = shallow(t, c.model, 2); !goldens.All() {
					steps = fewTokens(steps[:3], 17)
				}
				for _, sharding := range shardings[:2] {
					o := krait.Options{Slots: 5, Sharding: sharding, Device: simulatedGPUs(c.gpus)()}
					if got, _ := runSharded(t, openModel(t, dir, o), steps); want == nil {
						want = got
					} else if d := mostApart(got, want); !(d <= 1e-4) {
						t.Errorf("logits are %g from those where tokens are whole", d)
					}
				}
				return
			}
			compareSharded(t, dir, shardings, covering.Drawn(t, inPieces), shardedSteps, nil)
			m := openModel(t, dir, krait.Options{Sharding: shardings[1]})
			counts := countPrompt(t, m, tokens)
			if got := perToken(counts, "layers.1", tokens); c.block != "" && got != c.block {
				t.Errorf("%s, want %s per token", got, c.block)
			}
			comparePlan(t, m, counts, graph.Sizes{Tokens: tokens, Seqs: 1, Rows: 1})
			compareProof(t, m, shardings[1], counts, tokens)
		})
	}
}

// mostApart is the largest difference of two lists of logits; products of other numbers of
// rows are other kernels on a GPU.
func mostApart(a, b [][]float32) float64 {
	most := 0.0
	for i := range b {
		for j, x := range b[i] {
			if d := math.Abs(float64(x - a[i][j])); !(d <= most) {
				most = d
			}
		}
	}
	return most
}

// runSharded runs batches, and returns the logits of all tokens of each, and what
// sequences keep in the end.
func runSharded(t *testing.T, m *krait.Model, steps [][]int) (logits [][]float32, states []*krait.Snapshot) {
	t.Helper()
	var slots []int
	for range steps[0] {
		slot, err := m.Engine().Alloc()
		if err != nil {
			t.Fatal(err)
		}
		slots = append(slots, slot)
	}
	ids := randomIDs(300, m.Vocab())
	for k, step := range steps {
		var b exec.Batch
		for i, n := range step {
			if n == 0 {
				continue
			}
			q := exec.Sequence{Slot: slots[i], Tokens: ids[k : k+n]}
			for row := range n {
				q.Rows = append(q.Rows, row)
			}
			b.Sequences = append(b.Sequences, q)
		}
		results, err := m.Engine().Step(context.Background(), &b)
		if err != nil {
			t.Fatal(err)
		}
		out, err := results.Output("logits")
		if err != nil {
			t.Fatal(err)
		}
		var all []float32
		for row := range out.Rows() {
			all = append(all, out.Row(row)...)
		}
		logits = append(logits, all)
	}
	for _, slot := range slots {
		s, err := m.Engine().Snapshot(slot)
		if err != nil {
			t.Fatal(err)
		}
		states = append(states, s)
	}
	return logits, states
}

// TestShardedCollectives counts at run time: where ranks have parts of the tokens, each
// all_reduce of the residual stream is a reduce_scatter and an all_gather, which send as
// much together; kinds and bytes are the plan's and the proof's, and the least.
func TestShardedCollectives(t *testing.T) {
	goldens.CI(t)
	const tokens = 7
	exchanged := func(elems ...int) string {
		var list []string
		for _, n := range elems {
			list = append(list, fmt.Sprint("all_gather ", n), fmt.Sprint("reduce_scatter ", n))
		}
		return strings.Join(list, ", ")
	}
	for _, c := range covering.Drawn(t, []struct {
		model  string
		ranks  int
		blocks map[int]string
		more   int64 // elements per token that are gathered and were whole before, over all blocks
	}{
		{"mamba-a", 2, map[int]string{0: "all_gather 64, all_reduce 40, reduce_scatter 64"}, 0},
		{"mamba2-g4", 3, map[int]string{0: "all_gather 64, all_reduce 1, reduce_scatter 64"}, 0},
		{"jamba", 3, map[int]string{0: "all_gather 64, all_reduce 40, reduce_scatter 64, " + exchanged(64), 2: exchanged(64, 64)}, 0},
		{"bamba", 4, map[int]string{0: "all_gather 64, all_reduce 1, reduce_scatter 64, " + exchanged(64), 1: exchanged(64, 64)}, 0},
		{"falcon-h1", 2, map[int]string{0: "all_gather 64, all_reduce 1, reduce_scatter 64, " + exchanged(64)}, 0},
		{"granite-hybrid", 4, map[int]string{0: "all_gather 48, all_reduce 1, reduce_scatter 48, " + exchanged(48), 2: exchanged(48, 48)}, 0},
		{"nemotron-h-moe", 2, map[int]string{0: exchanged(48), 1: exchanged(48), 2: exchanged(48)}, 0},
		{"lfm2", 4, map[int]string{0: exchanged(48, 48), 2: exchanged(48, 48)}, 0},
		{"qwen3-5", 3, map[int]string{0: exchanged(48, 48), 3: exchanged(48, 48)}, 0},
		// Blocks with attention take the embedding beside the residual stream.
		{"zamba", 2, map[int]string{0: exchanged(64)}, 2 * 64},
		{"zamba2", 2, map[int]string{0: exchanged(64)}, 3 * 64},
	}) {
		t.Run(c.model, func(t *testing.T) {
			dir := "../testdata/golden/" + c.model
			least := sentPerToken(t, openModel(t, dir, krait.Options{Sharding: krait.Sharding{Ranks: c.ranks}}))
			for _, strategy := range []string{"sequence", "batch"} {
				sharding := krait.Sharding{Ranks: c.ranks, Strategy: strategy}
				m := openModel(t, dir, krait.Options{Sharding: sharding})
				counts := countPrompt(t, m, tokens)
				for block, want := range c.blocks {
					if got := perToken(counts, fmt.Sprint("layers.", block), tokens); got != want {
						t.Errorf("%s, block %d: %s, want %s per token", strategy, block, got, want)
					}
				}
				comparePlan(t, m, counts, graph.Sizes{Tokens: tokens, Seqs: 1, Rows: 1})
				compareProof(t, m, sharding, counts, tokens)
				if got, want := sentPerToken(t, m), least+c.more*4*int64(c.ranks-1)/int64(c.ranks); got != want {
					t.Errorf("%s: a rank sends %d bytes for a token, by channel %d", strategy, got, least)
				}
			}
		})
	}
}

// TestShardedCounts: for every golden, what runs is what is planned and proved, kind by kind
// and byte by byte, and is the least.
func TestShardedCounts(t *testing.T) {
	const tokens = 11
	folders, counts, strategies := covering.Drawn(t, goldens.Folders(t, "..")), []int{2, 3, 4, 8}, []string{"sequence", "batch"}
	for _, c := range covering.Each(t, []int{len(folders)}, len(counts), len(strategies)) {
		dir, ranks, strategy := folders[c[0]], counts[c[1]], strategies[c[2]]
		t.Run(fmt.Sprintf("%s/%s/tp=%d", filepath.Base(dir), strategy, ranks), func(t *testing.T) {
			sharding := krait.Sharding{Ranks: ranks, Strategy: strategy}
			m := openModel(t, dir, krait.Options{Sharding: sharding})
			ran := countPrompt(t, m, tokens)
			comparePlan(t, m, ran, graph.Sizes{Tokens: tokens, Seqs: 1, Rows: 1})
			compareProof(t, m, sharding, ran, tokens)
		})
	}
}

// sentPerToken is what a rank sends for a token, logits left out.
func sentPerToken(t *testing.T, m *krait.Model) int64 {
	t.Helper()
	p, err := lowering.NewPlan(m.Engine().Schedules())
	if err != nil {
		t.Fatal(err)
	}
	return p.Sent(graph.Sizes{Tokens: 3000}) / 3000
}

// TestShardedPayloads: what is scattered and what is gathered travel in formats of their
// own, half as many bytes each, and both are looked at where that is asked for.
func TestShardedPayloads(t *testing.T) {
	goldens.CI(t)
	const tokens = 5
	dir := "../testdata/golden/mamba-a"
	want := logitsOf(t, dir, krait.Options{})
	for quantize, bytes := range map[string]int64{
		"":                                   (64 + 40 + 64) * 4,
		"fp16":                               64*4 + (40+64)*2, // sums
		"in_proj.ag=fp16,out_proj.rs=bf16":   64*2 + 40*4 + 64*2,
		"ag=int8,rs=int8/16,x_proj=scaled16": 2*34 + 4*18 + 2*2*66,
		"norm.ag=bf16":                       64*2 + (40+64)*4,
		"ag=fp16,rs=fp16:acc32,x_proj=bf16":  (64 + 40 + 64) * 2,
	} {
		for _, check := range []bool{false, true} {
			sharding := krait.Sharding{Ranks: 3, Strategy: "sequence", Payload: quantize, CheckPayloads: check && strings.Contains(quantize, "fp16")}
			m := openModel(t, dir, krait.Options{Sharding: sharding})
			counts := countPrompt(t, m, tokens)
			got := int64(0)
			for _, c := range counts {
				if graph.BlockOf(c.Name) == "layers.1" && !strings.HasSuffix(c.Name, "_watched") {
					got += c.Bytes
				}
			}
			if got != tokens*bytes {
				t.Errorf("%s: %d bytes in a block, want %d", quantize, got, tokens*bytes)
			}
			comparePlan(t, m, counts, graph.Sizes{Tokens: tokens, Seqs: 1, Rows: 1})
		}
		for i, row := range logitsOf(t, dir, krait.Options{Sharding: krait.Sharding{Ranks: 3, Strategy: "sequence", Payload: quantize}}) {
			for j, x := range row {
				if d := math.Abs(float64(x - want[i][j])); !(d <= 0.3) {
					t.Fatalf("%s: logit %d after step %d is %g, want %g", quantize, j, i, x, want[i][j])
				}
			}
		}
	}
}

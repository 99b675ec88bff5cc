package tests

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/cuda/sim"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/cpu"
	"github.com/krait-ml/krait/exec/cuda"
	"github.com/krait-ml/krait/internal/covering"
	"github.com/krait-ml/krait/internal/goldens"
)

// contextSteps are batches in parts: prompts of one token, of less than a block, of blocks and a
// rest, alone and beside others; then decode, and prompts that go on.
var contextSteps = [][]int{{200, 0, 0, 0, 0}, {1, 65, 3, 0, 0}, {64, 1, 1, 257, 1}, {1, 1, 1, 1, 1}, {130, 2, 0, 0, 70}}

// TestParts: in parts, all logits and states are those of one rank but for the order of sums,
// whether states pass from rank to rank or are gathered.
func TestParts(t *testing.T) {
	counts := []int{2, 3, 4, 8}
	folders := covering.Drawn(t, goldens.Folders(t, ".."))
	for _, c := range covering.Each(t, []int{len(folders)}, len(counts), 2) {
		dir, ranks := folders[c[0]], counts[c[1]]
		gathers := c[2] == 1
		t.Run(fmt.Sprintf("%s/tp=%d/gather=%t", filepath.Base(dir), ranks, gathers), func(t *testing.T) {
			t.Parallel()
			compareParts(t, dir, ranks, contextSteps, &cpu.Device{GatherStates: gathers})
		})
	}
}

// gpuSteps are fewer: a prompt in as many parts as ranks have, prompts beside each other, decode
// until a graph is captured and replayed, and a prompt that goes on.
func gpuSteps(ranks int) [][]int {
	if !goldens.All() {
		return [][]int{{64*ranks - 56, 0, 0}, {1, 9, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}}
	}
	return [][]int{{64*ranks - 56, 0, 0}, {1, 66, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {2, 1, 9}}
}

// TestPartsCUDA is the same on simulated GPUs: one that the ranks share, and one for each; without
// KRAIT_TEST_ALL of one of some that have between them every operation on parts.
func TestPartsCUDA(t *testing.T) {
	goldens.CI(t)
	counts := []int{2, 3, 4}
	folders := goldens.Folders(t, "..")
	if !goldens.All() {
		folders = []string{shallow(t, "mamba-a", 1), shallow(t, "mamba2-g1", 1), shallow(t, "qwen3-next", 2), shallow(t, "jamba", 3)}
		folders, counts = covering.Drawn(t, folders), counts[:1]
	}
	for _, c := range covering.Each(t, []int{len(folders), len(counts), 2}) {
		dir, ranks, gpus := folders[c[0]], counts[c[1]], 1
		if c[2] == 1 {
			gpus = ranks
		}
		t.Run(fmt.Sprintf("%s/tp=%d on %d", filepath.Base(dir), ranks, gpus), func(t *testing.T) {
			t.Parallel()
			compareParts(t, dir, ranks, gpuSteps(ranks), &cuda.Device{Driver: sim.New(sim.Options{Devices: gpus, NoBLAS: true, Ordered: true})})
		})
	}
}

// TestPartsRefused: devices refuse by name what they cannot do in parts.
func TestPartsRefused(t *testing.T) {
	gpu := sim.New(sim.Options{})
	for _, c := range []struct {
		o    krait.Options
		want string
	}{
		{krait.Options{Speculate: "ngram"}, "do not run speculative decoding"},
		{krait.Options{Speculate: "ngram", Device: &cuda.Device{Driver: gpu}}, "do not run speculative decoding"},
		{krait.Options{Device: &cuda.Device{Driver: gpu, BatchInvariant: true}}, "are not batch-invariant on GPUs"},
	} {
		c.o.Sharding = krait.Sharding{Ranks: 2, Strategy: "context"}
		if _, err := krait.Open("../testdata/golden/mamba-a", c.o); err == nil || !strings.Contains(err.Error(), "ranks that have tokens in parts (strategy context) "+c.want) {
			t.Errorf("want an error that they %s: %v", c.want, err)
		}
	}
}

// compareParts runs a model on one rank of a CPU, and in parts on a device.
func compareParts(t *testing.T, dir string, ranks int, steps [][]int, device exec.Device) {
	t.Helper()
	slots := len(steps[0])
	logits, states := runSharded(t, openModel(t, dir, krait.Options{Slots: slots}), steps)
	got, kept := runSharded(t, openModel(t, dir, krait.Options{Slots: slots, Device: device, Sharding: krait.Sharding{Ranks: ranks, Strategy: "context"}}), steps)
	near(t, got, logits, kept, states)
}

// apart is the largest difference of two lists in terms of the largest number, NaN where they are
// not as long.
func apart(a, b []float32) float64 {
	if len(a) != len(b) {
		return -1
	}
	most, size := mostApart([][]float32{a}, [][]float32{b}), 1e-9
	for _, x := range b {
		size = max(size, float64(x), -float64(x))
	}
	return most / size
}

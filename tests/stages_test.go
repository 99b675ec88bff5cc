package tests

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/internal/covering"
	"github.com/krait-ml/krait/internal/goldens"
)

// staged are the shardings with stages that are compared with the same without them.
var staged = []krait.Sharding{{Stages: 3}, {Ranks: 2, Stages: 2}, {Ranks: 2, Replicas: 2}}

// TestStages: a model in pipeline stages has the bits of the same model in one stage, of all logits
// and all states, in prefill, decode and mixed batches.
func TestStages(t *testing.T) {
	staged := staged
	if goldens.All() {
		staged = append(staged, krait.Sharding{Stages: 2}, krait.Sharding{Ranks: 2, Stages: 2, Replicas: 2})
	}
	folders := covering.Drawn(t, goldens.Folders(t, ".."))
	if goldens.Few(t) {
		folders = folders[1:] // whose scans go in chunks, of which microbatches are multiples
	}
	for _, folder := range folders {
		for _, s := range staged {
			t.Run(fmt.Sprintf("%s/tp=%d,pp=%d,dp=%d", filepath.Base(folder), s.Ranks, s.Stages, s.Replicas), func(t *testing.T) {
				if n := blocksOf(t, folder); n < s.Stages {
					if _, err := krait.Open(folder, krait.Options{Sharding: s}); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("of a model of %d blocks", n)) {
						t.Fatalf("%d stages of %d blocks: %v", s.Stages, n, err)
					}
					return
				}
				one := s
				one.Stages, one.Replicas = 0, 0
				compareBits(t, openGolden(t, folder, s), openGolden(t, folder, one))
			})
		}
	}
}

// blocksOf is the number of blocks of a model.
func blocksOf(t *testing.T, folder string) int {
	return len(openGolden(t, folder, krait.Sharding{}).Graph().Blocks())
}

func openGolden(t *testing.T, folder string, s krait.Sharding) *krait.Model {
	t.Helper()
	m, err := krait.Open(folder, krait.Options{Sharding: s, Slots: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// compareBits runs the same batches on two models.
func compareBits(t *testing.T, a, b *krait.Model) {
	t.Helper()
	models := []*krait.Model{a, b}
	var slots [2][3]int
	for i, m := range models {
		for k := range slots[i] {
			var err error
			if slots[i][k], err = m.Engine().Alloc(); err != nil {
				t.Fatal(err)
			}
		}
	}
	at := 0
	ids := func(n int) []int {
		list := make([]int, n)
		for i := range list {
			at++
			list[i] = at * 7 % a.Vocab()
		}
		return list
	}
	for step, lens := range [][]int{{40}, {1, 9}, {1, 1, 1}, {75, 1, 317}, {1, 1, 1}} {
		var tokens [][]int
		for _, n := range lens {
			tokens = append(tokens, ids(n))
		}
		var logits [2][]float32
		for i, m := range models {
			x := &exec.Batch{}
			for k, list := range tokens {
				q := exec.Sequence{Slot: slots[i][k], Tokens: list}
				for r := range list {
					q.Rows = append(q.Rows, r)
				}
				x.Sequences = append(x.Sequences, q)
			}
			r, err := m.Engine().Step(t.Context(), x)
			if err != nil {
				t.Fatal(err)
			}
			out, err := r.Output(exec.LogitsOutput)
			if err != nil {
				t.Fatal(err)
			}
			for row := range out.Rows() {
				logits[i] = append(logits[i], out.Row(row)...)
			}
		}
		if err := equalBits(logits[0], logits[1]); err != nil {
			t.Fatalf("logits of step %d: %v", step, err)
		}
	}
	for _, spec := range b.Engine().States() {
		for k := range slots[0] {
			var states [2][]float32
			for i, m := range models {
				var err error
				if states[i], err = m.Engine().State(slots[i][k], spec.Name); err != nil {
					t.Fatal(err)
				}
			}
			if err := equalBits(states[0], states[1]); err != nil {
				t.Fatalf("%s of sequence %d: %v", spec.Name, k, err)
			}
		}
	}
}

func equalBits(a, b []float32) error {
	if len(a) != len(b) {
		return fmt.Errorf("%d numbers, want %d", len(a), len(b))
	}
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			return fmt.Errorf("number %d of %d is %g, want %g", i, len(a), a[i], b[i])
		}
	}
	return nil
}

// TestStagesInProcesses: stages and replicas in processes of their own have the same bits.
func TestStagesInProcesses(t *testing.T) {
	goldens.CI(t)
	for _, name := range []string{"mamba-a", "zamba2", "jamba"} {
		for _, s := range []krait.Sharding{{Ranks: 2, Stages: 2}, {Stages: 2, Replicas: 2}} {
			t.Run(fmt.Sprintf("%s/tp=%d,pp=%d,dp=%d", name, s.Ranks, s.Stages, s.Replicas), func(t *testing.T) {
				folder, one := "../testdata/golden/"+name, s
				one.Stages, one.Replicas = 0, 0
				apart, err := spreadModel(t, connected(t, 4, time.Minute), func(_ int, o krait.Options) (*krait.Model, error) {
					o.Sharding, o.Slots, o.Workers = s, 4, 1
					return krait.Open(folder, o)
				})
				if err != nil {
					t.Fatal(err)
				}
				compareBits(t, apart.Model, openGolden(t, folder, one))
			})
		}
	}
}

// TestStagesDecode: decode of 12 sequences runs in several microbatches, of all sequences together,
// where states take more time than weights; logits have the bits of one stage.
func TestStagesDecode(t *testing.T) {
	const folder = "../testdata/golden/mamba-a"
	two := krait.Sharding{Stages: 2}
	var sizes []int64 // of the microbatches of a step
	count := func(w *exec.Work) { sizes = append(sizes, w.Seqs) }
	open := func(o krait.Options) (*krait.Model, error) {
		o.Slots, o.Workers = 12, 1
		return krait.Open(folder, o)
	}
	one, err := open(krait.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	want := decoded(t, one, 12, func(run func()) { run() })
	together, err := open(krait.Options{Sharding: two, Batches: count})
	if err != nil {
		t.Fatal(err)
	}
	defer together.Close()
	apart, err := spreadModel(t, connected(t, 2, time.Minute), func(rank int, o krait.Options) (*krait.Model, error) {
		if o.Sharding = two; rank == 0 {
			o.Batches = count
		}
		return open(o)
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range map[string]*krait.Model{"in one process": together, "over TCP": apart.Model} {
		got := decoded(t, m, 12, func(run func()) {
			sizes = nil
			run()
			all := int64(0)
			for _, n := range sizes {
				all += n
			}
			if len(sizes) < 2 || all != 12 {
				t.Errorf("%s: microbatches of %d sequences, want at least two of 12 in all", name, sizes)
			}
		})
		if err := equalBits(got, want); err != nil {
			t.Errorf("%s: logits: %v", name, err)
		}
	}
}

// decoded runs decode steps of some sequences, each by a function, and returns their logits.
func decoded(t *testing.T, m *krait.Model, sequences int, around func(run func())) (logits []float32) {
	t.Helper()
	slots := make([]int, sequences)
	for i := range slots {
		var err error
		if slots[i], err = m.Engine().Alloc(); err != nil {
			t.Fatal(err)
		}
	}
	for step := range 3 {
		b := &exec.Batch{}
		for i, slot := range slots {
			b.Sequences = append(b.Sequences, exec.Sequence{Slot: slot, Tokens: []int{(step*31 + i*7 + 1) % m.Vocab()}})
		}
		around(func() {
			r, err := m.Engine().Step(t.Context(), b)
			if err != nil {
				t.Fatal(err)
			}
			out, err := r.Output(exec.LogitsOutput)
			if err != nil {
				t.Fatal(err)
			}
			for row := range out.Rows() {
				logits = append(logits, out.Row(row)...)
			}
		})
	}
	return logits
}

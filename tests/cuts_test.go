package tests

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/cuda/sim"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/cpu"
	"github.com/krait-ml/krait/exec/cuda"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/covering"
	"github.com/krait-ml/krait/internal/goldens"
	kernels "github.com/krait-ml/krait/kernels/cpu"
)

// cuts are ways to feed a prompt of 72 tokens: how many at a time, the last rest at once.
var cuts = []struct {
	name  string
	every int // all cuts are at multiples of it
	sizes []int
}{
	{"whole", 0, nil},
	{"at 64", 64, []int{64}},
	{"at 16, 48 and 64", 16, []int{16, 32, 16}},
	{"at 5, 6 and 40", 1, []int{5, 1, 34}},
	{"token by token", 1, slices.Repeat([]int{1}, 72)},
}

// TestCuts is the table of docs/numerics.md for the CPU: which ways to feed a
// prompt give the bits, of logits and states, that the whole prompt gives alone on
// the same ranks. Neither company nor the number of threads ever matters; cuts only to
// scans in chunks, which want multiples of 16. CI runs it with every instruction set.
func TestCuts(t *testing.T) {
	counts := []int{1, 3}
	if goldens.All() {
		counts = []int{1, 2, 3, 4, 8}
	}
	folders := covering.Drawn(t, goldens.Folders(t, ".."))
	for _, c := range covering.Each(t, []int{len(folders)}, len(counts)) {
		dir, ranks := folders[c[0]], counts[c[1]]
		t.Run(fmt.Sprintf("%s/tp=%d", filepath.Base(dir), ranks), func(t *testing.T) {
			t.Parallel()
			m := openModel(t, dir, krait.Options{Slots: 3, Device: &cpu.Device{Workers: ranks}, Sharding: krait.Sharding{Ranks: ranks}})
			unit := 1
			if chunked(t, m) {
				unit = 16
			}
			f := feeding{m: m, ids: randomIDs(72, m.Vocab())}
			f.begin(t)
			f.m = openModel(t, dir, krait.Options{Slots: 3, Device: &cpu.Device{Workers: 3 * ranks}, Sharding: krait.Sharding{Ranks: ranks}})
			for _, c := range cuts {
				for _, company := range []bool{false, true} {
					if c.every == 1 && company == (ranks == 1) && !goldens.All() {
						continue // many steps: alone on one rank, in company on others
					}
					f.check(t, c.name, c.sizes, company, c.every%unit == 0)
				}
			}
		})
	}
}

// cutCUDA is a way to feed a prompt of 104 tokens, and whether the bits are the same.
type cutCUDA struct {
	name          string
	sizes         []int
	company, same bool
}

// TestCutsCUDA is the table for CUDA, where products of one row, of 2 to 8, of 9 to 128 and of
// more, and batches of a token per sequence, have kernels of their own: the bits are the same where
// all batches have the same, and scans in chunks are cut at multiples of 32. Logits of one sequence
// have other bits than those of three.
func TestCutsCUDA(t *testing.T) {
	for _, c := range covering.Drawn(t, []struct {
		model string
		cuts  []cutCUDA
	}{
		{"mamba-a", []cutCUDA{
			{"at 40", []int{40}, true, true},
			{"at 96", []int{96}, false, false}, // 8 tokens are left
		}},
		{"mamba2-g1", []cutCUDA{
			{"whole", nil, true, true},
			{"at 64", []int{64}, false, true},
			{"at 40", []int{40}, false, false},
		}},
		{"qwen3-5", []cutCUDA{
			{"at 64", []int{64}, true, true},
			{"at 40", []int{40}, false, false},
		}},
	}) {
		t.Run(c.model, func(t *testing.T) {
			t.Parallel()
			m := openModel(t, shallow(t, c.model, 1), krait.Options{Slots: 3, Device: &cuda.Device{Driver: sim.New(sim.Options{NoBLAS: true})}})
			tokens := 104
			if !goldens.All() {
				tokens = 76 // which are in no cut that is left 32 or fewer at once
			}
			f := feeding{m: m, ids: randomIDs(tokens, m.Vocab()), byRows: true}
			f.begin(t)
			for i, cut := range c.cuts {
				if !goldens.All() && i == 1 { // the same bits, the same kernels as another
					continue
				}
				f.check(t, cut.name, cut.sizes, cut.company, cut.same)
			}
		})
	}
}

// TestCutsOfStates is the table for states in 16 bits: caches change nothing of it, as
// all that attention reads comes from them, rounded; other states are rounded at every
// cut. Company never matters.
func TestCutsOfStates(t *testing.T) {
	goldens.CI(t)
	for _, c := range []struct {
		model, states string
		unit          int // cuts at multiples of it change no bit; 0: all cuts do
	}{
		{"jamba", "cache=f16", 1},
		{"jamba", "cache=e4m3", 1},
		{"bamba", "cache=bf16", 16},
		{"mamba-a", "conv=f16", 0},
		{"mamba-b", "ssm=bf16", 0},
		{"mamba2-g1", "conv=bf16,ssm=bf16", 0},
	} {
		t.Run(c.model+" "+c.states, func(t *testing.T) {
			t.Parallel()
			m := openModel(t, "../testdata/golden/"+c.model, krait.Options{Slots: 3, Sharding: krait.Sharding{Ranks: 2, States: c.states}})
			f := feeding{m: m, ids: randomIDs(72, m.Vocab()), within: 0.2}
			f.begin(t)
			for _, cut := range cuts {
				for _, company := range []bool{false, true} {
					f.check(t, cut.name, cut.sizes, company, cut.sizes == nil || c.unit > 0 && cut.every%c.unit == 0)
				}
			}
		})
	}
}

// chunked reports whether the model has scans that take tokens in chunks. Plain kernels of the
// delta rule take them one by one.
func chunked(t *testing.T, m *krait.Model) bool {
	isa, err := kernels.ChosenISA()
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(m.Graph().Nodes, func(n *graph.Node) bool {
		return n.Op.Name == "ssd_scan" || n.Op.Name == "delta_scan" && isa != "plain"
	})
}

// feeding is a prompt, and what it gives whole and alone.
type feeding struct {
	m      *krait.Model
	ids    []int
	logits []float32
	states *krait.Snapshot
	within float64 // how far logits of other bits may be; 0: 2e-4
	byRows bool    // logits have bits by how many sequences have some: states alone are compared in company
}

func (f *feeding) begin(t *testing.T) { f.logits, f.states = f.feed(t, nil, false) }

// check feeds the prompt in another way and compares.
func (f *feeding) check(t *testing.T, name string, sizes []int, company, want bool) {
	t.Helper()
	logits, states := f.feed(t, sizes, company)
	same := f.byRows && company || sameBits(logits, f.logits)
	for name, v := range f.states.States {
		same = same && sameBits(states.States[name], v)
	}
	if same != want {
		t.Errorf("%s, company %v: the same bits: %v, the table says %v", name, company, same, want)
	}
	for i, x := range f.logits {
		if d := math.Abs(float64(logits[i] - x)); !(d <= cmp.Or(f.within, 2e-4)) {
			t.Fatalf("%s, company %v: logit %d is %g, want %g", name, company, i, logits[i], x)
		}
	}
}

// feed feeds the prompt cut in pieces, alone or beside a sequence that begins with 9 tokens and one
// that has a token at a time, and returns its last logits and its states.
func (f *feeding) feed(t *testing.T, sizes []int, company bool) ([]float32, *krait.Snapshot) {
	t.Helper()
	m, ids := f.m, f.ids
	var slots [3]int
	for i := range slots {
		var err error
		if slots[i], err = m.Engine().Alloc(); err != nil {
			t.Fatal(err)
		}
		defer m.Engine().Free(slots[i])
	}
	var results exec.Results
	for at, first := 0, true; at < len(ids); first = false {
		n := len(ids) - at
		if len(sizes) > 0 {
			n, sizes = min(n, sizes[0]), sizes[1:]
		}
		b := exec.Batch{Sequences: []exec.Sequence{{Slot: slots[0], Tokens: ids[at : at+n]}}}
		if company {
			other := exec.Sequence{Slot: slots[2], Tokens: ids[:1]}
			if first {
				other.Tokens = ids[3:12]
			}
			b.Sequences = append([]exec.Sequence{{Slot: slots[1], Tokens: ids[9:10]}}, append(b.Sequences, other)...)
		}
		var err error
		if results, err = m.Engine().Step(context.Background(), &b); err != nil {
			t.Fatal(err)
		}
		at += n
	}
	out, err := results.Output("logits")
	if err != nil {
		t.Fatal(err)
	}
	row := 0
	if company {
		row = 1
	}
	logits := slices.Clone(out.Row(row))
	s, err := m.Engine().Snapshot(slots[0])
	if err != nil {
		t.Fatal(err)
	}
	return logits, s
}

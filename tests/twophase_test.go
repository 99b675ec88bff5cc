package tests

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/cuda/sim"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/cuda"
	"github.com/krait-ml/krait/internal/covering"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/transfer"
	"github.com/krait-ml/krait/transfer/prefill"
)

// TestTwoPhases: with a strategy for prefill and one for decode, all logits and states are those of
// one rank but for the order of sums: of prompts alone, beside decodes, and after them.
func TestTwoPhases(t *testing.T) {
	counts, decodes, prefills := []int{2, 3, 4, 8}, []string{"channel", "replicated-x", "sequence"}, []string{"context", "sequence", "channel"}
	folders := covering.Drawn(t, goldens.Folders(t, ".."))
	for _, c := range covering.Each(t, []int{len(folders), len(counts), len(decodes), len(prefills)}) {
		dir, s := folders[c[0]], krait.Sharding{Ranks: counts[c[1]], Strategy: decodes[c[2]], Prefill: prefills[c[3]]}
		t.Run(fmt.Sprintf("%s/tp=%d/%s/%s", filepath.Base(dir), s.Ranks, s.Prefill, s.Strategy), func(t *testing.T) {
			t.Parallel()
			want, states := runSharded(t, openModel(t, dir, krait.Options{Slots: 5}), contextSteps)
			m, err := krait.Open(dir, krait.Options{Slots: 5, Sharding: s})
			if err != nil {
				if _, alone := krait.Open(dir, krait.Options{Sharding: krait.Sharding{Ranks: s.Ranks, Strategy: s.Strategy}}); alone == nil {
					t.Fatal(err)
				}
				return // the model has nothing that the strategy is about
			}
			defer m.Close()
			got, kept := runSharded(t, m, contextSteps)
			near(t, got, want, kept, states)
		})
	}
}

// TestTwoPhasesCUDA is the same on simulated GPUs, one for each rank: states and KV rows move
// before the first decode step, and back for a prompt that goes on. Unwritten memory is not read.
func TestTwoPhasesCUDA(t *testing.T) {
	goldens.CI(t)
	dir, steps := shallow(t, "jamba", 3), [][]int{{66, 0}, {1, 3}, {2, 1}}
	want, states := runSharded(t, openModel(t, dir, krait.Options{Slots: 2}), steps)
	got, kept := runSharded(t, openModel(t, dir, krait.Options{
		Slots:    2,
		Device:   &cuda.Device{Driver: sim.New(sim.Options{Devices: 2, NoBLAS: true, Ordered: true})},
		Sharding: krait.Sharding{Ranks: 2, Prefill: "context"},
	}), steps)
	near(t, got, want, kept, states)
}

// TestRowsOfOnePhase: a prompt of which no rows are wanted, beside a decode step of another
// sequence: the step's logits are those that it has alone, in whichever order they come.
func TestRowsOfOnePhase(t *testing.T) {
	m := openModel(t, "../testdata/golden/mamba-a", krait.Options{Slots: 3, Sharding: krait.Sharding{Ranks: 2, Prefill: "context"}})
	prompt := randomIDs(9, m.Vocab())
	want := slices.Clone(stepped(t, sequence(t, m), 3))
	for _, first := range []int{0, 1} {
		a, b := sequence(t, m), sequence(t, m)
		batch := []exec.Sequence{{Slot: a.slot, Tokens: prompt, Rows: []int{}}, {Slot: b.slot, Tokens: []int{3}}}
		if first == 1 {
			slices.Reverse(batch)
		}
		err := m.Session().Step(t.Context(), &exec.Batch{Sequences: batch}, func(r *exec.Results) error {
			logits, err := r.Output(exec.LogitsOutput)
			if err == nil && !slices.Equal(logits.Row(0), want) {
				t.Errorf("order %d: the logits of the step differ", first)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
		a.Close()
		b.Close()
	}
}

// near compares logits by step and snapshots by sequence.
func near(t *testing.T, got, want [][]float32, kept, states []*krait.Snapshot) {
	t.Helper()
	for i := range got {
		if d := apart(got[i], want[i]); !(d >= 0 && d <= 1e-4) {
			t.Errorf("the logits of step %d are %.2g of the largest from those of one rank", i, d)
		}
	}
	for i, s := range kept {
		for name, want := range states[i].States {
			if d := apart(s.States[name], want); !(d >= 0 && d <= 1e-4) {
				t.Errorf("sequence %d: %s is %.2g of its largest from that of one rank", i, name, d)
			}
		}
	}
}

// TestPrefillInParts: a server that prefills in parts serves ranks of other numbers and strategies.
func TestPrefillInParts(t *testing.T) {
	goldens.CI(t)
	folders := covering.Drawn(t, goldens.Folders(t, ".."))
	others := []krait.Sharding{{Ranks: 1}, {Ranks: 2}, {Ranks: 3, Strategy: "sequence"}, {Ranks: 2, Prefill: "context"}}
	servers := []krait.Sharding{{Ranks: 3, Strategy: "context"}, {Ranks: 2, Prefill: "context"}, {Ranks: 4, Prefill: "context", Phase: "prefill"}}
	for _, c := range covering.Each(t, []int{len(folders)}, len(servers), len(others), 2) {
		dir, o := folders[c[0]], krait.Options{PrefixCache: int64(c[3]) << 24, PageTokens: 16, Sharding: servers[c[1]]}
		t.Run(fmt.Sprintf("%s/%d/%d/%d", filepath.Base(dir), c[1], c[2], c[3]), func(t *testing.T) {
			t.Parallel()
			alone, from := openModel(t, dir, krait.Options{}), openModel(t, dir, o)
			o.PageTokens, o.Sharding = 7, others[c[2]]
			to := openModel(t, dir, o)
			s, _ := serveModel(t, from, transfer.ServerOptions{})
			p := prefillBy(t, to, prefill.Options{Server: s, Strict: true})
			prompt := randomIDs(290, alone.Vocab())
			for _, n := range []int{130, 290, 290} { // the second resumes from a prefix, if there is a cache
				want := greedy(t, alone, prompt[:n], nil)
				if got := greedy(t, to, prompt[:n], p); !slices.Equal(got.IDs, want.IDs) || got.Remote == nil || got.Remote.Bytes == 0 {
					t.Errorf("of %d tokens: %v by %+v, want %v", n, got.IDs, got.Remote, want.IDs)
				}
			}
		})
	}
}

// TestPayloadsByPhase: formats of payloads for one phase count in one process that has both.
func TestPayloadsByPhase(t *testing.T) {
	const dir = "../testdata/golden/mamba-a"
	run := func(s krait.Sharding) (prompt, step []float32) {
		s.Ranks = 2
		m := openModel(t, dir, krait.Options{Slots: 1, Sharding: s})
		q := sequence(t, m)
		prompt = stepped(t, q, randomIDs(20, m.Vocab())...)
		return slices.Clone(prompt), stepped(t, q, 3)
	}
	plain, plainStep := run(krait.Sharding{})
	for payload, rounded := range map[string]int{"int8@prefill": 0, "int8@decode": 1} {
		prompt, step := run(krait.Sharding{Prefill: "channel", Payload: payload})
		if same := sameBits(prompt, plain); same != (rounded == 1) {
			t.Errorf("%s: the prompt has the bits without payloads: %v", payload, same)
		}
		if sameBits(step, plainStep) {
			t.Errorf("%s: the step has the bits without payloads", payload)
		}
	}
}

// TestPlanOfTwoPhases: the memory plan counts both strategies, of decode's weights those that the
// CPU copies, and of its activations those of steps without prompts.
func TestPlanOfTwoPhases(t *testing.T) {
	plan := func(s krait.Sharding) krait.MemoryPlan {
		s.Ranks = 2
		return openModel(t, "../testdata/golden/jamba", krait.Options{Slots: 3, Memory: 1 << 30, Sharding: s}).MemoryPlan()
	}
	channel, whole, both := plan(krait.Sharding{}), plan(krait.Sharding{Strategy: "context"}), plan(krait.Sharding{Prefill: "context"})
	if both.Weights <= whole.Weights || both.Weights >= whole.Weights+channel.Weights {
		t.Errorf("weights of %d; %d by context and %d by channel", both.Weights, whole.Weights, channel.Weights)
	}
	if both.Page != whole.Page+channel.Page-128*128 || both.Activations <= whole.Activations || both.Activations >= whole.Activations+channel.Activations || both.States <= channel.States {
		t.Errorf("%+v; by channel %+v, by context %+v", both, channel, whole)
	}
}

package tests

import (
	"fmt"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/state"
	"github.com/krait-ml/krait/internal/goldens"
)

// TestStagesStates: on a mesh with stages and replicas a sequence resumes from a snapshot of
// another mesh, from copies in a slot of another replica, from an export, and after a trial of
// which some tokens are kept, with the bits of one rank.
func TestStagesStates(t *testing.T) {
	for i, name := range []string{"mamba-a", "zamba2", "qwen3-next", "jamba"} {
		for k, s := range []krait.Sharding{{Stages: 2}, {Replicas: 2}, {Ranks: 2, Stages: 2, Replicas: 2}} {
			if i%3 != k && goldens.Few(t) {
				continue
			}
			t.Run(fmt.Sprintf("%s/tp=%d,pp=%d,dp=%d", name, s.Ranks, s.Stages, s.Replicas), func(t *testing.T) {
				one := s
				one.Stages, one.Replicas = 0, 0
				a, b := movedStates(t, openTrials(t, name, s)), movedStates(t, openTrials(t, name, one))
				for i := range b {
					if err := equalBits(a[i], b[i]); err != nil {
						t.Errorf("logits %d: %v", i, err)
					}
				}
			})
		}
	}
}

func openTrials(t *testing.T, name string, s krait.Sharding) *krait.Model {
	t.Helper()
	m, err := krait.Open("../testdata/golden/"+name, krait.Options{Sharding: s, Slots: 4, PageTokens: 16, Speculate: "ngram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// movedStates moves the states of sequences in every way, and returns the logits that follow.
func movedStates(t *testing.T, m *krait.Model) (logits [][]float32) {
	e := m.Engine()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var slots [4]int
	for i := range slots {
		var err error
		slots[i], err = e.Alloc()
		must(err)
	}
	step := func(list ...exec.Sequence) {
		t.Helper()
		r, err := e.Step(t.Context(), &exec.Batch{Sequences: list})
		must(err)
		out, err := r.Output(exec.LogitsOutput)
		must(err)
		for row := range out.Rows() {
			logits = append(logits, append([]float32(nil), out.Row(row)...))
		}
	}
	prompt := make([]int, 37)
	for i := range prompt {
		prompt[i] = (i*i + 3) % m.Vocab()
	}
	step(exec.Sequence{Slot: slots[0], Tokens: prompt})
	d, err := e.CopyState(slots[0])
	must(err)
	kv, err := e.ShareKV(slots[0], 0, len(prompt))
	must(err)
	must(e.Resume(slots[1], d, kv)) // another replica
	host, err := e.OffloadState(d)
	must(err)
	step(exec.Sequence{Slot: slots[0], Tokens: []int{5}}, exec.Sequence{Slot: slots[1], Tokens: []int{6}}) // the shared page is copied
	must(e.Resume(slots[2], d, kv))
	d.Free()
	kv.Free()
	step(exec.Sequence{Slot: slots[2], Tokens: []int{5, 6, 7}, Trial: true}, exec.Sequence{Slot: slots[1], Tokens: []int{8, 9}, Trial: true})
	must(e.Settle(t.Context(), []exec.Kept{{Slot: slots[2], Tokens: 1}, {Slot: slots[1], Tokens: 2}}))
	step(exec.Sequence{Slot: slots[2], Tokens: []int{7}}, exec.Sequence{Slot: slots[1], Tokens: []int{7}})
	x, err := e.Snapshot(slots[1])
	must(err)
	must(e.Restore(slots[0], x))
	out, err := e.Export(slots[2])
	must(err)
	must(e.Import(slots[3], out))
	step(exec.Sequence{Slot: slots[0], Tokens: []int{1}}, exec.Sequence{Slot: slots[1], Tokens: []int{1}}, exec.Sequence{Slot: slots[3], Tokens: []int{2, 3}})
	loaded, err := e.LoadState(&state.HostState{Tokens: host.Tokens, Data: host.Data})
	must(err)
	loaded.Free()
	must(e.Free(slots[0]))
	slots[0], err = e.Alloc()
	must(err)
	step(exec.Sequence{Slot: slots[0], Tokens: prompt[:3]}, exec.Sequence{Slot: slots[3], Tokens: []int{4}})
	return logits
}

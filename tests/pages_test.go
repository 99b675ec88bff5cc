package tests

import (
	"fmt"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/cuda/sim"
	"github.com/krait-ml/krait/exec/cuda"
	"github.com/krait-ml/krait/exec/state"
	"github.com/krait-ml/krait/internal/covering"
	"github.com/krait-ml/krait/internal/goldens"
)

// TestPageTokens: logits and states have the same bits in pages of any size, on any number of ranks
// and on simulated GPUs, also of sequences that share pages and go different ways.
func TestPageTokens(t *testing.T) {
	for _, c := range []struct {
		name  string
		ranks int
		gpus  int // 0: the CPU
		pages []int
	}{
		{"jamba", 1, 0, []int{1, 3, 16, 48, 128}}, {"zamba2", 3, 0, []int{1, 48}}, {"bamba", 2, 1, []int{3}},
	} {
		if c.ranks > 1 && goldens.Few(t) {
			continue
		}
		tokens := 140 // more than a block of keys
		if c.gpus > 0 {
			tokens = 14
		}
		dir := "../testdata/golden/" + c.name
		if c.gpus > 0 {
			dir = shallow(t, c.name, 2)
		}
		open := func(pages int) *krait.Model {
			o := krait.Options{Slots: 3, PageTokens: pages, Sharding: krait.Sharding{Ranks: c.ranks}}
			if c.gpus > 0 {
				o.Device = &cuda.Device{Driver: sim.New(sim.Options{Devices: c.gpus, NoBLAS: true})}
			}
			return openModel(t, dir, o)
		}
		ids := randomIDs(tokens, 50)
		want := runPages(t, open(1000), ids)
		for _, pages := range covering.Drawn(t, c.pages) {
			what := fmt.Sprintf("%s, %d ranks, %d GPUs, pages of %d", c.name, c.ranks, c.gpus, pages)
			m := open(pages)
			got := runPages(t, m, ids)
			for i := range want.logits {
				if !sameBits(got.logits[i], want.logits[i]) {
					t.Errorf("%s: logits %d have other bits", what, i)
				}
			}
			for i := range want.states {
				sameSnapshot(t, what, got.states[i], want.states[i])
			}
			if u := m.Engine().PageUse(); u.Free != u.Pages {
				t.Errorf("%s: all is freed, and the use is %+v", what, u)
			}
		}
	}
}

type paged struct {
	logits [][]float32
	states []*krait.Snapshot
}

// runPages feeds a sequence, forks it twice, and lets each of the three go another way.
func runPages(t *testing.T, m *krait.Model, ids []int) (out paged) {
	seqs := []*seq{sequence(t, m), sequence(t, m), sequence(t, m)}
	step := func(i int, ids ...int) { out.logits = append(out.logits, stepped(t, seqs[i], ids...)) }
	step(0, ids[:13]...)
	step(0, ids[13:]...)
	e := m.Engine()
	states, err := e.CopyState(seqs[0].slot)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := e.ShareKV(seqs[0].slot, 0, len(ids))
	if err != nil {
		t.Fatal(err)
	}
	before, rest := rows.Split(len(ids) / 2)
	states, parts := throughHost(t, e, states, []*state.DeviceKV{rest})
	for _, s := range seqs[1:] {
		if err := e.Resume(s.slot, states, before, parts[0]); err != nil {
			t.Fatal(err)
		}
	}
	step(2, 7)
	for i := range seqs {
		for k := range 3 {
			step(i, 3+i+k)
		}
	}
	before.Free()
	parts[0].Free()
	states.Free()
	for i, s := range seqs {
		step(i, ids[:5]...)
		out.states = append(out.states, snapshot(t, s))
		s.Close()
	}
	return out
}

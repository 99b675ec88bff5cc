package tests

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/cuda/sim"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/cuda"
	"github.com/krait-ml/krait/exec/state"
	"github.com/krait-ml/krait/internal/covering"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/lowering"
)

// kept keeps a sequence, and shows it.
func kept(t *testing.T, s *seq, from, to int) *state.View {
	t.Helper()
	e := s.m.Engine()
	states, err := e.CopyState(s.slot)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := e.ShareKV(s.slot, from, to)
	if err != nil {
		t.Fatal(err)
	}
	v, err := e.View(states, rows)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		states.Free()
		rows.Free()
	})
	return v
}

// bring lets a sequence of one engine go on in another, which has its first rows.
func bring(t *testing.T, to, from *seq, have int) {
	t.Helper()
	tokens, err := from.Len()
	if err != nil {
		t.Fatal(err)
	}
	there, err := from.m.Engine().TransferEnd()
	if err != nil {
		t.Fatal(err)
	}
	here, err := to.m.Engine().TransferEnd()
	if err != nil {
		t.Fatal(err)
	}
	x, err := lowering.NewTransfer(there, here)
	if err != nil {
		t.Fatal(err)
	}
	e := to.m.Engine()
	states, rows, err := e.Reserve(tokens, have)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		states.Free()
		rows.Free()
	}()
	source := kept(t, from, 0, tokens)
	dest, err := e.View(states, rows)
	if err != nil {
		t.Fatal(err)
	}
	for rank := range here.States.Ranks {
		reads, err := x.Reads(rank, tokens, have)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range reads {
			a, err := source.Region(r.From, r.Source.Region)
			if err != nil {
				t.Fatal(err)
			}
			b, err := dest.Region(rank, r.Dest.Region)
			if err != nil {
				t.Fatal(err)
			}
			r.Each(func(from, to int64) {
				if err := move(b, a, to, from, r.Bytes); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
	all := []*state.DeviceKV{rows}
	if have > 0 {
		first, err := e.ShareKV(to.slot, 0, have)
		if err != nil {
			t.Fatal(err)
		}
		defer first.Free()
		all = []*state.DeviceKV{first, rows}
	}
	if err := e.Resume(to.slot, states, all...); err != nil {
		t.Fatal(err)
	}
}

// move copies bytes between regions, by the memory itself where it can.
func move(to, from *state.Region, at, first, n int64) error {
	data := from.Direct(first, n)
	if data == nil {
		data = make([]byte, n)
		if err := from.Read(data, first); err != nil {
			return err
		}
	}
	if memory := to.Direct(at, n); memory != nil {
		copy(memory, data)
		return nil
	}
	return to.Write(data, at)
}

// side is a machine of a test.
type side struct {
	sharding krait.Sharding
	page     int
	gpus     int
}

func (s side) open(t *testing.T, dir string) *krait.Model {
	t.Helper()
	return openModel(t, dir, krait.Options{Slots: 3, Sharding: s.sharding, PageTokens: s.page, Device: s.device()})
}

func (s side) device() exec.Device {
	if s.gpus == 0 {
		return nil
	}
	return &cuda.Device{Driver: sim.New(sim.Options{Devices: s.gpus})}
}

// TestTransfer: on whatever ranks, by whatever strategies, in whatever pages, on a CPU or
// simulated GPUs, what arrives is bit for bit what left, and the sequence goes on as it
// would have: with the same bits on as many ranks, else within what sums in another order
// differ. What arrives after a token too many goes on otherwise.
func TestTransfer(t *testing.T) {
	pairs := []struct{ from, to side }{
		{side{krait.Sharding{Ranks: 1}, 16, 0}, side{krait.Sharding{Ranks: 4, States: "conv=bf16"}, 48, 0}},
		{side{krait.Sharding{Ranks: 4}, 7, 0}, side{krait.Sharding{Ranks: 1}, 16, 1}},
		{side{krait.Sharding{Ranks: 3}, 16, 1}, side{krait.Sharding{Ranks: 2, Strategy: "hoisted"}, 5, 0}},
		{side{krait.Sharding{Ranks: 2}, 1, 0}, side{krait.Sharding{Ranks: 2}, 32, 0}},
		{side{krait.Sharding{Ranks: 3, Strategy: "context"}, 16, 0}, side{krait.Sharding{Ranks: 2}, 7, 0}},
		{side{krait.Sharding{Ranks: 2, Prefill: "context"}, 7, 0}, side{krait.Sharding{Ranks: 3, Prefill: "context", Strategy: "sequence"}, 16, 0}},
		{side{krait.Sharding{Ranks: 5, Strategy: "naive"}, 3, 0}, side{krait.Sharding{Ranks: 8}, 3, 0}},
	}
	const prompt, held, more = 37, 19, 3
	folders := covering.Drawn(t, goldens.Folders(t, ".."))
	for _, c := range covering.Each(t, []int{len(folders), len(pairs)}, 2) {
		dir, x := folders[c[0]], pairs[c[1]]
		x.from.sharding.States = x.to.sharding.States
		if c[2] > 0 {
			x.from.gpus, x.to.gpus = 0, 0
		} else if x.from.gpus+x.to.gpus > 0 && !goldens.All() {
			dir = shallow(t, "mamba2-g1", 1)
		}
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			what := fmt.Sprintf("%v to %v", x.from, x.to)
			from, to := x.from.open(t, dir), x.to.open(t, dir)
			ids := randomIDs(prompt+more, from.Vocab())
			stepped(t, sequence(t, from), 1) // so that slots and pages differ
			stepped(t, sequence(t, to), 1, 2)
			s, q := sequence(t, from), sequence(t, to)
			stepped(t, s, ids[:held]...)
			bring(t, q, s, 0)
			stepped(t, s, ids[held:prompt]...)
			bring(t, q, s, held) // the first rows are there
			sameSnapshot(t, what, snapshot(t, q), snapshot(t, s))
			var want, got []float32
			for _, id := range ids[prompt:] {
				want, got = stepped(t, s, id), stepped(t, q, id)
				if x.from.sharding.Ranks == x.to.sharding.Ranks && x.from.sharding.Strategy == x.to.sharding.Strategy && x.from.gpus == x.to.gpus && !sameBits(got, want) {
					t.Fatalf("%s: the same ranks give other bits", what)
				}
				if d := farthest(got, want); !(d <= 5e-4) {
					t.Fatalf("%s: a logit is off by %g", what, d)
				}
			}
			bring(t, q, s, prompt) // which has the last token already
			if d := farthest(stepped(t, q, ids[len(ids)-1]), want); !(d > 5e-4) {
				t.Errorf("%s: the last token twice gives what it gives once", what)
			}
			from.Close()
			to.Close()
		})
	}
}

// farthest is how far numbers are from others.
func farthest(a, b []float32) (far float64) {
	for i := range b {
		d := math.Abs(float64(a[i] - b[i]))
		if !(d <= far) {
			far = d
		}
	}
	return far
}

// TestRoom: what comes finds zeros where states of others were, and room that is given back;
// what is not kept is an error.
func TestRoom(t *testing.T) {
	for _, x := range []side{{krait.Sharding{Ranks: 2}, 4, 0}, {krait.Sharding{Ranks: 2}, 4, 1}} {
		m := openModel(t, "../testdata/golden/jamba", krait.Options{Slots: 2, Context: 40, PageTokens: x.page, Sharding: x.sharding, Device: x.device()})
		e, s := m.Engine(), sequence(t, m)
		stepped(t, s, randomIDs(11, m.Vocab())...)
		kept, err := e.CopyState(s.slot) // in a place that room will have
		if err != nil {
			t.Fatal(err)
		}
		kept.Free()
		before := e.PageUse()
		states, rows, err := e.Reserve(10, 5)
		if err != nil {
			t.Fatal(err)
		}
		v, err := e.View(states, rows)
		if err != nil {
			t.Fatal(err)
		}
		for rank := range 2 {
			r, err := v.Region(rank, 0)
			if err != nil {
				t.Fatal(err)
			}
			data := make([]byte, r.Size())
			if err := r.Read(data, 0); err != nil {
				t.Fatal(err)
			}
			if n := slices.IndexFunc(data, func(b byte) bool { return b != 0 }); n >= 0 {
				t.Errorf("rank %d has room whose byte %d is of another sequence", rank, n)
			}
			if r.Read(data, 1) == nil || r.Write(data, -1) == nil || r.Write(make([]byte, len(data)+1), 0) == nil {
				t.Error("a region is read or written outside of it")
			}
		}
		for _, at := range [][2]int{{0, 1}, {0, 4}, {0, -1}, {-1, 0}, {2, 0}} { // tokens 5 to 9 are in the second page and the third
			if _, err := v.Region(at[0], at[1]); err == nil {
				t.Errorf("rank %d has region %d", at[0], at[1])
			}
		}
		ids := map[uint64]bool{}
		for rank := range 2 {
			for _, i := range []int{0, 2, 3} {
				r, err := v.Region(rank, i)
				if err != nil || ids[r.ID()] {
					t.Errorf("rank %d, region %d: %v", rank, i, err)
				} else {
					ids[r.ID()] = true
				}
			}
		}
		states.Free()
		rows.Free()
		if after := e.PageUse(); after != before {
			t.Errorf("pages are %+v after room was given back, %+v before", after, before)
		}
		viewRefuses(t, s)
		for _, bad := range [][2]int{{41, 0}, {3, 4}, {3, -1}} {
			if _, _, err := e.Reserve(bad[0], bad[1]); err == nil {
				t.Errorf("there is room for %d tokens from %d on", bad[0], bad[1])
			}
		}
	}
}

// viewRefuses joins rows that are in two pages for the same tokens, and wants them refused.
func viewRefuses(t *testing.T, s *seq) {
	t.Helper()
	e := s.m.Engine()
	whole, err := e.ShareKV(s.slot, 0, 11)
	if err != nil {
		t.Fatal(err)
	}
	before, rest := whole.Split(6)
	host, err := e.OffloadKV(rest)
	if err != nil {
		t.Fatal(err)
	}
	own, err := e.LoadKV(host) // in pages that have not what is before
	if err != nil {
		t.Fatal(err)
	}
	rest.Free()
	both := before.Join(own)
	defer both.Free()
	if _, err := e.View(nil, both); err == nil || !strings.Contains(err.Error(), "has several pages for the same tokens") {
		t.Errorf("a view of rows in two pages for the same tokens: %v", err)
	}
}

package tests

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/cuda/sim"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/cuda"
	"github.com/krait-ml/krait/internal/covering"
	"github.com/krait-ml/krait/internal/goldens"
)

func openModel(t *testing.T, dir string, o krait.Options) *krait.Model {
	t.Helper()
	m, err := krait.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func stepped(t *testing.T, s *seq, tokens ...int) []float32 {
	t.Helper()
	logits, err := s.Step(context.Background(), tokens...)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Clone(logits)
}

func randomIDs(n, vocab int) []int {
	r := rand.New(rand.NewPCG(1, uint64(n)))
	ids := make([]int, n)
	for i := range ids {
		ids[i] = r.IntN(vocab)
	}
	return ids
}

// sameBits reports whether numbers are the same to the last bit.
func sameBits(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) })
}

func sameSnapshot(t *testing.T, what string, got, want *krait.Snapshot) {
	t.Helper()
	if got.Tokens != want.Tokens || len(got.States) != len(want.States) {
		t.Fatalf("%s: %d tokens and %d states, want %d and %d", what, got.Tokens, len(got.States), want.Tokens, len(want.States))
	}
	for name, v := range want.States {
		if !sameBits(got.States[name], v) {
			t.Fatalf("%s: state %s came back otherwise", what, name)
		}
	}
}

func snapshot(t *testing.T, s *seq) *krait.Snapshot {
	t.Helper()
	snap, err := s.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	return snap
}

// TestStatesOfModel: on whatever ranks and by whatever strategy, the states are those
// of the model's graph, by names and types; and a sequence moves from any to any,
// between devices, bit for bit, at once and state by state: it goes on there as it
// would, and back where it was as if it had never left.
func TestStatesOfModel(t *testing.T) {
	others := []struct {
		sharding krait.Sharding
		gpus     int
	}{
		{krait.Sharding{Ranks: 2}, 0},
		{krait.Sharding{Ranks: 3, Strategy: "naive"}, 0},
		{krait.Sharding{Ranks: 8, Strategy: "hoisted"}, 0},
		{krait.Sharding{Ranks: 1}, 1},
		{krait.Sharding{Ranks: 3}, 1},
		{krait.Sharding{Ranks: 2, Strategy: "hoisted"}, 2},
		{krait.Sharding{Ranks: 3, Strategy: "context"}, 0},
		{krait.Sharding{Ranks: 2, Prefill: "context"}, 0},
	}
	folders := covering.Drawn(t, goldens.Folders(t, ".."))
	cases := covering.Each(t, []int{len(folders), 6}, 5) // by which ranks, and by which GPUs or none
	if goldens.All() {
		cases = covering.Each(t, []int{len(folders)}) // by all, one after the other
	}
	for _, c := range cases {
		dir := folders[c[0]]
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			from := openModel(t, dir, krait.Options{Slots: 3})
			ids := randomIDs(70, from.Vocab()) // more than caches have room for at first
			stepped(t, sequence(t, from), 1)   // so that slots differ
			s := sequence(t, from)
			stepped(t, s, ids...)
			there, want := snapshot(t, s), stepped(t, s, 7)
			at := there
			for i, o := range others {
				options := krait.Options{Slots: 2, Sharding: o.sharding}
				if !goldens.All() && i != []int{0, 1, 2, 6, 7}[c[2]] && i != 3+c[1]%3 {
					continue
				}
				if o.gpus > 0 {
					options.Device = &cuda.Device{Driver: sim.New(sim.Options{Devices: o.gpus})}
				}
				what := fmt.Sprintf("%v on %d GPUs", o.sharding, o.gpus)
				m := openModel(t, dir, options)
				statesOfGraph(t, m)
				q := sequence(t, m)
				if err := q.Restore(at); err != nil {
					t.Fatal(what, err)
				}
				at = snapshot(t, q) // goes on to the next, from one to the other
				sameSnapshot(t, what, at, there)
				p := sequence(t, m)
				moveEach(t, p, q)
				sameSnapshot(t, what+", one by one", snapshot(t, p), there)
				got := stepped(t, q, 7)
				for j := range want {
					if d := math.Abs(float64(got[j] - want[j])); !(d <= 5e-4) {
						t.Fatalf("%s: logit %d is %g, want %g", what, j, got[j], want[j])
					}
				}
				if n, err := q.Len(); err != nil || n != len(ids)+1 {
					t.Errorf("%s: %d tokens, %v", what, n, err)
				}
			}
			if err := s.Restore(at); err != nil {
				t.Fatal(err)
			}
			if !sameBits(stepped(t, s, 7), want) {
				t.Error("the sequence came back otherwise than it left")
			}
		})
	}
}

// statesOfGraph compares the list of states with the leaves of the model's graph.
func statesOfGraph(t *testing.T, m *krait.Model) {
	t.Helper()
	want := map[string]string{}
	for _, n := range m.Graph().Leaves("state") {
		want[n.Name()] = n.Results[0].Type.String()
	}
	got := map[string]string{}
	for _, s := range m.States() {
		got[s.Name] = s.Type.String()
	}
	if !maps.Equal(got, want) {
		t.Fatalf("%v: the states are %v, want %v", m.Ranks(), got, want)
	}
}

// moveEach copies a sequence state by state.
func moveEach(t *testing.T, to, from *seq) {
	t.Helper()
	n, err := from.Len()
	if err == nil {
		err = to.m.Engine().SetLen(to.slot, n)
	}
	for _, state := range from.m.States() {
		var v []float32
		if err == nil {
			v, err = from.State(state.Name)
		}
		if err == nil {
			err = to.SetState(state.Name, v)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestRestoreRefuses: what is not of the model is an error, and changes nothing.
func TestRestoreRefuses(t *testing.T) {
	m := openModel(t, "../testdata/golden/zamba2", krait.Options{Sharding: krait.Sharding{Ranks: 3}, Context: 16})
	s := sequence(t, m)
	stepped(t, s, 1, 2, 3)
	before := snapshot(t, s)
	var cache string
	for _, x := range m.States() {
		if x.Type.Ragged() {
			cache = x.Name
		}
	}
	for want, change := range map[string]func(*krait.Snapshot){
		"has no state":        func(s *krait.Snapshot) { delete(s.States, cache) },
		"states, this one":    func(s *krait.Snapshot) { s.States["more"] = nil },
		"elements, ":          func(s *krait.Snapshot) { s.Tokens++ },
		"of a sequence of -1": func(s *krait.Snapshot) { s.Tokens = -1 },
		"has room for 16": func(s *krait.Snapshot) {
			for _, x := range m.States() {
				if x.Type.Ragged() {
					s.States[x.Name] = make([]float32, len(s.States[x.Name])/3*17)
				}
			}
			s.Tokens = 17
		},
	} {
		bad := &krait.Snapshot{Tokens: before.Tokens, States: maps.Clone(before.States)}
		change(bad)
		if err := s.Restore(bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		sameSnapshot(t, want, snapshot(t, s), before)
	}
}

// TestEmptySequence: a sequence without tokens has states and no rows in caches, also
// before any engine had some.
func TestEmptySequence(t *testing.T) {
	for _, device := range []exec.Device{nil, &cuda.Device{Driver: sim.New(sim.Options{})}} {
		m := openModel(t, "../testdata/golden/jamba", krait.Options{Sharding: krait.Sharding{Ranks: 2}, Device: device})
		s, to := sequence(t, m), sequence(t, m)
		moveEach(t, to, s)
		empty := snapshot(t, s)
		if err := to.Restore(empty); err != nil {
			t.Fatal(err)
		}
		sameSnapshot(t, "an empty sequence", snapshot(t, to), empty)
	}
}

// TestStaleSequence: a sequence that was closed is an error, even if its slot is in use again.
func TestStaleSequence(t *testing.T) {
	m := embeddedModel(t, krait.Options{Slots: 1})
	old := sequence(t, m)
	stepped(t, old, 1, 2, 3)
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	s := sequence(t, m)
	stepped(t, s, 4, 5)
	before := snapshot(t, s)
	_, err := old.Step(context.Background(), 6)
	_, state := old.State(m.States()[0].Name)
	_, snap := old.Snapshot()
	_, length := old.Len()
	for i, err := range []error{err, state, snap, length, old.Close(), old.Reset(), old.Restore(before), old.SetState(m.States()[0].Name, nil)} {
		if err == nil || !strings.Contains(err.Error(), "it was freed") {
			t.Errorf("call %d: %v", i, err)
		}
	}
	sameSnapshot(t, "the new sequence", snapshot(t, s), before)
	if _, err := m.NewSequence(); err == nil {
		t.Error("the slot was given twice")
	}
}

// TestSlotsAtOnce: 16 goroutines take sequences, step, close them twice and try to
// use them afterwards; everyone who has a sequence gets what it would get alone.
func TestSlotsAtOnce(t *testing.T) {
	m := openModel(t, "../testdata/golden/mamba2-g1", krait.Options{Slots: 5})
	want := stepped(t, sequence(t, m), 1, 2, 3) // which keeps one slot
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for done := 0; done < 8; {
				s, err := m.NewSequence()
				if err != nil {
					continue // all are taken
				}
				done++
				for i := 1; i <= 3 && err == nil; i++ {
					_, err = s.Step(context.Background(), i)
				}
				if err != nil || s.Close() != nil {
					t.Error(err)
				}
				_, err = s.Step(context.Background(), 9)
				if again := s.Close(); err == nil || again == nil || s.Reset() == nil {
					t.Errorf("a closed sequence: step %v, close %v", err, again)
				}
			}
		})
	}
	all.Wait()
	s := sequence(t, m)
	stepped(t, s, 1)
	stepped(t, s, 2)
	one := stepped(t, s, 3)
	for i := range want {
		if d := math.Abs(float64(one[i] - want[i])); !(d <= 1e-4) {
			t.Fatalf("logit %d is %g, want %g", i, one[i], want[i])
		}
	}
}

// TestCloseWhileGenerating: Close waits for the running step, ends 16 goroutines
// that generate, and is nil the second time; everything after it is ErrClosed.
func TestCloseWhileGenerating(t *testing.T) {
	for _, o := range []krait.Options{{Slots: 16}, {Slots: 16, Sharding: krait.Sharding{Ranks: 3}},
		{Slots: 16, Device: &cuda.Device{Driver: sim.New(sim.Options{})}}} {
		m, err := krait.Open("../testdata/golden/mamba-a", o)
		if err != nil {
			t.Fatal(err)
		}
		s := sequence(t, m)
		var all sync.WaitGroup
		begun := make(chan bool, 1000)
		for range 15 {
			all.Go(func() {
				_, err := m.GenerateIDs(context.Background(), []int{1, 2, 3}, krait.Generate{MaxTokens: 1 << 30, IgnoreEOS: true, OnToken: func(int, time.Time) {
					select {
					case begun <- true:
					default:
					}
				}})
				if !errors.Is(err, krait.ErrClosed) {
					t.Errorf("a generation ended with %v", err)
				}
			})
		}
		for range 15 {
			<-begun
		}
		for range 4 {
			all.Go(func() {
				if err := m.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		_, made := m.NewSequence()
		_, step := s.Step(context.Background(), 1)
		_, state := s.State(m.States()[0].Name)
		_, snap := s.Snapshot()
		_, length := s.Len()
		_, scored := m.Evaluate(context.Background(), []int{1, 2, 3}, krait.Evaluate{})
		_, batch := m.Engine().Step(context.Background(), &exec.Batch{})
		for i, err := range []error{made, step, state, snap, length, scored, batch, s.Close(), s.Reset(), s.Restore(&krait.Snapshot{}),
			s.SetState("x", nil), m.Engine().SetLen(0, 1)} {
			if !errors.Is(err, krait.ErrClosed) {
				t.Errorf("call %d after Close: %v", i, err)
			}
		}
		if err := m.Close(); err != nil {
			t.Errorf("a second Close: %v", err)
		}
	}
}

// TestCloseWaitsForLogits: memory is not freed while a goroutine reads a step's logits there.
func TestCloseWaitsForLogits(t *testing.T) {
	m := embeddedModel(t)
	s := sequence(t, m)
	var closed atomic.Bool
	done := make(chan bool)
	read := func(*exec.Results) error {
		go func() {
			m.Close()
			closed.Store(true)
			close(done)
		}()
		for range 100 { // enough for one that does not wait
			time.Sleep(time.Millisecond / 4)
		}
		if closed.Load() {
			t.Error("the model is closed, and the logits are being read")
		}
		return nil
	}
	if err := m.Session().Step(context.Background(), &exec.Batch{Sequences: []exec.Sequence{{Slot: s.slot, Tokens: []int{1}}}}, read); err != nil {
		t.Fatal(err)
	}
	<-done
}

package tests

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/checkpoint/synth"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/internal/covering"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/kernels"
)

// inTurns opens a golden on a mesh of stages, with KV pages of few tokens. The function that it
// returns gives the most batches that ran at the same time.
func inTurns(t *testing.T, folder string, s krait.Sharding) (*krait.Model, *overlap) {
	t.Helper()
	most := &overlap{}
	o := krait.Options{Sharding: s, Slots: 4, PageTokens: 8, Batches: func(*exec.Work) { most.begin() }}
	return openModel(t, folder, o), most
}

// overlap counts batches that have begun and whose results have not been read.
type overlap struct{ now, most int }

func (o *overlap) begin() { o.now++; o.most = max(o.most, o.now) }

// decodable gives three sequences of a model a prompt each.
func decodable(t *testing.T, m *krait.Model) (slots []int) {
	t.Helper()
	b := &exec.Batch{Outputs: []string{}}
	for k, n := range []int{5, 19, 8} {
		slot, err := m.Engine().Alloc()
		if err != nil {
			t.Fatal(err)
		}
		slots = append(slots, slot)
		b.Sequences = append(b.Sequences, exec.Sequence{Slot: slot, Tokens: randomIDs(40, m.Vocab())[k : k+n], Rows: []int{}})
	}
	if _, err := m.Engine().Step(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	return slots
}

// TestTurns: three sequences that decode in turns on stages, with and without replicas, and leave
// at different times, get the tokens, states and logits that they get in steps of all on one stage.
func TestTurns(t *testing.T) {
	for i, folder := range covering.Drawn(t, goldens.Folders(t, "..")) {
		for k, s := range []krait.Sharding{{Stages: 2}, {Ranks: 2, Stages: 3}, {Stages: 2, Replicas: 2}} {
			if (i+k)%2 > 0 && goldens.Few(t) {
				continue
			}
			if blocksOf(t, folder) < s.Stages {
				continue
			}
			t.Run(fmt.Sprintf("%s/tp=%d,pp=%d,dp=%d", filepath.Base(folder), s.Ranks, s.Stages, s.Replicas), func(t *testing.T) {
				m, most := inTurns(t, folder, s)
				sameInTurns(t, m, openGolden(t, folder, krait.Sharding{Ranks: s.Ranks}), most, s.Stages)
			})
		}
	}
}

// TestTurnsInProcesses: the same where each rank is a process.
func TestTurnsInProcesses(t *testing.T) {
	goldens.CI(t)
	const folder = "../testdata/golden/jamba"
	most := &overlap{}
	apart, err := spreadModel(t, connected(t, 4, time.Minute), func(rank int, o krait.Options) (*krait.Model, error) {
		o.Sharding, o.Slots, o.PageTokens, o.Workers = krait.Sharding{Ranks: 2, Stages: 2}, 4, 8, 1
		if rank == 0 {
			o.Batches = func(*exec.Work) { most.begin() }
		}
		return krait.Open(folder, o)
	})
	if err != nil {
		t.Fatal(err)
	}
	one := openGolden(t, folder, krait.Sharding{Ranks: 2})
	slots := sameInTurns(t, apart.Model, one, most, 2)
	e := apart.Engine()
	if err := e.Free(slots[0]); err != nil {
		t.Fatal(err)
	}
	for range 3 { // the engine runs on after each
		ctx, cancel := context.WithCancel(t.Context())
		var list []*exec.Batch
		for range 2 {
			slot, err := e.Alloc()
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, &exec.Batch{Sequences: []exec.Sequence{{Slot: slot, Tokens: []int{3}}}, Choices: []exec.Choice{{}}})
		}
		steps := 0
		err := e.StepInTurns(ctx, list, func(int, *exec.Results, error) bool {
			if steps++; steps == 5 {
				cancel()
			}
			return true
		})
		if err == nil || !strings.Contains(err.Error(), context.Canceled.Error()) {
			t.Fatal(err)
		}
		for _, b := range list {
			if err := e.Free(b.Sequences[0].Slot); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// sameInTurns compares a model in turns with one in steps.
func sameInTurns(t *testing.T, m, one *krait.Model, most *overlap, stages int) (slots []int) {
	t.Helper()
	const steps = 21
	slots = decodable(t, m)
	others := decodable(t, one)
	if n := m.Engine().Turns(stages); n != stages {
		t.Fatalf("%d turns", n)
	}
	choice := func(step, k int) exec.Choice {
		return exec.Choice{Choice: kernels.Choice{Temperature: 1, Uniform: float64((step*7+k*3)%10) / 10}}
	}
	want := [3][]int{{1}, {2}, {3}}
	for step := range steps {
		b := &exec.Batch{}
		for k := range want {
			if k > 0 || step < steps-5 {
				b.Sequences = append(b.Sequences, exec.Sequence{Slot: others[k], Tokens: want[k][step:]})
				b.Choices = append(b.Choices, choice(step, k))
			}
		}
		r, err := one.Engine().Step(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		for i, id := range r.Tokens {
			k := i + 3 - len(b.Sequences)
			want[k] = append(want[k], int(id))
		}
	}
	groups := [][]int{{0}, {1, 2}}
	if stages == 3 {
		groups = [][]int{{0}, {1}, {2}}
	}
	got := [3][]int{{1}, {2}, {3}}
	fill := func(b *exec.Batch, group []int) {
		b.Sequences, b.Choices = nil, nil
		for _, k := range group {
			step := len(got[k]) - 1
			b.Sequences = append(b.Sequences, exec.Sequence{Slot: slots[k], Tokens: got[k][step:]})
			b.Choices = append(b.Choices, choice(step, k))
		}
	}
	var list []*exec.Batch
	for _, group := range groups {
		list = append(list, &exec.Batch{})
		fill(list[len(list)-1], group)
	}
	*most = overlap{}
	err := m.Engine().StepInTurns(t.Context(), list, func(i int, r *exec.Results, err error) bool {
		if most.now--; err != nil {
			t.Error(err)
		}
		for j, k := range groups[i] {
			got[k] = append(got[k], int(r.Tokens[j]))
		}
		fill(list[i], groups[i])
		return len(got[groups[i][0]]) < len(want[groups[i][0]])
	})
	if err != nil || most.most < stages {
		t.Fatalf("%d batches at the same time, %v", most.most, err)
	}
	for k := range want {
		if !slices.Equal(got[k], want[k]) {
			t.Errorf("sequence %d: %v, want %v", k, got[k], want[k])
		}
	}
	compareStates(t, m, one, slots, others)
	return slots
}

// compareStates compares states, and logits after one more token.
func compareStates(t *testing.T, m, one *krait.Model, slots, others []int) {
	t.Helper()
	for _, spec := range one.Engine().States() {
		for k := range slots {
			a, err := m.Engine().State(slots[k], spec.Name)
			b, other := one.Engine().State(others[k], spec.Name)
			if err = errors.Join(err, other); err == nil {
				err = equalBits(a, b)
			}
			if err != nil {
				t.Fatalf("%s of sequence %d: %v", spec.Name, k, err)
			}
		}
	}
	var logits [2][]float32
	for i, x := range []*krait.Model{m, one} {
		b := &exec.Batch{}
		for k := range slots {
			b.Sequences = append(b.Sequences, exec.Sequence{Slot: [2][]int{slots, others}[i][k], Tokens: []int{7}})
		}
		r, err := x.Engine().Step(t.Context(), b)
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
		t.Fatal("logits: ", err)
	}
}

// TestTurnsEnd: turns whose context ends are an error that breaks their sequences and no other, and
// the engine runs on; those that find no KV pages end without one, or do not begin.
func TestTurnsEnd(t *testing.T) {
	m, _ := inTurns(t, "../testdata/golden/jamba", krait.Sharding{Stages: 2})
	e, slots := m.Engine(), decodable(t, m)
	batch := func(slot int) *exec.Batch {
		return &exec.Batch{Sequences: []exec.Sequence{{Slot: slot, Tokens: []int{3}}}, Choices: []exec.Choice{{}}}
	}
	turns := func(ctx context.Context, a, b int, told func(steps [2]int)) ([2]int, error) {
		steps := [2]int{}
		err := e.StepInTurns(ctx, []*exec.Batch{batch(a), batch(b)}, func(i int, _ *exec.Results, err error) bool {
			steps[i]++
			told(steps)
			return err == nil
		})
		return steps, err
	}
	e.LimitPages(1) // no more than were made at first
	if steps, err := turns(t.Context(), slots[1], slots[2], func([2]int) {}); err != nil || steps[0] == 0 || steps[0] != steps[1] {
		t.Errorf("%v steps until a page is missing: %v", steps, err)
	}
	if steps, err := turns(t.Context(), slots[0], slots[1], func([2]int) {}); err != nil || steps != [2]int{} {
		t.Errorf("%v steps without a page: %v", steps, err)
	}
	e.LimitPages(0)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := turns(ctx, slots[0], slots[1], func(steps [2]int) {
		if steps == [2]int{1, 1} {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	for k, slot := range slots {
		if _, err := e.Step(t.Context(), batch(slot)); (err == nil) != (k == 2) {
			t.Errorf("sequence %d: %v", k, err)
		}
	}
}

// TestTurnsGenerate: requests that come and go on stages in turns, with stop strings and a prefix
// cache, get the texts of one rank.
func TestTurnsGenerate(t *testing.T) {
	var want []string
	for _, s := range []krait.Sharding{{}, {Stages: 2}, {Stages: 3}} {
		sizes := map[int]int{}
		m := embeddedModel(t, krait.Options{Sharding: s, Slots: 4, PrefixCache: 64 << 20, PrefixGrain: 32, Batches: func(w *exec.Work) {
			if w.Tokens == w.Seqs {
				sizes[int(w.Seqs)]++
			}
		}})
		var got []string
		for _, stop := range []string{"", "the "} {
			g := krait.Generate{MaxTokens: 40, Temperature: 1, Seed: 5}
			if stop != "" {
				g.Stop = []string{stop}
			}
			list, err := m.GenerateBatch(t.Context(), []string{"In the beginning", "And the LORD said unto Moses", "Thou", "Blessed are", "Behold, I", "Woe"}, g)
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range list {
				got = append(got, x.Text)
			}
		}
		if want == nil {
			want = got
		}
		if !slices.Equal(got, want) {
			t.Errorf("%+v: %q, want %q", s, got, want)
		}
		if half := sizes[2] + sizes[1]; s.Stages > 0 && half < 40 || sizes[4] == 0 != (s.Stages > 0) && s.Stages == 0 {
			t.Errorf("%+v: decode in batches of %v", s, sizes)
		}
	}
}

// BenchmarkTurns decodes on two stages with a thread each, in steps of all sequences and in turns.
func BenchmarkTurns(b *testing.B) {
	g, err := synth.Graph(synth.Options{Like: "mamba-130m"})
	if err != nil {
		b.Fatal(err)
	}
	m, err := krait.New(g, krait.RandomWeights(g, 1), nil, krait.Options{Sharding: krait.Sharding{Stages: 2}, Slots: 8, Workers: 2})
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	for _, n := range []int{2, 4, 8} {
		batch := func() *exec.Batch {
			x := &exec.Batch{}
			for range n {
				slot, err := m.Engine().Alloc()
				if err != nil {
					b.Fatal(err)
				}
				x.Sequences = append(x.Sequences, exec.Sequence{Slot: slot, Tokens: []int{1}})
			}
			x.Choices = make([]exec.Choice, n)
			return x
		}
		all := batch()
		halves := []*exec.Batch{{Sequences: all.Sequences[:n/2], Choices: all.Choices[:n/2]}, {Sequences: all.Sequences[n/2:], Choices: all.Choices[n/2:]}}
		rate := func(b *testing.B) { b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "tokens/s") }
		b.Run(fmt.Sprint(n, "/steps"), func(b *testing.B) {
			for range b.N {
				if _, err := m.Engine().Step(b.Context(), all); err != nil {
					b.Fatal(err)
				}
			}
			rate(b)
		})
		b.Run(fmt.Sprint(n, "/turns"), func(b *testing.B) {
			var steps [2]int
			err := m.Engine().StepInTurns(b.Context(), halves, func(i int, _ *exec.Results, err error) bool {
				steps[i]++
				return err == nil && steps[i] < b.N
			})
			if err != nil {
				b.Fatal(err)
			}
			rate(b)
		})
		for _, q := range all.Sequences {
			if err := m.Engine().Free(q.Slot); err != nil {
				b.Fatal(err)
			}
		}
	}
}

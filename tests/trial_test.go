package tests

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/checkpoint/quantize"
	"github.com/krait-ml/krait/checkpoint/synth"
	"github.com/krait-ml/krait/cost"
	"github.com/krait-ml/krait/cuda/sim"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/comm"
	"github.com/krait-ml/krait/exec/cpu"
	"github.com/krait-ml/krait/exec/cuda"
	"github.com/krait-ml/krait/exec/group"
	"github.com/krait-ml/krait/exec/state"
	"github.com/krait-ml/krait/exec/virtual"
	"github.com/krait-ml/krait/internal/covering"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/internal/prop"
	kernels "github.com/krait-ml/krait/kernels/cpu"
	kernelscuda "github.com/krait-ml/krait/kernels/cuda"
	"github.com/krait-ml/krait/kernels/reference"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/session"
	"pgregory.net/rapid"
)

// trialSlots are the sequences of a test of trials.
const trialSlots = 3

// TestTrials: whatever sequences do, together and one after another, of which some tokens are on
// trial and some of these are kept, each has the logits, states and length, to the bit, that it has
// alone, token by token where tokens were on trial.
func TestTrials(t *testing.T) {
	folders := covering.Drawn(t, goldens.Folders(t, ".."))
	pages, shardings := []int{1, 3, 128}, []krait.Sharding{{Ranks: 1, Strategy: "channel"}}
	for _, ranks := range []int{2, 3} {
		for _, strategy := range []string{"channel", "sequence", "batch"} {
			shardings = append(shardings, krait.Sharding{Ranks: ranks, Strategy: strategy})
		}
		shardings = append(shardings, krait.Sharding{Ranks: ranks, Strategy: "channel", Prefill: "context"})
	}
	isas := append(kernels.ISAs(), "reference", "fused")
	for _, c := range covering.Each(t, []int{len(folders), len(shardings), len(pages), 4, len(isas)}) {
		dir, s, isa := folders[c[0]], shardings[c[1]], isas[c[4]]
		o := krait.Options{Slots: trialSlots, PageTokens: pages[c[2]], Sharding: s}
		t.Run(fmt.Sprintf("%s/tp=%d %s %s in %d formats by %s", filepath.Base(dir), s.Ranks, s.Strategy, s.Prefill, c[3], isa), func(t *testing.T) {
			t.Parallel()
			if c[3] > 0 { // states in one of the short formats
				m := openModel(t, dir, krait.Options{Slots: 1})
				o.Sharding.States, _ = inFormats(m, []string{"", "f16", "bf16", "e4m3"}[c[3]])
			}
			runTrials(t, dir, isa, o)
		})
	}
}

// TestTrialsCUDA is the same on simulated GPUs that are batch-invariant, where ranks have one each
// or share one.
func TestTrialsCUDA(t *testing.T) {
	goldens.CI(t)
	folders := covering.Drawn(t, covering.Drawn(t, goldens.Folders(t, "..")))
	counts, pages, strategies := []int{1, 2, 3}, []int{1, 3, 128}, []string{"channel", "sequence", "batch"}
	cases := covering.Each(t, []int{len(folders), len(counts), len(pages), len(strategies), 3, 2, 2})
	if goldens.Few(t) {
		cases = cases[:1]
	}
	for _, c := range cases {
		dir, ranks := folders[c[0]], counts[c[1]]
		o := krait.Options{Slots: trialSlots, PageTokens: pages[c[2]], Sharding: krait.Sharding{Ranks: ranks}}
		if ranks > 1 {
			o.Sharding.Strategy = strategies[c[3]]
		}
		gpus := 1 + c[5]*(ranks-1)
		o.Device = &cuda.Device{Driver: sim.New(sim.Options{Devices: gpus, Capability: [2]int{9, 0}}), Math: []kernelscuda.Math{kernelscuda.F32, kernelscuda.BF16}[c[6]], BatchInvariant: true}
		t.Run(fmt.Sprintf("%s/tp=%d %s in %d formats on %d GPUs, math %d", filepath.Base(dir), ranks, o.Sharding.Strategy, c[4], gpus, c[6]), func(t *testing.T) {
			t.Parallel()
			if c[4] > 0 { // states in 16 bits
				m := openModel(t, dir, krait.Options{Slots: 1, Device: o.Device})
				o.Sharding.States, _ = inFormats(m, "bf16")
			}
			runTrials(t, dir, "", o)
		})
	}
}

// TestTrialsWide is the same for sums of many terms, which have kernels of their own, with weights
// in each format.
func TestTrialsWide(t *testing.T) {
	goldens.CI(t)
	const config = `{"model_type": "jamba", "attn_layer_offset": 1, "attn_layer_period": 2, "expert_layer_offset": 1, "expert_layer_period": 2,
		"hidden_size": 544, "intermediate_size": 1056, "num_attention_heads": 4, "num_key_value_heads": 2, "num_experts": 3, "mamba_expand": 1,
		"num_hidden_layers": 2, "vocab_size": 67, "num_experts_per_tok": 2}`
	for _, format := range covering.Drawn(t, []string{"f32", "f16", "bf16", "q8"}) {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			dir, weights := filepath.Join(t.TempDir(), "wide"), format
			if format == "q8" {
				weights = "bf16"
			}
			if _, err := synth.Write(t.Context(), dir, synth.Options{Config: []byte(config), From: "config", DType: weights, Seed: 1}); err != nil {
				t.Fatal(err)
			}
			if format == "q8" {
				from := dir
				dir += "-q8"
				if _, err := quantize.Write(t.Context(), from, dir, "q8", nil); err != nil {
					t.Fatal(err)
				}
			}
			isa, err := kernels.ChosenISA()
			if err != nil {
				t.Fatal(err)
			}
			runTrials(t, dir, isa, krait.Options{Sharding: krait.Sharding{Ranks: 1}})
		})
	}
}

// runTrials compares engines of a folder's model.
func runTrials(t *testing.T, dir, isa string, o krait.Options) {
	d := &cpu.Device{Workers: 2 * o.Sharding.Ranks}
	switch isa {
	case "": // that of the options
	case "fused":
		o.Device = &fusing{*d}
	case "reference":
		d.Kernels = reference.Kernels
	default:
		var err error
		if d.Kernels, err = kernels.ForISA(isa); err != nil {
			t.Fatal(err)
		}
	}
	if o.Device == nil {
		o.Device = d
	}
	m := openModel(t, dir, o)
	open := func(trials int) *exec.Engine {
		prefill, err := session.NewPrefill(m.Graph(), o.Sharding, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		e, err := exec.New(m.Engine().Schedules(), weights(t, dir), exec.Options{Device: o.Device, Slots: trialSlots, Trials: trials, PageTokens: o.PageTokens, Prefill: prefill})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(e.Close)
		return e
	}
	compareTrials(t, open(0), open(2), m.Vocab(), isa == "")
}

// TestTrialsInProcesses is the same where each rank has a process of its own.
func TestTrialsInProcesses(t *testing.T) {
	const ranks = 3
	dir := "../testdata/golden/bamba"
	m := openModel(t, dir, krait.Options{Slots: 1, Sharding: krait.Sharding{Ranks: ranks}})
	open := func(trials int, d exec.Device, world comm.World) (*exec.Engine, error) {
		return exec.New(m.Engine().Schedules(), weights(t, dir), exec.Options{Device: d, World: world, Slots: trialSlots, Trials: trials, PageTokens: 3})
	}
	plain, err := open(0, &cpu.Device{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(plain.Close)
	var engines [ranks]*exec.Engine
	var errs [ranks]error
	var all sync.WaitGroup
	for r, p := range connected(t, ranks, time.Minute) {
		g := p.NewGroup()
		all.Go(func() { engines[r], errs[r] = open(2, &group.Device{Device: &cpu.Device{Workers: 1}, Group: g}, g) })
	}
	all.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	for _, e := range engines[1:] {
		all.Go(func() {
			if err := e.Follow(context.Background()); err != nil {
				t.Error(err)
			}
			e.Close()
		})
	}
	compareTrials(t, plain, engines[0], m.Vocab(), false)
	engines[0].Close()
	all.Wait()
}

// compareTrials draws what sequences do on two engines: little where devices are slow.
func compareTrials(t *testing.T, plain, tried *exec.Engine, vocab int, few bool) {
	checks, rounds, prompt, trial := 2, 12, 40, exec.MaxTrial
	if few {
		checks, rounds, prompt = 1, 3, 5
		if !goldens.All() {
			trial = 3
		}
	}
	prop.CheckN(t, checks, func(t *rapid.T) {
		p := trialPair{T: t, plain: plain, tried: tried, vocab: vocab, prompt: prompt, trial: trial}
		for i := range p.slots {
			for k, e := range []*exec.Engine{plain, tried} {
				slot, err := e.Alloc()
				if err != nil {
					t.Fatal(err)
				}
				p.slots[i][k] = slot
			}
		}
		defer func() {
			for _, s := range p.slots {
				if err := plain.Free(s[0]); err != nil {
					t.Error(err)
				}
				if err := tried.Free(s[1]); err != nil {
					t.Error(err)
				}
			}
			if u := tried.PageUse(); u.Free != u.Pages {
				t.Errorf("all sequences are freed, and the use of pages is %+v", u)
			}
		}()
		for range rapid.IntRange(rounds/3, rounds).Draw(t, "rounds") {
			p.round()
		}
		p.settle(true)
		for i := range p.slots {
			p.compare(i)
		}
	})
}

// fusing is the CPU with graphs for GPUs, which fuse scans with what is around them.
type fusing struct{ cpu.Device }

func (*fusing) FewLaunches() bool { return true }

// trialPair is an engine on which sequences go alone, and one on which they go together and have
// tokens on trial.
type trialPair struct {
	*rapid.T
	plain, tried *exec.Engine
	vocab        int
	prompt       int                // most tokens of a prefill
	trial        int                // and of a trial
	slots        [trialSlots][2]int // handles of both
	waiting      []waitingTrial
}

// waitingTrial is a trial that Settle has not ended.
type waitingTrial struct {
	sequence int
	keep     int
	states   *krait.Snapshot // after the tokens kept, on the plain engine
}

func (p *trialPair) draw(what string, lo, hi int) int { return rapid.IntRange(lo, hi).Draw(p.T, what) }

func (p *trialPair) ids(n int) []int {
	return rapid.SliceOfN(rapid.IntRange(0, p.vocab-1), n, n).Draw(p.T, "ids")
}

func (p *trialPair) isWaiting(i int) bool {
	return slices.ContainsFunc(p.waiting, func(w waitingTrial) bool { return w.sequence == i })
}

// round runs a step of some sequences, forks or resets one, and ends some trials.
func (p *trialPair) round() {
	var b exec.Batch
	var rows [][]float32 // wanted
	for i := range p.slots {
		if p.isWaiting(i) {
			p.refused(i)
			continue
		}
		q := exec.Sequence{Slot: p.slots[i][1]}
		switch p.draw("what", 0, 4) {
		case 0: // nothing
			continue
		case 1: // prefill
			q.Tokens = p.ids(p.draw("tokens", 2, p.prompt))
			rows = append(rows, p.alone(i, q.Tokens))
		case 2, 3: // tokens on trial, if a spare is left
			if len(p.waiting) < 2 {
				q.Trial = true
				q.Tokens = p.ids(p.draw("tokens", 1, p.trial))
				rows = append(rows, p.tokenByToken(i, &q)...)
				break
			}
			fallthrough
		default: // decode
			q.Tokens = p.ids(1)
			rows = append(rows, p.alone(i, q.Tokens))
		}
		b.Sequences = append(b.Sequences, q)
	}
	if len(b.Sequences) > 0 {
		p.step(&b, rows)
	}
	p.settle(false)
	switch i, k := p.draw("from", 0, trialSlots-1), p.draw("to", 0, trialSlots-1); {
	case i != k && !p.isWaiting(i) && p.draw("fork", 0, 3) == 0:
		p.fork(i, k)
	case p.draw("reset", 0, 7) == 0:
		p.reset(k)
	}
}

// alone steps a sequence on the plain engine, and returns its last logits.
func (p *trialPair) alone(i int, ids []int) []float32 {
	r, err := p.plain.Step(context.Background(), &exec.Batch{Sequences: []exec.Sequence{{Slot: p.slots[i][0], Tokens: ids}}})
	if err != nil {
		p.Fatal(err)
	}
	out, err := r.Output("logits")
	if err != nil {
		p.Fatal(err)
	}
	return slices.Clone(out.Row(0))
}

// tokenByToken takes tokens that are on trial as single steps, and goes back to those kept.
func (p *trialPair) tokenByToken(i int, q *exec.Sequence) (rows [][]float32) {
	w := waitingTrial{sequence: i, keep: p.draw("keep", 1, len(q.Tokens))}
	q.Rows = []int{}
	for k, id := range q.Tokens {
		rows, q.Rows = append(rows, p.alone(i, []int{id})), append(q.Rows, k)
		if k+1 == w.keep {
			w.states = p.snapshot(p.plain, p.slots[i][0])
		}
	}
	if err := p.plain.Restore(p.slots[i][0], w.states); err != nil {
		p.Fatal(err)
	}
	p.waiting = append(p.waiting, w)
	return rows
}

func (p *trialPair) snapshot(e *exec.Engine, slot int) *krait.Snapshot {
	s, err := e.Snapshot(slot)
	if err != nil {
		p.Fatal(err)
	}
	return s
}

// step runs a batch on the engine with trials, and compares its logits.
func (p *trialPair) step(b *exec.Batch, rows [][]float32) {
	r, err := p.tried.Step(context.Background(), b)
	if err != nil {
		p.Fatal(err)
	}
	out, err := r.Output("logits")
	if err != nil {
		p.Fatal(err)
	}
	for k, want := range rows {
		if !sameBits(out.Row(k), want) {
			p.Errorf("%+v: row %d has other bits than single steps", b.Sequences, k)
		}
	}
}

// settle ends all trials, or some.
func (p *trialPair) settle(all bool) {
	var kept []exec.Kept
	var left []waitingTrial
	var ended []int
	for _, w := range p.waiting {
		if !all && p.draw("waits", 0, 2) == 0 {
			left = append(left, w)
			continue
		}
		kept, ended = append(kept, exec.Kept{Slot: p.slots[w.sequence][1], Tokens: w.keep}), append(ended, w.sequence)
	}
	if err := p.tried.Settle(context.Background(), kept); err != nil {
		p.Fatal(err)
	}
	p.waiting = left
	for _, i := range ended {
		p.compare(i)
	}
}

// compare compares the states of a sequence.
func (p *trialPair) compare(i int) {
	got, want := p.snapshot(p.tried, p.slots[i][1]), p.snapshot(p.plain, p.slots[i][0])
	if got.Tokens != want.Tokens {
		p.Errorf("sequence %d has %d tokens, want %d", i, got.Tokens, want.Tokens)
	}
	for name, v := range want.States {
		if !sameBits(got.States[name], v) {
			p.Errorf("sequence %d: state %s has other bits than after single steps", i, name)
		}
	}
}

// refused checks that a sequence on trial cannot be used.
func (p *trialPair) refused(i int) {
	slot := p.slots[i][1]
	_, err := p.tried.Step(context.Background(), &exec.Batch{Sequences: []exec.Sequence{{Slot: slot, Tokens: []int{0}}}})
	errs := []error{err}
	_, err = p.tried.Snapshot(slot)
	errs = append(errs, err)
	_, err = p.tried.CopyState(slot)
	errs = append(errs, err)
	_, err = p.tried.ShareKV(slot, 0, 1)
	errs = append(errs, err)
	for _, err := range errs {
		if err == nil || !strings.Contains(err.Error(), "has tokens on trial; Settle keeps some of them first") {
			p.Errorf("a sequence on trial is used: %v", err)
		}
	}
}

// fork lets a sequence resume from another, whose pages it shares.
func (p *trialPair) fork(from, to int) {
	p.forget(to)
	if err := p.plain.Restore(p.slots[to][0], p.snapshot(p.plain, p.slots[from][0])); err != nil {
		p.Fatal(err)
	}
	d, err := p.tried.CopyState(p.slots[from][1])
	if err != nil {
		p.Fatal(err)
	}
	defer d.Free()
	kv, err := p.tried.ShareKV(p.slots[from][1], 0, d.Tokens)
	if err != nil {
		p.Fatal(err)
	}
	defer kv.Free()
	if err := p.tried.Resume(p.slots[to][1], d, kv); err != nil {
		p.Fatal(err)
	}
}

// reset begins a sequence anew, also where it is on trial.
func (p *trialPair) reset(i int) {
	p.forget(i)
	if err := p.plain.Reset(p.slots[i][0]); err != nil {
		p.Fatal(err)
	}
	if err := p.tried.Reset(p.slots[i][1]); err != nil {
		p.Fatal(err)
	}
}

func (p *trialPair) forget(i int) {
	p.waiting = slices.DeleteFunc(p.waiting, func(w waitingTrial) bool { return w.sequence == i })
}

// TestTrialPages: a trial takes the KV pages of all of its tokens, and Settle frees those of the
// tokens that are rolled back; without enough pages a step changes nothing.
func TestTrialPages(t *testing.T) {
	dir := "../testdata/golden/jamba"
	m := openModel(t, dir, krait.Options{Slots: 1})
	e, err := exec.New(m.Engine().Schedules(), weights(t, dir), exec.Options{Device: &cpu.Device{}, Slots: 1, Trials: 1, PageTokens: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	slot, err := e.Alloc()
	if err != nil {
		t.Fatal(err)
	}
	pages := func(want int) {
		t.Helper()
		if u := e.PageUse(); u.Pages-u.Free != want {
			t.Errorf("%d pages are in use, want %d", u.Pages-u.Free, want)
		}
	}
	step := func(tokens int, trial bool) error {
		_, err := e.Step(context.Background(), &exec.Batch{Sequences: []exec.Sequence{{Slot: slot, Tokens: make([]int, tokens), Trial: trial}}})
		return err
	}
	if err := step(7, false); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ tokens, keep, with, after int }{{16, 1, 6, 2}, {1, 1, 3, 3}, {10, 3, 5, 3}, {4, 4, 4, 4}} {
		if err := step(c.tokens, true); err != nil {
			t.Fatal(err)
		}
		pages(c.with)
		if err := e.Settle(context.Background(), []exec.Kept{{Slot: slot, Tokens: c.keep}}); err != nil {
			t.Fatal(err)
		}
		pages(c.after)
	}
	e.LimitPages(1)
	before := e.PageUse()
	for before.Free > 0 { // those that are made already
		if err := step(4, false); err != nil {
			t.Fatal(err)
		}
		before = e.PageUse()
	}
	if err := step(16, true); !errors.Is(err, state.ErrNoPages) {
		t.Errorf("without pages: %v", err)
	}
	if n, err := e.Len(slot); err != nil || n%4 != 0 {
		t.Errorf("%d tokens, %v", n, err)
	}
}

// BenchmarkTrial takes tokens on trial, in turns with a single token, and keeps all but the last:
// medians of a trial and of Settle, and of how many single tokens a trial takes the time.
// KRAIT_BENCH_MODEL is the folder of a model.
func BenchmarkTrial(b *testing.B) {
	dir := cmp.Or(os.Getenv("KRAIT_BENCH_MODEL"), "../testdata/golden/mamba2-g1")
	m, err := krait.Open(dir, krait.Options{Slots: 1})
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	e, err := exec.New(m.Engine().Schedules(), weights(b, dir), exec.Options{Device: &cpu.Device{}, Slots: 1, Trials: 1})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	slot, err := e.Alloc()
	if err != nil {
		b.Fatal(err)
	}
	timed := func(f func() error) float64 {
		start := time.Now()
		if err := f(); err != nil {
			b.Fatal(err)
		}
		return time.Since(start).Seconds() * 1e3
	}
	step := func(tokens int, trial bool) float64 {
		q := exec.Sequence{Slot: slot, Tokens: make([]int, tokens), Rows: []int{}, Trial: trial}
		for i := range tokens {
			q.Tokens[i], q.Rows = i*7%m.Vocab(), append(q.Rows, i)
		}
		return timed(func() error {
			_, err := e.Step(context.Background(), &exec.Batch{Sequences: []exec.Sequence{q}, Outputs: []string{"logits"}})
			return err
		})
	}
	median := func(list []float64) float64 { slices.Sort(list); return list[len(list)/2] }
	for _, tokens := range []int{2, 4, 8, exec.MaxTrial} {
		b.Run(fmt.Sprint(tokens), func(b *testing.B) {
			var one, trial, settle []float64
			for b.Loop() {
				one, trial = append(one, step(1, false)), append(trial, step(tokens, true))
				settle = append(settle, timed(func() error {
					return e.Settle(context.Background(), []exec.Kept{{Slot: slot, Tokens: tokens - 1}})
				}))
			}
			b.ReportMetric(median(trial), "ms/trial")
			b.ReportMetric(median(settle), "ms/settle")
			b.ReportMetric(median(trial)/median(one), "tokens'time")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// TestTrialMemory: memory plans and virtual devices count what trials take of each rank.
func TestTrialMemory(t *testing.T) {
	for _, ranks := range []int{1, 3} {
		m := openModel(t, "../testdata/golden/jamba", krait.Options{Slots: 2, Sharding: krait.Sharding{Ranks: ranks}})
		s := m.Engine().Schedules()
		plan, err := lowering.NewPlan(s)
		if err != nil {
			t.Fatal(err)
		}
		var each int64
		for _, r := range plan.Ranks {
			each += r.Trial
		}
		states := func(trials int) int64 {
			p, err := session.Plan(s, session.Options{Slots: 2, Memory: 1 << 30, Trials: trials}, &cpu.Device{}, m.Vocab())
			if err != nil {
				t.Fatal(err)
			}
			return p.States
		}
		if got := states(3) - states(1); each == 0 || got != 2*each {
			t.Errorf("%d ranks: two trials are planned with %d bytes, and take %d", ranks, got, 2*each)
		}
		if got := states(1) - states(0); got != each+32<<20 {
			t.Errorf("%d ranks: a trial and texts are planned with %d bytes, and take %d", ranks, got, each+32<<20)
		}
		profile, err := cost.Find("h100-nvlink")
		if err != nil {
			t.Fatal(err)
		}
		memory := func(trials int) (sum int64) {
			v, err := virtual.New(s, &virtual.Device{Profile: profile}, exec.Setup{Slots: 2 + trials, Trials: trials, PageTokens: 16})
			if err != nil {
				t.Fatal(err)
			}
			for r := range ranks {
				of := v.Memory(r)
				sum += of.Sum()
			}
			return sum
		}
		if got := memory(2) - memory(0); got != 2*each {
			t.Errorf("%d ranks: two trials take %d bytes of the virtual device, want %d", ranks, got, 2*each)
		}
	}
}

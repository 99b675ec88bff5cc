package session_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/cuda/sim"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/comm"
	"github.com/krait-ml/krait/exec/cpu"
	"github.com/krait-ml/krait/exec/cuda"
	"github.com/krait-ml/krait/internal/covering"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/internal/prop"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/session"
	"github.com/krait-ml/krait/session/schedule"
)

// recorder stands between a model and the scheduler of its requests, and its cache, and
// looks at all logits that come by: those after the same tokens are the same, whatever a
// cache gave of them. Its methods are called by the goroutine that runs the steps.
type recorder struct {
	session.Stepper
	cache schedule.Cache // nil: none
	shift int            // planted: how many tokens deeper than it is a node is said to be
	fed   map[int][]byte // by slot: the tokens of its sequence
	rows  map[string][]float32
	want  map[string][]float32 // nil: rows are recorded
	near  float64              // how far numbers may be apart; 0: not a bit
	wrong []string
}

// record lets the requests of a model, which has had none, go by a recorder. Without
// others' rows it records.
func record(t *testing.T, m *krait.Model, o krait.Options, want map[string][]float32) *recorder {
	t.Helper()
	r := &recorder{Stepper: session.Stepper{Session: m.Session()}, fed: map[int][]byte{}, rows: map[string][]float32{}, want: want}
	if c := m.Session().Cache(); c != nil {
		r.cache = c
	}
	if err := m.Session().Through(r, r, stepOptions(o)); err != nil {
		t.Fatal(err)
	}
	return r
}

// Given is for requests that bring their beginning, of which there are none here.
func (r *recorder) Given(slot int, salt string, prompt, breakpoints, messages []int, fed int) (mark int) {
	panic("BUG: nothing is given")
}

// Begin knows what the sequence has when it begins.
func (r *recorder) Begin(slot int, salt string, prompt, breakpoints, messages []int) (hit, branch int, err error) {
	if r.cache != nil {
		hit, branch, err = r.cache.Begin(slot, salt, prompt, breakpoints, messages)
	}
	if to := hit + r.shift; to != hit && hit > 0 && err == nil && to < len(prompt) && (branch == 0 || to < branch) {
		hit = to
		err = r.Engine().SetLen(slot, hit)
	}
	r.fed[slot] = keyOf(nil, prompt[:hit])
	return hit, branch, err
}

// Move and Fork are not called: one tenant with one text per prompt is neither paused nor forked.
func (r *recorder) Move(from, to int)                        { panic("BUG: a request is paused") }
func (r *recorder) Fork(slot int, salt string, prompt []int) { panic("BUG: a prompt is forked") }

func (r *recorder) Keep(slot int) (mark int) { return r.cache.Keep(slot) }

func (r *recorder) End(slot int, tokens []int, wasted bool) {
	delete(r.fed, slot)
	if r.cache != nil {
		r.cache.End(slot, tokens, wasted)
	}
}

// Step asks for logits beside the tokens, and looks at them.
func (r *recorder) Step(ctx context.Context, b *exec.Batch, read func(*exec.Results) error) error {
	if b.Choices != nil {
		b.Outputs = []string{"logits"}
	}
	return r.Stepper.Step(ctx, b, func(out *exec.Results) error {
		row := 0
		for _, q := range b.Sequences {
			r.fed[q.Slot] = keyOf(r.fed[q.Slot], q.Tokens)
			if q.Rows == nil {
				logits, err := out.Output("logits")
				if err != nil {
					return err
				}
				r.see(string(r.fed[q.Slot]), logits.Row(row))
				row++
			}
		}
		return read(out)
	})
}

// see holds logits after some tokens against those that are wanted.
func (r *recorder) see(fed string, logits []float32) {
	want, known := r.want[fed]
	switch {
	case r.want == nil:
		r.rows[fed] = slices.Clone(logits)
	case !known:
		r.wrong = append(r.wrong, fmt.Sprintf("%d tokens that nobody has without a cache", len(fed)/4))
	case r.near == 0 && !sameBits(logits, want):
		r.wrong = append(r.wrong, fmt.Sprintf("other bits after %d tokens", len(fed)/4))
	case r.near > 0:
		for i, v := range logits {
			if !(math.Abs(float64(v-want[i])) <= r.near) {
				r.wrong = append(r.wrong, fmt.Sprintf("after %d tokens logit %d is %g, want %g", len(fed)/4, i, v, want[i]))
				return
			}
		}
	}
}

// check is an error where there was anything wrong.
func (r *recorder) check() error {
	if len(r.wrong) == 0 {
		return nil
	}
	return fmt.Errorf("%d rows of logits are wrong: %s …", len(r.wrong), r.wrong[0])
}

func keyOf(key []byte, tokens []int) []byte {
	for _, id := range tokens {
		key = binary.LittleEndian.AppendUint32(key, uint32(id))
	}
	return key
}

// sharing are generations whose prompts share beginnings: some of a few, then turns of
// conversations, each with the one before. Half of them are greedy.
func sharing(r *rand.Rand, n, vocab, longest int) []call {
	begins := calls(r, 4, vocab, longest/2)
	list := make([]call, n)
	for i := range list {
		from := begins[r.IntN(len(begins))].prompt
		if i > 4 && r.IntN(2) == 0 {
			from = list[r.IntN(i)].prompt
		}
		list[i] = calls(r, 1, vocab, longest/4)[0]
		list[i].prompt = slices.Concat(from[:len(from)-r.IntN(min(3, len(from)))], list[i].prompt)
		list[i].prompt = list[i].prompt[:min(len(list[i].prompt), longest)]
		list[i].o.MaxTokens = 1 + r.IntN(4)
		if r.IntN(2) == 0 {
			list[i].o.Temperature, list[i].o.RepetitionPenalty = 0, 1
		}
	}
	return list
}

// faulty is a device on which a rank fails in the middle of every nth step: at one of
// its collectives, or where it has none of the world's, when the step has run.
type faulty struct {
	exec.Device
	every   int
	r       *rand.Rand
	mu      sync.Mutex // of what follows, which all ranks use
	victim  int        // the rank that fails in this step; -1: none
	after   int        // collectives before it
	failed  [2]int     // steps: in the middle, at the end
	planted bool       // in this step
}

var errFaulty = errors.New("planted")

func (f *faulty) Open(local []*lowering.Schedule, world comm.World, o exec.Setup) (exec.Machine, error) {
	f.victim = -1
	m, err := f.Device.Open(local, &faultyWorld{world, f}, o)
	return &faultyMachine{m, f, len(local), 0}, err
}

type faultyMachine struct {
	exec.Machine
	*faulty
	ranks, steps int
}

func (m *faultyMachine) Step(ctx context.Context, w *exec.Work) ([]kernels.Tensor, error) {
	f := m.faulty
	fails := false
	if m.steps++; m.steps%f.every == 0 {
		fails = true
		f.mu.Lock()
		f.victim, f.after, f.planted = f.r.IntN(m.ranks), f.r.IntN(3), false
		f.mu.Unlock()
	}
	out, err := m.Machine.Step(ctx, w)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.victim = -1
	switch {
	case !fails:
	case f.planted:
		f.failed[0]++
	default:
		f.failed[1]++
		return nil, errFaulty
	}
	return out, err
}

type faultyWorld struct {
	comm.World
	f *faulty
}

func (w *faultyWorld) Join(rank int) (comm.Comm, error) {
	c, err := w.World.Join(rank)
	return &faultyComm{c, w.f, rank}, err
}

type faultyComm struct {
	comm.Comm
	f    *faulty
	rank int
}

func (c *faultyComm) Run(x *comm.Collective) error {
	if c.f.now(c.rank) {
		return errFaulty
	}
	return c.Comm.Run(x)
}

// now reports whether a rank fails at its next collective.
func (f *faulty) now(rank int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if rank != f.victim {
		return false
	}
	f.after--
	f.planted = f.planted || f.after < 0
	return f.after < 0
}

// inFlight runs generations in an order, as many at a time as there are slots. Of some the context
// ends: before they begin, at any moment, or at one of their tokens. Each gives what it gives alone
// without a cache, or the beginning of it, and failed counts those that were in a step that did.
func inFlight(t *testing.T, m *krait.Model, list []call, want [][]int, order []int, seed uint64) (failed, stopped int) {
	next := make(chan int, len(order))
	for _, k := range order {
		next <- k
	}
	close(next)
	var mu sync.Mutex
	var all sync.WaitGroup
	for w := range m.Engine().Slots() {
		r := rand.New(rand.NewPCG(seed, uint64(w)))
		all.Go(func() {
			for k := range next {
				err := underway(t, m, list[k], want[k], r.IntN(24))
				mu.Lock()
				if errors.Is(err, errFaulty) {
					failed++
				} else if err != nil {
					stopped++
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return failed, stopped
}

// underway runs a generation and ends its context after some tokens, if it gets as far;
// after none at any moment.
func underway(t *testing.T, m *krait.Model, c call, want []int, after int) error {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if after == 0 {
		go cancel()
	}
	n := 0
	c.o.OnToken = func(int, time.Time) {
		if n++; n == after {
			cancel()
		}
	}
	g, err := m.GenerateIDs(ctx, c.prompt, c.o)
	may := err == nil || errors.Is(err, errFaulty) || errors.Is(err, context.Canceled) && ctx.Err() != nil
	if !may || g == nil || len(g.IDs) > len(want) || !slices.Equal(g.IDs, want[:len(g.IDs)]) || err == nil && len(g.IDs) < len(want) {
		t.Errorf("a prompt of %d tokens: %+v, %v; alone %v", len(c.prompt), g, err, want)
	}
	return err
}

// TestPrefixCache: generations that share much, 16 at a time, with a cache that
// evicts all the time, of which some are cancelled, and some are in steps in which a rank
// fails: tokens and logits are those that they have without a cache, on every golden and
// on several ranks. So are those of a cache that keeps all.
func TestPrefixCache(t *testing.T) {
	draws := 50
	attention := 100
	if goldens.All() {
		draws = 100
	} else if goldens.Few(t) {
		draws, attention = 25, 40
	}
	for i, dir := range covering.Drawn(t, goldens.Folders(t, "..")) {
		for ranks := 1; ranks <= 3; ranks++ {
			if ranks != 1+i%3 && !goldens.All() {
				continue
			}
			t.Run(fmt.Sprintf("%s/tp=%d", filepath.Base(dir), ranks), func(t *testing.T) {
				t.Parallel()
				proveCache(t, dir, krait.Options{Slots: 16, Sharding: krait.Sharding{Ranks: ranks}}, &cpu.Device{}, draws, 48, prop.Seed(t))
			})
		}
	}
	dir := attentionOnly(t)
	for _, ranks := range covering.Drawn(t, []int{1, 2, 3}) {
		t.Run(fmt.Sprintf("attention/tp=%d", ranks), func(t *testing.T) {
			t.Parallel()
			proveCache(t, dir, krait.Options{Slots: 16, Sharding: krait.Sharding{Ranks: ranks}}, &cpu.Device{}, attention, 48, prop.Seed(t))
		})
	}
}

// TestPrefixCacheCUDA is the same on a simulated GPU, held against the CPU. It takes its
// time: a few generations of one family, or all.
func TestPrefixCacheCUDA(t *testing.T) {
	goldens.CI(t)
	for _, dir := range goldens.Folders(t, "..") {
		name, slots, n, longest := filepath.Base(dir), 2, 4, 8
		if goldens.All() {
			slots, n, longest = 16, 100, 24
		} else if name != "jamba" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proveCache(t, dir, krait.Options{Slots: slots}, &cuda.Device{Driver: sim.New(sim.Options{NoBLAS: true})}, n, longest, 7) // of few draws most have no hit
		})
	}
}

// proveCache runs n generations without a cache on the CPU, and three times as many with
// one on a device.
func proveCache(t *testing.T, dir string, o krait.Options, d exec.Device, n, longest int, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 0))
	plain := openModel(t, dir, o)
	list := sharing(r, n, plain.Vocab(), longest)
	rec := record(t, plain, o, nil)
	want := atOnce(t, plain, list)
	near := 0.0
	if _, onCPU := d.(*cpu.Device); !onCPU || chunked(plain) {
		near = goldens.Tolerance(dir)
	}

	f := &faulty{Device: d, every: 9, r: r}
	costs := prefixModel(plain)
	o.PrefixGrain = 4                                                              // prompts are short
	o.Device, o.PrefixCache = f, 4*costs.Bytes(2*longest, true)+8*costs.StateBytes // a sequence leaves up to three
	m := openModel(t, dir, o)
	seen := record(t, m, o, rec.rows)
	seen.near = near
	order := slices.Concat(r.Perm(n), r.Perm(n), r.Perm(n))
	failed, stopped := inFlight(t, m, list, want, order, seed)
	if err := seen.check(); err != nil {
		t.Error(err)
	}
	s := m.Session().PrefixCache()
	much := failed > 0 && stopped > 0 && s.Hits >= n/4 && s.Evictions >= n && (o.Sharding.Ranks < 2 || f.failed[0] > 0)
	if s.Failures > 0 || s.Bytes > o.PrefixCache || n < 100 && s.Hits == 0 || n >= 100 && !much {
		t.Errorf("%d of %d failed, %d were stopped, %v steps failed: %+v", failed, len(order), stopped, f.failed, s)
	}
	for range o.Slots {
		sequence(t, m) // no slot is lost
	}
	if n < 100 {
		return
	}

	o.Device, o.PrefixCache = d, 1<<40
	m = openModel(t, dir, o)
	seen = record(t, m, o, rec.rows)
	seen.near = near
	some, cached := list[:25], 0
	for i, c := range some {
		g, err := m.GenerateIDs(t.Context(), c.prompt, c.o)
		if err != nil || !slices.Equal(g.IDs, want[i]) {
			t.Fatalf("generation %d, of which %d tokens were cached: %+v, %v, without %v", i, g.CachedTokens, g, err, want[i])
		}
		cached += g.CachedTokens
	}
	if err := seen.check(); err != nil {
		t.Error(err)
	}
	if s := m.Session().PrefixCache(); int64(cached) != s.HitTokens || s.Requests != len(some) || s.Hits < 4 || s.Evictions > 0 || s.Failures > 0 {
		t.Errorf("a cache that keeps all: %d cached tokens, %+v", cached, s)
	}
}

// TestPlanted: what a cache of prefixes could do wrong, and a slot that is not cleared, is
// seen by what TestPrefixCache looks at.
func TestPlanted(t *testing.T) {
	for _, name := range []string{"mamba-a", "jamba", "mamba2-g1"} {
		dir, o := "../testdata/golden/"+name, krait.Options{Slots: 2}
		plain := openModel(t, dir, o)
		list := sharing(rand.New(rand.NewPCG(11, 11)), 30, plain.Vocab(), 48)
		rec := record(t, plain, o, nil)
		atOnce(t, plain, list)
		o.PrefixCache, o.PrefixGrain = 1<<40, 4
		for what, shift := range map[string]int{"nothing": 0, "a node one token deeper": 1, "a node one token higher": -1, "a slot that is not cleared": 0} {
			o.Device = &cpu.Device{}
			if what == "a slot that is not cleared" {
				o.Device = &uncleared{&cpu.Device{}}
			}
			m := openModel(t, dir, o)
			seen := record(t, m, o, rec.rows)
			seen.shift, seen.near = shift, goldens.Tolerance(dir)
			atOnce(t, m, list)
			if err := seen.check(); (err != nil) != (what != "nothing") {
				t.Errorf("%s: %s is planted: %v", name, what, err)
			}
		}
	}
}

// uncleared is a device that leaves in a slot what its last sequence had.
type uncleared struct{ exec.Device }

type unclearedMachine struct{ exec.Machine }

func (u *uncleared) Open(local []*lowering.Schedule, world comm.World, o exec.Setup) (exec.Machine, error) {
	m, err := u.Device.Open(local, world, o)
	return unclearedMachine{m}, err
}

func (unclearedMachine) ClearSlot(int) error { return nil }

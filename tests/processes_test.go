package tests

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/comm"
	"github.com/krait-ml/krait/exec/comm/tcp"
	"github.com/krait-ml/krait/exec/cpu"
	"github.com/krait-ml/krait/exec/state"
	"github.com/krait-ml/krait/internal/covering"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/kernels"
	kernelscpu "github.com/krait-ml/krait/kernels/cpu"
	"github.com/krait-ml/krait/lowering"
)

// connected are n processes, all in this one, joined by connections.
func connected(t *testing.T, n int, timeout time.Duration) []*comm.Processes {
	t.Helper()
	list, errs := make([]*comm.Processes, n), make([]error, n)
	id := "file:" + filepath.Join(t.TempDir(), "rank0")
	var all sync.WaitGroup
	for r := range n {
		all.Go(func() {
			link, err := tcp.Join(t.Context(), tcp.Options{Rank: r, World: n, ID: id})
			if errs[r] = err; err == nil {
				list[r] = comm.Connect(link, comm.Options{Timeout: timeout})
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, p := range list {
			all.Go(func() { p.Close(nil) })
		}
		all.Wait()
	})
	return list
}

// spread is a model whose ranks are in several processes.
type spread struct {
	*krait.Model         // of rank 0
	followed     []error // by rank, what Follow gave
	all          sync.WaitGroup
}

// spreadModel opens a model in all processes, with options that may differ.
func spreadModel(t *testing.T, list []*comm.Processes, open func(rank int, o krait.Options) (*krait.Model, error)) (*spread, error) {
	t.Helper()
	s := &spread{followed: make([]error, len(list))}
	for r, p := range list[1:] {
		s.all.Go(func() {
			m, err := open(r+1, krait.Options{Processes: p})
			if err == nil {
				err = m.Follow(context.Background())
				m.Close()
			}
			s.followed[r+1] = err
		})
	}
	m, err := open(0, krait.Options{Processes: list[0]})
	if err != nil {
		s.all.Wait()
		return s, err
	}
	s.Model = m
	t.Cleanup(func() {
		m.Close()
		s.all.Wait()
	})
	return s, nil
}

// inProcesses is a model of a folder in n processes.
func inProcesses(t *testing.T, dir string, n int, o krait.Options) *krait.Model {
	t.Helper()
	s, err := spreadModel(t, connected(t, n, time.Minute), func(_ int, x krait.Options) (*krait.Model, error) {
		with := o
		with.Processes, with.Workers, with.Sharding.Ranks = x.Processes, 1, 0
		return krait.Open(dir, with)
	})
	if err != nil {
		t.Fatal(err)
	}
	return s.Model
}

// TestProcesses: every golden gives the bits, of all logits and states, on ranks in processes of
// their own that it gives on ranks in one, by strategies that split activations too, and with
// payloads that are rounded.
func TestProcesses(t *testing.T) {
	strategies := []krait.Sharding{{Strategy: "channel"}, {Strategy: "sequence"}, {Strategy: "batch"}, {Strategy: "naive"},
		{Strategy: "context"}, {Strategy: "channel", Prefill: "context"}, {Strategy: "channel", Prefill: "sequence"}}
	folders, payloads := covering.Drawn(t, goldens.Folders(t, "..")), []string{"", "bf16:acc32", "fp16"}
	for _, c := range covering.Each(t, []int{len(folders), 4, len(strategies)}, len(payloads)) {
		dir, ranks := folders[c[0]], 1+c[1]
		sharding := strategies[c[2]]
		if sharding.Ranks = ranks; ranks > 1 && sharding.Strategy != "context" {
			sharding.Payload = payloads[c[3]]
		}
		t.Run(fmt.Sprintf("%s/tp=%d/%s %s %s", filepath.Base(dir), ranks, sharding.Prefill, sharding.Strategy, sharding.Payload), func(t *testing.T) {
			t.Parallel()
			o := krait.Options{Slots: len(shardedSteps[0]), Sharding: sharding}
			steps := append([][]int{{1, 200, 0, 0, 0}}, shardedSteps...)
			want, wantStates := runSharded(t, openModel(t, dir, o), steps)
			got, states := runSharded(t, inProcesses(t, dir, ranks, o), steps)
			for i := range want {
				if !sameBits(got[i], want[i]) {
					t.Errorf("the logits of step %d have other bits than in one process", i)
				}
			}
			for i, s := range states {
				sameSnapshot(t, fmt.Sprint("sequence ", i), s, wantStates[i])
			}
		})
	}
}

// TestProcessesGenerate: generations share steps, sample, keep beginnings of prompts on the device
// and the host, and are what they are in one process; states come and go.
func TestProcessesGenerate(t *testing.T) {
	goldens.CI(t)
	for _, sharding := range []krait.Sharding{{Ranks: 3}, {Ranks: 3, Strategy: "context"}, {Ranks: 3, Prefill: "context"}} {
		t.Run(fmt.Sprintf("%s %s", sharding.Prefill, sharding.Strategy), func(t *testing.T) { generateInProcesses(t, sharding) })
	}
}

func generateInProcesses(t *testing.T, sharding krait.Sharding) {
	const dir = "../testdata/golden/jamba"
	o := krait.Options{Slots: 3, PageTokens: 16, Sharding: sharding}
	if sharding.Prefill == "context" || sharding.Strategy == "context" { // whose chunks have one length
		o.MaxTokensPerStep = 64 + o.Slots - 1
	}
	one := openModel(t, dir, o)
	o.PrefixCache, o.PrefixCacheHost = 1<<20, 1<<20
	m := inProcesses(t, dir, 3, o)
	prompt := randomIDs(75, m.Vocab())
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			g := krait.Generate{MaxTokens: 12, Temperature: float64(i % 3), RepetitionPenalty: 1.1, Seed: uint64(i)}
			ids := prompt[:40+5*i]
			want, err := one.GenerateIDs(t.Context(), ids, g)
			if err != nil {
				t.Error(err)
				return
			}
			if got, err := m.GenerateIDs(t.Context(), ids, g); err != nil || !slices.Equal(got.IDs, want.IDs) {
				t.Errorf("%v (%v), in one process %v", got, err, want.IDs)
			}
		})
	}
	all.Wait()
	if got, err := m.GenerateIDs(t.Context(), prompt, krait.Generate{MaxTokens: 1}); err != nil || got.CachedTokens == 0 {
		t.Errorf("nothing of the prompt was kept: %+v, %v", got, err)
	}
	a, b := sequence(t, one), sequence(t, m)
	stepped(t, a, prompt...)
	if err := b.Restore(snapshot(t, a)); err != nil {
		t.Fatal(err)
	}
	sameSnapshot(t, "restored", snapshot(t, b), snapshot(t, a))
	if !sameBits(stepped(t, b, 1, 2, 3), stepped(t, a, 1, 2, 3)) {
		t.Error("a sequence goes on otherwise in processes")
	}
	states, err := m.Engine().CopyState(b.slot)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := m.Engine().ShareKV(b.slot, 0, states.Tokens)
	if err != nil {
		t.Fatal(err)
	}
	states, parts := throughHost(t, m.Engine(), states, []*state.DeviceKV{rows})
	c := sequence(t, m)
	if err := m.Engine().Resume(c.slot, states, parts...); err != nil {
		t.Fatal(err)
	}
	sameSnapshot(t, "through the host", snapshot(t, c), snapshot(t, a))
	sameRegions(t, m.Engine(), one.Engine(), c.slot, a.slot)
}

// sameRegions compares the bytes of what two engines keep of sequences, and writes them anew.
func sameRegions(t *testing.T, a, b *exec.Engine, slotA, slotB int) {
	t.Helper()
	var views [2]*state.View
	for i, e := range []*exec.Engine{a, b} {
		slot := []int{slotA, slotB}[i]
		states, err := e.CopyState(slot)
		if err != nil {
			t.Fatal(err)
		}
		rows, err := e.ShareKV(slot, 0, states.Tokens)
		if err != nil {
			t.Fatal(err)
		}
		if views[i], err = e.View(states, rows); err != nil {
			t.Fatal(err)
		}
	}
	for rank := range b.Schedules() {
		for region := range 2 {
			var got [2][]byte
			for i, v := range views {
				x, err := v.Region(rank, region)
				if err != nil {
					t.Fatal(err)
				}
				got[i] = make([]byte, min(x.Size(), 16*8))
				if err := x.Read(got[i], 0); err != nil {
					t.Fatal(err)
				}
				zero := make([]byte, len(got[i]))
				again := bytes.Clone(zero)
				for _, err := range []error{x.Write(zero, 0), x.Read(again, 0), x.Write(got[i], 0)} {
					if err != nil {
						t.Fatal(err)
					}
				}
				if !bytes.Equal(again, zero) {
					t.Errorf("region %d of rank %d is not what was written", region, rank)
				}
			}
			if !bytes.Equal(got[0], got[1]) {
				t.Errorf("region %d of rank %d has other bytes", region, rank)
			}
		}
	}
}

// TestProcessesLoad: a process loads its rank's weights and no others.
func TestProcessesLoad(t *testing.T) {
	const ranks = 3
	var loaded [ranks]atomic.Int64
	s, err := spreadModel(t, connected(t, ranks, time.Minute), func(rank int, o krait.Options) (*krait.Model, error) {
		o.Progress = func(_, total int64) { loaded[rank].Store(total) }
		return krait.Open("../testdata/golden/mamba2-g1", o)
	})
	if err != nil {
		t.Fatal(err)
	}
	for r, sch := range s.Engine().Schedules() {
		want := int64(0)
		for _, b := range sch.Buffers {
			if b.Space == lowering.Param {
				want += b.Bytes
			}
		}
		if got := loaded[r].Load(); got != want {
			t.Errorf("rank %d loads %d bytes of weights, its share is %d", r, got, want)
		}
	}
}

// TestProcessesDiffer: processes that do not run the same end before the first step, all with an
// error that names what, and who.
func TestProcessesDiffer(t *testing.T) {
	const dir = "../testdata/golden/mamba-a"
	other := t.TempDir()
	for _, name := range []string{"config.json", "model.safetensors"} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if name == "model.safetensors" {
			data[len(data)-1] ^= 1 // of the last weight
		}
		if err := os.WriteFile(filepath.Join(other, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name   string
		change func(rank int, dir *string, o *krait.Options)
		want   string
	}{
		{"weights", func(rank int, dir *string, _ *krait.Options) {
			if rank == 2 {
				*dir = other
			}
		}, "the processes do not run the same: rank 2 differs from rank 0 in weights"},
		{"weights of rank 0", func(rank int, dir *string, _ *krait.Options) {
			if rank == 0 {
				*dir = other
			}
		}, "ranks 1, 2 differ from rank 0 in weights"},
		{"model", func(rank int, dir *string, _ *krait.Options) {
			if rank == 1 {
				*dir = "../testdata/golden/mamba-b"
			}
		}, "rank 1 differs from rank 0 in schedule; rank 1 differs from rank 0 in weights"},
		{"strategy", func(rank int, _ *string, o *krait.Options) {
			if rank > 0 {
				o.Sharding.Strategy = "naive"
			}
		}, "ranks 1, 2 differ from rank 0 in schedule"},
		{"slots", func(rank int, _ *string, o *krait.Options) { o.Slots = 2 + rank%2 }, "rank 1 differs from rank 0 in options (3 slots, 0 trials, a context of 0 and pages of 128 tokens, and rank 0 has 2 slots"},
		{"kernels", func(rank int, _ *string, o *krait.Options) { o.Reference = rank == 2 }, "rank 2 differs from rank 0 in device (cpu with kernels of its own, and rank 0 has cpu with "},
		{"missing", func(rank int, dir *string, _ *krait.Options) {
			if rank == 2 {
				*dir = "../testdata/none"
			}
		}, "../testdata/none"},
		{"ranks", func(rank int, _ *string, o *krait.Options) { o.Sharding.Ranks = 3 + rank/2 }, "4 ranks were requested, but 3 processes run one each"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, err := spreadModel(t, connected(t, 3, time.Minute), func(rank int, o krait.Options) (*krait.Model, error) {
				dir := dir
				c.change(rank, &dir, &o)
				return krait.Open(dir, o)
			})
			for r, err := range append([]error{err}, s.followed[1:]...) {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("rank %d: %v, want %q", r, err, c.want)
				}
			}
		})
	}
}

// TestProcessesFail: a step that is cancelled, or fails on another rank, is an error of that
// step; afterwards the model goes on.
func TestProcessesFail(t *testing.T) {
	var fails atomic.Int32 // the rank, and 1
	s, err := spreadModel(t, connected(t, 3, time.Minute), func(rank int, o krait.Options) (*krait.Model, error) {
		set := kernels.Set{}
		for name, k := range kernelscpu.Kernels {
			set[name] = k
		}
		add := set["add_rmsnorm"]
		set["add_rmsnorm"] = kernels.Kernel{Units: add.Units, Scratch: add.Scratch, Before: add.Before, Run: func(c *kernels.Call, lo, hi int) {
			if int(fails.Load()) == rank+1 {
				panic("planted")
			}
			add.Run(c, lo, hi)
		}}
		o.Device = &cpu.Device{Kernels: set, Workers: 1}
		return krait.Open("../testdata/golden/mamba-a", o)
	})
	if err != nil {
		t.Fatal(err)
	}
	seq := sequence(t, s.Model)
	want := stepped(t, seq, 1, 2, 3)
	for rank := range 3 {
		fails.Store(int32(rank + 1))
		_, err := seq.Step(t.Context(), 4)
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("rank %d: ", rank)) || !strings.Contains(err.Error(), "planted") {
			t.Errorf("rank %d fails: %v", rank, err)
		}
		fails.Store(0)
		if _, err := seq.Step(t.Context(), 4); err == nil || !strings.Contains(err.Error(), "left in the middle") {
			t.Errorf("the sequence goes on: %v", err)
		}
		if err := seq.Reset(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Duration(rank)*time.Millisecond, cancel)
		for err = error(nil); err == nil; {
			_, err = seq.Step(ctx, 5, 6, 7)
		}
		if !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
		if err := seq.Reset(); err != nil {
			t.Fatal(err)
		}
		if got := stepped(t, seq, 1, 2, 3); !sameBits(got, want) {
			t.Error("after a step that failed, the next is another")
		}
	}
}

// TestFollow: followers answer no other caller, and end with the model, with their own
// context, or when they are closed; then all do.
func TestFollow(t *testing.T) {
	for _, how := range []string{"closed", "cancelled", "left"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			list := connected(t, 3, time.Minute)
			ctx, cancel := context.WithCancelCause(context.Background())
			defer cancel(nil)
			var last *krait.Model
			ready := make(chan struct{})
			s, err := spreadModel(t, list, func(rank int, o krait.Options) (*krait.Model, error) {
				m, err := krait.Embedded(o)
				if rank < 2 || err != nil {
					return m, err
				}
				if _, err := m.NewSequence(); err == nil || !strings.Contains(err.Error(), "runs rank 2 and follows rank 0") {
					t.Errorf("a process that follows is asked: %v", err)
				}
				last = m
				close(ready)
				err = m.Follow(ctx)
				if again := m.Follow(ctx); again == nil {
					t.Error("it follows twice")
				}
				return m, errors.Join(err, io.EOF) // it does not follow again
			})
			if err != nil {
				t.Fatal(err)
			}
			<-ready
			seq := sequence(t, s.Model)
			stepped(t, seq, 1, 2)
			want := ""
			switch how {
			case "closed":
				s.Close()
			case "cancelled":
				want = "terminated"
				cancel(errors.New("terminated"))
			case "left":
				want = "the model is closed"
				last.Close()
			}
			if how != "closed" {
				<-list[0].Failed()
				if _, err := seq.Step(t.Context(), 3); err == nil || err.Error() != "rank 2: "+want {
					t.Errorf("the next step: %v", err)
				}
				s.Close()
			}
			s.all.Wait()
			if err := s.followed[1]; how == "closed" && err != nil || how != "closed" && (err == nil || err.Error() != "rank 2: "+want) {
				t.Errorf("rank 1 ends with %v", err)
			}
			if err := s.followed[2]; !strings.Contains(err.Error(), want) {
				t.Errorf("rank 2 ends with %v", err)
			}
		})
	}
}

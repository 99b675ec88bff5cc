//go:build unix

package tests

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/cuda/sim"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/cuda"
	"github.com/krait-ml/krait/graph"
)

// copied is a copy of a golden, and its weights.
func copied(t *testing.T, golden string) (dir, weights string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("../testdata/golden", golden))); err != nil {
		t.Fatal(err)
	}
	return dir, filepath.Join(dir, "model.safetensors")
}

// cut shortens a file to a share of its size.
func cut(t *testing.T, path string, share float64) {
	t.Helper()
	info, err := os.Stat(path)
	if err == nil {
		err = os.Truncate(path, int64(share*float64(info.Size())))
	}
	if err != nil {
		t.Error(err)
	}
}

// blames fails the test unless err says that the file was changed.
func blames(t *testing.T, what, path string, err error) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), path+" was changed or cut while it was mapped") {
		t.Errorf("%s: %v", what, err)
	}
}

func simulated() exec.Device { return &cuda.Device{Driver: sim.New(sim.Options{Devices: 1})} }

// TestTruncatedOpen: weights that are cut, or written to, under an open model make its steps
// fail on the CPU in every reader; a GPU has its own.
func TestTruncatedOpen(t *testing.T) {
	ids := randomIDs(300, 60)
	for _, c := range []struct{ ranks, workers int }{{1, 1}, {1, 4}, {3, 6}} {
		for _, share := range []float64{0, 0.5, 0.999} {
			dir, path := copied(t, "mamba-a")
			m := openModel(t, dir, krait.Options{Sharding: krait.Sharding{Ranks: c.ranks}, Workers: c.workers})
			s, other := sequence(t, m), sequence(t, m)
			stepped(t, s, ids...)
			cut(t, path, share)
			for _, q := range []*seq{s, other} {
				_, err := q.Step(context.Background(), ids...)
				blames(t, fmt.Sprint(c, share), path, err)
			}
		}
	}
	dir, path := copied(t, "mamba-a")
	m := openModel(t, dir, krait.Options{})
	s := sequence(t, m)
	time.Sleep(20 * time.Millisecond) // clocks of file systems are coarse
	if f, err := os.OpenFile(path, os.O_WRONLY, 0); err != nil {
		t.Error(err)
	} else if _, err := f.WriteAt([]byte{1}, 20_000); err != nil || f.Close() != nil {
		t.Error(err)
	}
	_, err := s.Step(context.Background(), 1)
	blames(t, "written", path, err)

	dir, path = copied(t, "mamba-a")
	m = openModel(t, dir, krait.Options{Device: simulated()})
	cut(t, path, 0)
	stepped(t, sequence(t, m), 1, 2, 3)
}

// TestTruncatedDuringSteps cuts while the model runs: what was wrong is never returned.
func TestTruncatedDuringSteps(t *testing.T) {
	for ranks := 1; ranks < 4; ranks += 2 {
		for range 5 {
			dir, path := copied(t, "mamba-a")
			m := openModel(t, dir, krait.Options{Sharding: krait.Sharding{Ranks: ranks}, Workers: 4})
			s := sequence(t, m)
			want := stepped(t, s, 1, 2, 3)
			cutting := make(chan bool)
			go func() {
				time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
				cut(t, path, 0.3)
				close(cutting)
			}()
			for {
				if err := s.Reset(); err != nil {
					t.Fatal(err)
				}
				logits, err := s.Step(context.Background(), 1, 2, 3)
				if err != nil {
					blames(t, fmt.Sprintf("%d ranks", ranks), path, err)
					break
				}
				if !sameBits(logits, want) {
					t.Fatalf("%d ranks: other logits, and no error", ranks)
				}
			}
			<-cutting
		}
	}
}

// TestTruncatedDuringLoad cuts the file when a tensor is asked for.
func TestTruncatedDuringLoad(t *testing.T) {
	for what, o := range map[string]krait.Options{
		"cpu": {}, "3 ranks": {Sharding: krait.Sharding{Ranks: 3}}, "cuda": {Device: simulated()}, "cuda, 2 ranks": {Device: simulated(), Sharding: krait.Sharding{Ranks: 2}},
	} {
		for at := 1; at < 20; at += 6 {
			dir, path := copied(t, "mamba-a")
			c, err := checkpoint.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			asked := 0
			e, err := krait.NewEngine(c.Graph, func(name string) (graph.Array, error) {
				if asked++; asked == at {
					cut(t, path, 0)
				}
				return c.Tensor(name)
			}, o)
			if asked < at {
				t.Fatalf("%s: %d tensors were asked for", what, asked)
			}
			if err == nil { // all that was read was views, or had been read
				err = c.Intact()
				e.Close()
			}
			blames(t, what, path, err)
			c.Close()
		}
	}
}

// TestReplaced: a file that another was renamed over is the old one to who has it.
func TestReplaced(t *testing.T) {
	dir, path := copied(t, "mamba-a")
	m := openModel(t, dir, krait.Options{})
	s := sequence(t, m)
	want := stepped(t, s, 1, 2, 3)
	if err := os.WriteFile(path+".new", []byte("something else"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	if err := s.Reset(); err != nil {
		t.Fatal(err)
	}
	if !sameBits(stepped(t, s, 1, 2, 3), want) {
		t.Error("a file that was replaced gave other logits")
	}
}

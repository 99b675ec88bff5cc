package synth_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/checkpoint/safetensors"
	"github.com/krait-ml/krait/checkpoint/synth"
	"github.com/krait-ml/krait/internal/goldens"
)

// configs are the configs of all families, as published checkpoints have them.
func configs(t *testing.T) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for _, dir := range goldens.Folders(t, "../..") {
		p := filepath.Join(dir, "config.json")
		data, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		out[p] = data
	}
	return out
}

// TestFamilies: every family in every format opens without a warning, and its
// logits are numbers of a sensible size.
func TestFamilies(t *testing.T) {
	for from, config := range configs(t) {
		for _, dtype := range []string{"f32", "bf16", "f16"} {
			t.Run(filepath.Base(filepath.Dir(from))+"/"+dtype, func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "model")
				write(t, dir, synth.Options{Config: config, From: from, DType: dtype})
				sensible(t, dir)
			})
		}
	}
}

// TestDeep: activations stay finite through as many layers as models have.
func TestDeep(t *testing.T) {
	config := []byte(`{"model_type": "mamba", "hidden_size": 32, "num_hidden_layers": 64, "vocab_size": 50, "state_size": 8}`)
	dir := filepath.Join(t.TempDir(), "model")
	write(t, dir, synth.Options{Config: config, From: "deep", DType: "f16"})
	sensible(t, dir)
}

func write(t *testing.T, dir string, o synth.Options) *synth.Made {
	t.Helper()
	made, err := synth.Write(context.Background(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func sensible(t *testing.T, dir string) {
	t.Helper()
	m, err := krait.Open(dir, krait.Options{Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	s, err := m.NewSequence()
	if err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		logits, err := s.Step(context.Background(), 1+i, 2)
		if err != nil {
			t.Fatal(err)
		}
		square := 0.0
		for _, v := range logits {
			square += float64(v) * float64(v)
		}
		if scale := math.Sqrt(square / float64(len(logits))); !(scale > 0.01 && scale < 100) {
			t.Fatalf("after %d steps logits are of size %g", i+1, scale)
		}
	}
}

// TestSizes: every published size has a graph, of about as many parameters as its name says.
func TestSizes(t *testing.T) {
	want := map[string]float64{"mamba-130m": 0.129e9, "mamba-2.8b": 2.77e9, "mamba2-130m": 0.129e9, "mamba2-2.7b": 2.70e9, "falcon-mamba-7b": 7.27e9,
		"zamba-7b": 7.2e9, "zamba2-1.2b": 1.22e9, "zamba2-2.7b": 2.69e9, "zamba2-7b": 7.36e9, "jamba-52b": 51.6e9, "bamba-9b": 9.78e9, "falcon-h1-0.5b": 0.52e9,
		"granite-4.0-h-small": 32.2e9, "granite-4.0-h-tiny": 6.94e9, "granite-4.0-h-micro": 3.19e9, "nemotron-h-8b": 8.1e9, "nemotron-h-47b": 46.8e9, "nemotron-h-56b": 56e9,
		"nemotron-nano-9b-v2": 8.89e9, "nemotron-3-nano-30b-a3b": 31.6e9, "nemotron-3-super-120b-a12b": 120.6e9,
		"lfm2-1.2b": 1.17e9, "lfm2-8b-a1b": 8.34e9, "qwen3.5-0.8b": 0.752e9, "qwen3.5-4b": 4.21e9, "qwen3.5-9b": 8.95e9, "qwen3.5-27b": 26.9e9, "qwen3.5-35b-a3b": 34.7e9, "qwen3-next-80b-a3b": 79.7e9}
	for _, name := range synth.Sizes() {
		g, err := synth.Graph(synth.Options{Like: name})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		n := 0.0
		for _, p := range g.Leaves("param") {
			elems := 1
			for _, d := range p.Results[0].Type.Dims {
				elems *= d.Len()
			}
			n += float64(elems)
		}
		if w := want[name]; w != 0 && math.Abs(n/w-1) > 0.02 {
			t.Errorf("%s has %.4g parameters, want about %.4g", name, n, w)
		}
	}
}

// TestRepeats: the same seed, the same bytes, with any number of processors.
func TestRepeats(t *testing.T) {
	dir := t.TempDir()
	var files [3][]byte
	for i, seed := range []uint64{3, 3, 4} {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(i + 1))
		d := filepath.Join(dir, fmt.Sprint(i))
		write(t, d, synth.Options{Like: "mamba-130m", Layers: 1, Vocab: 5000, Seed: seed})
		var err error
		if files[i], err = os.ReadFile(filepath.Join(d, "model.safetensors")); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(files[0], files[1]) || bytes.Equal(files[0], files[2]) {
		t.Error("a seed does not decide what is written")
	}
}

// TestShards: files of a size at most, with an index, over an older checkpoint.
func TestShards(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "model")
	write(t, dir, synth.Options{Like: "mamba-130m", Layers: 1, Vocab: 50})
	o := synth.Options{Like: "mamba-130m", Layers: 1, Vocab: 100, Force: true}
	synth.LimitShards(&o, 3e6)
	made := write(t, dir, o)
	set, err := safetensors.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	files := map[string]bool{}
	for _, name := range set.Names() {
		files[set.FileOf(name)] = true
	}
	if len(files) < 2 {
		t.Errorf("%d files of %d bytes", len(files), made.Bytes)
	}
	if _, err := checkpoint.Open(dir); err != nil {
		t.Error(err)
	}
	sensible(t, dir)
}

// TestInterrupted: nothing is left of what was not finished.
func TestInterrupted(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	o := synth.Options{Like: "mamba-130m", Layers: 1, Progress: func(done, _ int64) {
		if done > 0 {
			cancel()
		}
	}}
	if _, err := synth.Write(ctx, filepath.Join(dir, "model"), o); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
	if _, err := synth.Write(context.Background(), filepath.Join(dir, "a\x00b"), synth.Options{Like: "mamba-130m"}); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// TestNoRoom: what does not fit is refused before a byte is written.
func TestNoRoom(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()                                                            // should there be room
	o := synth.Options{Like: "jamba-52b", Vocab: 1 << 28, DType: "f32"} // 8.8 TB
	_, err := synth.Write(ctx, filepath.Join(t.TempDir(), "model"), o)
	known := runtime.GOOS == "linux" || runtime.GOOS == "darwin"
	if err == nil || known && !strings.Contains(err.Error(), "the weights take 9000.2 GB, and ") {
		t.Errorf("got %v", err)
	}
}

//go:build unix

package bench

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/krait-ml/krait"
)

// A peer that says what llama.cpp says, and no more.
const (
	fakeSingle = `#!/bin/sh
echo "args $*" >&2
echo '{"n_prompt": 16, "n_gen": 0, "samples_ts": [ 100.5 ]}'
echo '{"n_prompt": 0, "n_gen": 4, "samples_ts": [ 20.25 ]}'
`
	fakeBatched = `#!/bin/sh
case "$*" in *broken*) echo first >&2; echo "cannot allocate" >&2; exit 3 ;; esac
echo 'some text'
echo '{"pp": 4, "tg": 2, "pl": 4, "speed_tg": 40.5}'
`
)

// fakePeer makes a folder with a peer and models, which are all the same to Krait.
func fakePeer(t *testing.T, models ...string) string {
	t.Helper()
	dir := t.TempDir()
	put := func(path, text string, mode os.FileMode) {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	put("bin/llama-bench", fakeSingle, 0o755)
	put("bin/llama-batched-bench", fakeBatched, 0o755)
	golden, err := filepath.Abs("../../testdata/golden/mamba-a")
	if err != nil {
		t.Fatal(err)
	}
	put("hf/none", "", 0o644)
	for _, m := range models {
		put("gguf/"+strings.Replace(m, "-q8", "-q8_0", 1)+".gguf", "", 0o644)
		if err := os.Symlink(golden, filepath.Join(dir, "hf", m)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestPaired: both are measured in every round, and what fails leaves a note.
func TestPaired(t *testing.T) {
	dir := fakePeer(t, "a-f32", "broken-q8")
	p, err := OpenPeer(dir)
	if err != nil {
		t.Fatal(err)
	}
	models, left, err := p.Models(nil)
	if err != nil || len(models) != 2 || len(left) != 0 {
		t.Fatalf("%v, %v, %v", models, left, err)
	}
	reads := 0
	o := PairedOptions{Rounds: 2, Threads: 2, Batch: 4, Prompt: 16, Tokens: 4, Roofline: Roofline{Bytes: 1e9, FLOPs: 1e15, Read: func() float64 { reads++; return 1e9 * float64(1+reads%2) }},
		Open: func(dir string) (*krait.Model, error) { return krait.Open(dir, krait.Options{Slots: 4, Workers: 2}) }}
	pairs, err := Paired(context.Background(), p, models, o)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{"decode 1": 20.25, "prompt 16": 100.5, "decode 4": 40.5}
	for _, x := range pairs {
		failed := x.Model == "broken-q8" && x.Work == "decode 4"
		if failed {
			if x.Ratio != 0 || !strings.HasSuffix(x.Peer.Note, "exit status 3: cannot allocate") || len(x.Krait.Runs) != 2 {
				t.Errorf("%+v", x)
			}
			continue
		}
		if x.Peer.Median != want[x.Work] || len(x.Peer.Runs) != 2 || len(x.Krait.Runs) != 2 || x.Ratio != x.Krait.Median/x.Peer.Median || x.Krait.Share <= 0 || x.Peer.Share <= 0 {
			t.Errorf("%+v", x)
		}
		if want := (Spread{1e9, 1e9, 2e9}); x.Reads != want && !strings.HasPrefix(x.Work, "prompt") {
			t.Errorf("%s: reads of %+v, want %+v", x.Work, x.Reads, want)
		}
	}
	if len(pairs) != 6 {
		t.Errorf("%d pairs", len(pairs))
	}
	var out bytes.Buffer
	ReportPairs(&out, pairs)
	if !strings.Contains(out.String(), "| a-f32 | decode 1 | 20.2 (20.2 to 20.2) |") || !strings.Contains(out.String(), "broken-q8, decode 4, llama.cpp: ") {
		t.Error(out.String())
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Paired(ctx, p, models, o); err != context.Canceled {
		t.Error(err)
	}
}

// TestPeerErrors: what is missing is named.
func TestPeerErrors(t *testing.T) {
	if _, err := OpenPeer(t.TempDir()); err == nil || !strings.Contains(err.Error(), "bin/llama-bench is not a program") {
		t.Error(err)
	}
	dir := fakePeer(t, "a-f32")
	p, err := OpenPeer(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		remove, name, want string
	}{
		{"", "b-f32", "model b-f32: " + filepath.Join(dir, "hf/b-f32") + " is missing"},
		{"gguf/a-f32.gguf", "a-f32", filepath.Join(dir, "gguf/a-f32.gguf") + " is missing"},
	} {
		if c.remove != "" {
			if err := os.Remove(filepath.Join(dir, c.remove)); err != nil {
				t.Fatal(err)
			}
		}
		if _, _, err := p.Models([]string{c.name}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	same := filepath.Join(dir, "gguf", "c-q4_k_m.gguf")
	if err := os.WriteFile(same, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if list, _, err := p.Models([]string{"c-q4_k_m"}); err != nil || len(list) != 1 || p.Folder(list[0]) != same {
		t.Errorf("a file without a folder: %v, %v", list, err)
	}
	if _, left, err := p.Models(nil); err == nil || !strings.Contains(err.Error(), "has no model for both") || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "bin/llama-bench"), []byte("#!/bin/sh\necho '{'\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.one(context.Background(), "a-f32", &PairedOptions{}); err == nil || !strings.Contains(err.Error(), "cannot parse its output") {
		t.Error(err)
	}
}

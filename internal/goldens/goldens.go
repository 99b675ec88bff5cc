// Package goldens names the checkpoints of testdata/golden, for tests of all of
// them: one that is gone fails them, and so does one that is not named here.
package goldens

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	_ "github.com/krait-ml/krait/internal/thrift" // for all tests of models
)

// Names are the checkpoints: by default without those whose parts others have, which KRAIT_TEST_ALL
// and cli/testdata/script/check.txtar try.
var Names = names()

func names() []string {
	list := []string{
		"bamba", "falcon-h1", "falcon-mamba", "granite-hybrid", "granite-hybrid-dense", "jamba", "lfm2", "mamba-a", "mamba-a-bf16", "mamba-a-fp16", "mamba-b",
		"mamba2-clamp", "mamba2-g1", "mamba2-g4", "nemotron-h", "nemotron-h-moe", "qwen3-5", "qwen3-next", "zamba", "zamba2",
	}
	if All() {
		list = append(list, others...)
		slices.Sort(list)
	}
	return list
}

// others are the checkpoints that Names lacks by default.
var others = []string{"lfm2-moe", "nemotron-h-latent", "qwen3-5-moe"}

// All says that tests are to run the product of what they else cover by pairs, and
// all of what is long: KRAIT_TEST_ALL is set, and not "ci".
func All() bool { return os.Getenv("KRAIT_TEST_ALL") != "" && !ci() }

func ci() bool { return os.Getenv("KRAIT_TEST_ALL") == "ci" }

// Few says that a test is to run few of its cases, as by default: they try each subsystem. CI runs
// the others for each commit, with KRAIT_TEST_ALL=ci, in the tests that Few has noted in the file
// KRAIT_TEST_LEFT. Without a test it notes nothing.
func Few(t testing.TB) bool {
	if ci() || All() {
		return false
	}
	if path := os.Getenv("KRAIT_TEST_LEFT"); path != "" && t != nil {
		note(t, path)
	}
	return true
}

// CI skips a test by default: CI runs it for each commit.
func CI(t testing.TB) {
	t.Helper()
	if Few(t) {
		t.Skip("CI runs it, with KRAIT_TEST_ALL=ci")
	}
}

// noted are the tests of this process that are in the file.
var noted sync.Map

// note appends a test's folder and name to a file.
func note(t testing.TB, path string) {
	t.Helper()
	name, _, _ := strings.Cut(t.Name(), "/")
	if _, again := noted.LoadOrStore(name, true); again {
		return
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		t.Fatal(err)
	}
	_, err = fmt.Fprintln(f, dir, name)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// Tolerance is the largest absolute difference that a checkpoint passes with: 1e-4, or
// what the README suggests where the reference itself is off by about as much.
func Tolerance(dir string) float64 {
	switch name := filepath.Base(dir); {
	case name == "zamba2", strings.HasPrefix(name, "qwen3-"):
		return 3e-4
	}
	return 1e-4
}

// Folders are those of all checkpoints, in the order of Names; root is the path of
// the repository's root.
func Folders(t testing.TB, root string) []string {
	t.Helper()
	dir := filepath.Join(root, "testdata/golden")
	configs, err := filepath.Glob(filepath.Join(dir, "*/config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var folders, found []string
	for _, name := range Names {
		folders = append(folders, filepath.Join(dir, name))
	}
	for _, config := range configs {
		if from := filepath.Dir(config); All() || !slices.Contains(others, filepath.Base(from)) {
			found = append(found, from)
		}
	}
	if !slices.Equal(found, folders) {
		t.Fatalf("%s has the checkpoints %q, want %q", dir, found, folders)
	}
	return folders
}

// Shallow returns a folder like a checkpoint's, of n of its layers: every kernel runs, and fewer
// times. With KRAIT_TEST_ALL it is the checkpoint's; root is the path of the repository's root.
func Shallow(t testing.TB, root, name string, layers int) (dir string) {
	t.Helper()
	from, err := filepath.Abs(filepath.Join(root, "testdata/golden", name))
	if err != nil || All() {
		return from
	}
	dir = filepath.Join(t.TempDir(), name)
	config, err := os.ReadFile(filepath.Join(from, "config.json"))
	weights, unread := os.ReadFile(filepath.Join(from, "model.safetensors"))
	config = regexp.MustCompile(`"num_hidden_layers": \d+`).ReplaceAll(config, fmt.Appendf(nil, `"num_hidden_layers": %d`, layers))
	config = regexp.MustCompile(`"layer_types": \[[^]]*\],`).ReplaceAll(config, nil) // the default gives the same
	err = errors.Join(err, unread, os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "config.json"), config, 0o644),
		os.WriteFile(filepath.Join(dir, "model.safetensors"), weights, 0o644))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

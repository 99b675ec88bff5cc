package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/krait-ml/krait/checkpoint/hub/hubtest"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/lab/bench"
)

// TestScripts runs the command line as users do; each script is a story. Lines marked [all] run
// with KRAIT_TEST_ALL only. Lines run in this process, which starts once, and with KRAIT_TEST_ALL
// in processes of their own, as do those that say exec.
func TestScripts(t *testing.T) {
	abs := func(path string) string {
		full, err := filepath.Abs(path)
		if err != nil {
			t.Fatal(err)
		}
		return full
	}
	scripts, data := abs("testdata/script"), abs("../testdata")
	tokenizers, tiny := abs("../text/tokenizer/testdata/golden"), abs("../internal/embedded/tiny-mamba")
	path := programDir(t) + string(filepath.ListSeparator) + os.Getenv("PATH")
	measured := measureRoofline
	t.Cleanup(func() { measureRoofline = measured })
	measureRoofline = fixedRoofline
	testscript.Run(t, testscript.Params{
		Dir: scripts,
		Condition: func(name string) (bool, error) {
			if name != "all" {
				return false, fmt.Errorf("unknown condition %q", name)
			}
			return goldens.All(), nil
		},
		Setup: func(e *testscript.Env) error {
			e.Setenv("PATH", path)
			e.Setenv("DATA", data)
			e.Setenv("TOK", tokenizers)
			e.Setenv("TINY", tiny)
			e.Setenv("HF_HOME", filepath.Join(e.WorkDir, "hf"))
			e.Setenv("HF_HUB_OFFLINE", "1") // but for scripts that call hub
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"hub": publish, "krait": scriptLine},
	})
}

// programDir returns a folder in which this program is krait.
func programDir(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "krait")
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	if os.Link(self, name) != nil { // which Windows allows everyone
		err = os.Symlink(self, name)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// fixedRoofline is the roofline in scripts.
func fixedRoofline(threads int) bench.Roofline {
	if os.Getenv("KRAIT_TEST_FLOOR") != "" {
		return bench.MeasureRoofline(threads)
	}
	return bench.Roofline{ISA: "plain", Threads: max(1, threads), Bytes: 1e9, FLOPs: 1e9}
}

// inherited are the variables of a script that krait reads in this process.
var inherited = []string{"HOME", "PATH", "TMPDIR", "WORK", "HF_HOME", "HF_ENDPOINT", "HF_HUB_OFFLINE", "HF_TOKEN"}

var oneLine sync.Mutex // a process has one folder and one environment

// scriptLine is the command krait of scripts.
func scriptLine(ts *testscript.TestScript, neg bool, args []string) {
	failed := false
	if goldens.All() {
		failed = ts.Exec("krait", args...) != nil
	} else {
		failed = inProcess(ts, args) != 0
	}
	if failed != neg {
		ts.Fatalf("unexpected command %s", map[bool]string{false: "success", true: "failure"}[failed])
	}
}

// inProcess runs a line in the script's folder and environment and returns its status.
func inProcess(ts *testscript.TestScript, args []string) (status int) {
	oneLine.Lock()
	defer oneLine.Unlock()
	was, err := os.Getwd()
	ts.Check(err)
	ts.Check(os.Chdir(ts.MkAbs("")))
	defer os.Chdir(was)
	for _, name := range inherited {
		if value, set := os.LookupEnv(name); set {
			defer os.Setenv(name, value)
		} else {
			defer os.Unsetenv(name)
		}
		os.Setenv(name, ts.Getenv(name))
	}
	var out, errs concurrent
	root := newRoot()
	root.SetIn(noInput{})
	root.SetOut(&out)
	root.SetErr(&errs)
	ctx, end := context.WithCancelCause(context.Background())
	defer end(nil)
	status = run(ctx, end, root, args)
	ts.Stdout().Write(out.Bytes())
	ts.Stderr().Write(errs.Bytes())
	return status
}

// noInput is the standard input of a line that does not say exec.
type noInput struct{}

func (noInput) Read([]byte) (int, error) {
	return 0, errors.New("the line reads standard input: write exec krait")
}

// concurrent is a buffer of several writers.
type concurrent struct {
	mu sync.Mutex
	bytes.Buffer
}

func (c *concurrent) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Buffer.Write(p)
}

// publish is the command hub of scripts: hub ORG/NAME DIR [gated] starts a server of models and
// publishes the files of a folder there; gated ones need the token secret.
func publish(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: hub ORG/NAME DIR [gated]")
	}
	repo := hubtest.Repo{Files: map[string]string{}, Large: 1 << 14, Gated: len(args) > 2}
	dir := ts.MkAbs(args[1])
	entries, err := os.ReadDir(dir)
	ts.Check(err)
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		ts.Check(err)
		repo.Files[e.Name()] = string(data)
	}
	s := hubtest.Start()
	ts.Defer(s.Close)
	s.Token = "secret"
	s.Put(args[0], repo)
	ts.Setenv("HF_ENDPOINT", s.URL)
	ts.Setenv("HF_HUB_OFFLINE", "")
}

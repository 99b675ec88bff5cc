package cli

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/krait-ml/krait/checkpoint/hub/hubtest"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/lab/bench"
)

// asKrait lets the program of the tests be krait, for tests that start it themselves.
const asKrait = "KRAIT_TEST_AS_KRAIT"

func TestMain(m *testing.M) {
	if os.Getenv(asKrait) != "" {
		failSometimes()
		Main()
	}
	testscript.Main(m, map[string]func(){
		"krait":    fixedRoofline,
		"measured": highWater,
	})
}

// kraitCommand is a command of this program.
func kraitCommand(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(path, args...)
	c.Env = append(os.Environ(), asKrait+"=1", "GOGC=100") // memory is measured
	return c
}

// fixedRoofline is main, with a fixed roofline unless KRAIT_TEST_FLOOR is set.
func fixedRoofline() {
	if os.Getenv("KRAIT_TEST_FLOOR") == "" {
		measureRoofline = func(threads int) bench.Roofline {
			return bench.Roofline{ISA: "plain", Threads: max(1, threads), Bytes: 1e9, FLOPs: 1e9}
		}
	}
	Main()
}

// measured is main, and says at the end what memory it took: who waits for a process
// is told of that of its own, too, from which it was forked.
func highWater() {
	ctx, end := context.WithCancelCause(context.Background())
	status := run(ctx, end, os.Args[1:])
	if data, err := os.ReadFile("/proc/self/status"); err == nil {
		if _, after, ok := strings.Cut(string(data), "\nVmHWM:"); ok {
			line, _, _ := strings.Cut(after, "\n")
			fmt.Fprintf(os.Stderr, "\nVmHWM:%s\n", line)
		}
	}
	os.Exit(status)
}

// TestScripts runs the command line as users do; each script is a story. Lines marked [all] run
// with KRAIT_TEST_ALL only.
func TestScripts(t *testing.T) {
	data, err := filepath.Abs("../testdata")
	if err != nil {
		t.Fatal(err)
	}
	tokenizers, err := filepath.Abs("../text/tokenizer/testdata/golden")
	if err != nil {
		t.Fatal(err)
	}
	tiny, err := filepath.Abs("../internal/embedded/tiny-mamba")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Condition: func(name string) (bool, error) {
			if name != "all" {
				return false, fmt.Errorf("unknown condition %q", name)
			}
			return goldens.All(), nil
		},
		Setup: func(e *testscript.Env) error {
			e.Setenv("DATA", data)
			e.Setenv("TOK", tokenizers)
			e.Setenv("TINY", tiny)
			e.Setenv("HF_HOME", filepath.Join(e.WorkDir, "hf"))
			e.Setenv("HF_HUB_OFFLINE", "1") // but for scripts that call hub
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"hub": publish},
	})
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

// TestSVG: with Graphviz there is a picture, without it an error that names it.
func TestSVG(t *testing.T) {
	root := newRoot()
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetArgs([]string{"graph", "--format", "svg", "--layer", "0"})
	err := root.Execute()
	if _, missing := exec.LookPath("dot"); missing == nil && (err != nil || !bytes.Contains(out.Bytes(), []byte("</svg>"))) {
		t.Errorf("with Graphviz: %v", err)
	}
	t.Setenv("PATH", "")
	if err := root.Execute(); err == nil || !strings.Contains(err.Error(), "dot of Graphviz, which is not installed") {
		t.Errorf("without Graphviz: %v", err)
	}
}

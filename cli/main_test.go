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
)

// asKrait lets the program of the tests be krait, for tests that start it themselves.
const asKrait = "KRAIT_TEST_AS_KRAIT"

func TestMain(m *testing.M) {
	name, _ := strings.CutSuffix(filepath.Base(os.Args[0]), ".exe")
	switch {
	case os.Getenv(asKrait) != "":
		failSometimes()
		Main()
	case name == "krait":
		measureRoofline = fixedRoofline
		Main()
	case name == "measured":
		highWater()
	}
	os.Exit(m.Run())
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

// highWater is main, and says at the end what memory it took: who waits for a process
// is told of that of its own, too, from which it was forked.
func highWater() {
	ctx, end := context.WithCancelCause(context.Background())
	status := run(ctx, end, newRoot(), os.Args[1:])
	if data, err := os.ReadFile("/proc/self/status"); err == nil {
		if _, after, ok := strings.Cut(string(data), "\nVmHWM:"); ok {
			line, _, _ := strings.Cut(after, "\n")
			fmt.Fprintf(os.Stderr, "\nVmHWM:%s\n", line)
		}
	}
	os.Exit(status)
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

package safetensors

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/krait-ml/krait/internal/files"
)

// TestCut reads a file that is cut, in other processes: unguarded they die, which is
// what guards are for.
func TestCut(t *testing.T) {
	if how := os.Getenv("KRAIT_TEST_CUT"); how != "" {
		readCut(how)
	}
	if runtime.GOOS == "windows" {
		t.Skip("nothing is mapped here")
	}
	for how, want := range map[string]string{"plain": "fault", "guarded": "was changed or cut while it was mapped"} {
		c := exec.Command(os.Args[0], "-test.run=^TestCut$")
		c.Dir = t.TempDir()
		c.Env = append(os.Environ(), "KRAIT_TEST_CUT="+how)
		out, err := c.CombinedOutput()
		var status *exec.ExitError
		if died := errors.As(err, &status); died != (how == "plain") || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v: %.300s", how, err, out)
		}
	}
}

// readCut ends the process, by itself or by the fault.
func readCut(how string) {
	err := WriteFile("x.safetensors", []Tensor{{Name: "x", DType: "U8", Shape: []int{1 << 20}, Data: make([]byte, 1<<20)}}, nil)
	if err != nil {
		panic(err)
	}
	path, _ := filepath.Abs("x.safetensors")
	f, err := Open(path)
	if err != nil {
		panic(err)
	}
	if err := errors.Join(f.Intact(), os.Truncate(path, 5000)); err != nil {
		panic(err)
	}
	x, _ := f.Tensor("x")
	read := func() error {
		fmt.Println(bytes.Count(x.Data, []byte{1}))
		return nil
	}
	if how == "plain" {
		_ = read()
	}
	fmt.Println(files.Guard(read), f.Intact())
	os.Exit(0)
}

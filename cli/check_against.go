package cli

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/krait-ml/krait/exec/cpu"
	"github.com/krait-ml/krait/internal/terminal"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/kernels/reference"
	"github.com/krait-ml/krait/lab/check"
	"github.com/spf13/cobra"
)

// references are the kernels that krait check --against takes instead of plain ones, by name. The
// tag gorgonia adds some.
var references = map[string]func() kernels.Set{
	"plain": func() kernels.Set { return nil },
}

// against writes reference numbers of a model as other kernels give them, and returns the file,
// which done removes. It prints what these kernels computed of the model.
func against(c *cobra.Command, dir, name string) (file string, done func(), err error) {
	own, ok := references[name]
	if !ok {
		why := ""
		if name == "gorgonia" {
			why = "; a program built with -tags gorgonia has gorgonia, too"
		}
		return "", nil, fmt.Errorf("--against is %q; it must be %s%s", name, strings.Join(slices.Sorted(maps.Keys(references)), " or "), why)
	}
	folder, err := os.MkdirTemp("", "krait-check-")
	if err != nil {
		return "", nil, err
	}
	done = func() { os.RemoveAll(folder) }
	file = filepath.Join(folder, "expected.safetensors")
	set, share := tallied(own())
	tell, end := terminal.Progress(c.ErrOrStderr(), name, "tokens", false)
	err = check.Record(c.Context(), dir, &cpu.Device{Kernels: set}, file, tell)
	if end(); err != nil {
		done()
		return "", nil, err
	}
	if text := share(); text != "" {
		fmt.Fprintln(c.ErrOrStderr(), name, text)
	}
	return file, done, nil
}

// tallied is the plain kernels but for some, and says how many of the calls these got.
func tallied(own kernels.Set) (set kernels.Set, share func() string) {
	if len(own) == 0 {
		return reference.Kernels, func() string { return "" }
	}
	var mu sync.Mutex
	calls := map[string]int{}
	set = maps.Clone(reference.Kernels)
	maps.Copy(set, own)
	for name, k := range set {
		run := k.Run
		k.Run = func(c *kernels.Call, lo, hi int) {
			mu.Lock()
			calls[name]++
			mu.Unlock()
			run(c, lo, hi)
		}
		set[name] = k
	}
	return set, func() string {
		all, by := 0, 0
		var rest []string
		for _, name := range slices.Sorted(maps.Keys(calls)) {
			if all += calls[name]; own[name].Run != nil {
				by += calls[name]
			} else {
				rest = append(rest, name)
			}
		}
		text := fmt.Sprintf("computed %s of %s", terminal.Thousands(int64(by)), count(all, "operation"))
		if len(rest) > 0 {
			text += "; plain kernels computed " + strings.Join(rest, ", ")
		}
		return text
	}
}

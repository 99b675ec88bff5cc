package cli

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/krait-ml/krait/exec/cpu"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/kernels/reference"
	"github.com/krait-ml/krait/lab/check"
)

// references are the kernels that krait check --against runs a model by, by name. The tag gorgonia
// adds one.
var references = map[string]func() kernels.Set{
	"plain": func() kernels.Set { return reference.Kernels },
}

// against writes reference numbers of a model as other kernels give them, and returns the file,
// which done removes.
func against(ctx context.Context, dir, name string) (file string, done func(), err error) {
	set, ok := references[name]
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
	if err := check.Record(ctx, dir, &cpu.Device{Kernels: set()}, file); err != nil {
		done()
		return "", nil, err
	}
	return file, done, nil
}

package cli

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/krait-ml/krait/lab/bench"
)

// version is what --version says: of the module, the commit, and of Go.
func version() string {
	module := "(devel)"
	if info, ok := debug.ReadBuildInfo(); ok {
		module = cmp.Or(info.Main.Version, module)
	}
	return fmt.Sprintf("%s, commit %s, %s %s/%s", module, cmp.Or(bench.Revision(), "unknown"), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

package cli

import (
	"cmp"
	"fmt"
	"io"
	"runtime"

	"github.com/krait-ml/krait/internal/program"
	"github.com/krait-ml/krait/lab/bench"
	"github.com/spf13/cobra"
)

// versionReport describes the program: the module's version, its commit, and Go's.
type versionReport struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

func versionOf() versionReport {
	return versionReport{program.Version(), cmp.Or(bench.Revision(), "unknown"), runtime.Version(), runtime.GOOS, runtime.GOARCH}
}

func (v versionReport) String() string {
	return fmt.Sprintf("%s, commit %s, %s %s/%s", v.Version, v.Commit, v.Go, v.OS, v.Arch)
}

func newVersion() *cobra.Command {
	var out output
	c := &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Long:    `Version prints the version of Krait, its commit, and the version of Go that built it.`,
		Example: `  krait version --json`,
		Args:    takes(0, 0, ""),
		RunE: func(c *cobra.Command, _ []string) error {
			v := versionOf()
			return out.print(c, v, func(w io.Writer) { fmt.Fprintln(w, "krait version", v) })
		},
	}
	out.add(c)
	return c
}

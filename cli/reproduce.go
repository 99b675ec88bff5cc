package cli

import (
	"errors"
	"fmt"
	"os"

	"github.com/krait-ml/krait/internal/terminal"
	"github.com/krait-ml/krait/lab/reproduce"
	"github.com/spf13/cobra"
)

func newReproduce() *cobra.Command {
	var dir string
	var asJSON bool
	c := &cobra.Command{
		Use:   "reproduce [flags]",
		Short: "Reproduce the published evaluation on simulated hardware",
		Long: `Reproduce runs the evaluation of "Tensor parallelism for SSMs" on the virtual device and prints
a line for each published figure: the simulated value, the difference and its reason.
Throughput is batch × output / (TTFT + (output - 1) × TPOT), with the largest batch that fits
for each method; gains are over one GPU and over replicas on the same number of GPUs.

Runs are as in the paper: f32, whole prompts at once, unfused selective scans, NCCL's
algorithms, and kernels launched one by one. Nothing is fitted: hardware is that of the
profiles (docs/simulate.md).

-o DIR writes the report as Markdown with pictures, as in docs/reproduction. It also has, as
--json, a table of which assumption would explain which figure, and with which values.`,
		Example: `  krait reproduce
  krait reproduce -o docs/reproduction`,
		Args: takes(0, 0, "no argument"),
		RunE: func(c *cobra.Command, _ []string) error {
			if asJSON && dir != "" {
				return errors.New("--json prints the result and -o DIR writes Markdown: give one of them")
			}
			if dir != "" {
				if err := os.MkdirAll(dir, 0o755); err != nil { // not after a minute
					return err
				}
			}
			tell, end := terminal.Progress(c.ErrOrStderr(), "reproduce", "figures", false)
			r, err := reproduce.Run(c.Context(), tell)
			end()
			if err == nil && (asJSON || dir != "") {
				tell, end := terminal.Progress(c.ErrOrStderr(), "assumptions", "figures", false)
				err = r.Assume(c.Context(), tell)
				end()
			}
			switch {
			case err != nil:
				return err
			case asJSON:
				return writeJSON(c, "", r)
			case dir == "":
				r.Text(c.OutOrStdout())
				return nil
			}
			if err := r.Write(dir); err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "%d figures in %s\n", len(r.Lines), dir)
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON")
	c.Flags().StringVarP(&dir, "output", "o", "", "folder to write the report to, as Markdown and pictures")
	return c
}

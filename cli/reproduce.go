package cli

import (
	"fmt"

	"github.com/krait-ml/krait/lab/reproduce"
	"github.com/spf13/cobra"
)

func newReproduce() *cobra.Command {
	var dir string
	var asJSON bool
	c := &cobra.Command{
		Use:   "reproduce [flags]",
		Short: "Run the published evaluation on simulated hardware, and compare",
		Long: `Reproduce runs the evaluation of "Tensor parallelism for SSMs" on the virtual device: a
line for each published figure, with what is simulated, the difference and its reason.
Throughput is batch × output / (TTFT + (output - 1) × TPOT), with the largest batch that
each method has room for; gains are over one GPU and over replicas on as many GPUs.

Runs are as the paper's were: f32, whole prompts at once, selective scans in steps that
leave their tensors in memory, sums by NCCL's algorithms, kernels launched one by one.
Nothing is fitted: hardware is that of the profiles (docs/simulate.md).

--output writes the report as Markdown with pictures into a folder: that of
docs/reproduction is made so.`,
		Example: `  krait reproduce
  krait reproduce -o docs/reproduction`,
		Args: takes(0, 0, "no argument"),
		RunE: func(c *cobra.Command, _ []string) error {
			r, err := reproduce.Run(c.Context())
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
	c.Flags().StringVarP(&dir, "output", "o", "", "write the report into this folder, as Markdown and pictures")
	return c
}

package cli

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"

	"github.com/krait-ml/krait/cost"
	"github.com/krait-ml/krait/internal/files"
	"github.com/krait-ml/krait/lab/calibrate"
	"github.com/krait-ml/krait/passes"
	"github.com/spf13/cobra"
)

func newCalibrate() *cobra.Command {
	var o calibrate.Options
	var out string
	var check, quiet, asJSON bool
	c := &cobra.Command{
		Use:   "calibrate",
		Short: "Measure this machine's CPU for krait simulate",
		Long: `Calibrate measures how fast this machine's CPU runs Krait's kernels, in models of random
weights that it makes for that, and what steps and collectives cost beside them. It
writes them as the hardware profile local, which krait simulate --hw local reads. It
needs 700 MB on disk and the machine for itself, and takes some minutes: two to three on
two cores. Each model is measured in two rounds, of which the first quartile counts, since
other work of the machine comes and goes; in the second it says how long is left.

--check measures nothing new: it holds what the profile predicts for two models of other
sizes against what they take, by the first quartile of five runs.`,
		Example: `  krait calibrate
  krait calibrate --check
  krait simulate --like mamba-130m --hw local --tp 2`,
		Args: takes(0, 0, ""),
		RunE: func(c *cobra.Command, _ []string) error {
			for _, n := range o.Ranks {
				if n < 1 || n > passes.MaxRanks {
					return fmt.Errorf("--tp %d: 1 to %d ranks are possible", n, passes.MaxRanks)
				}
			}
			file := out
			if file == "" {
				var err error
				if file, err = cost.LocalFile(); err != nil {
					return err
				}
			}
			if !quiet {
				o.Tell = func(what string) { fmt.Fprintln(c.ErrOrStderr(), what) }
			}
			if check {
				return checked(c, file, o, asJSON)
			}
			p, err := calibrate.Run(c.Context(), o)
			if err != nil {
				return err
			}
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				return err
			}
			if err := files.Write(file, p.Text()); err != nil || quiet {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "%s: %.1f GB/s, %.0f GFLOP/s in f32, %d operations\n", visible(file), p.Memory.Bandwidth.Value/1e9, p.Compute["f32"].Peak.Value/1e9, len(p.Operations))
			return nil
		},
	}
	c.Flags().StringVarP(&out, "output", "o", "", "write the profile to this file, or check it (default: where --hw local finds it)")
	c.Flags().IntSliceVar(&o.Ranks, "tp", nil, "numbers of ranks to measure (default 1, and 2 where there are two processors)")
	c.Flags().IntVar(&o.Workers, "threads", 0, "goroutines per kernel, over all ranks (default: all cores)")
	c.Flags().BoolVar(&check, "check", false, "hold predictions against measurements")
	c.Flags().BoolVar(&o.Parts, "parts", false, "with --check: what each operation takes of a prompt, predicted and measured")
	c.Flags().StringVar(&o.Models, "models", "", "keep the models in this folder, and take those that are there (default: made anew, and removed)")
	c.Flags().BoolVar(&asJSON, "json", false, "with --check: print the result as JSON")
	c.Flags().BoolVarP(&quiet, "quiet", "q", false, "print no progress and no result")
	c.AddCommand(newCalibratePayload())
	return c
}

// checked prints predictions beside measurements.
func checked(c *cobra.Command, file string, o calibrate.Options, asJSON bool) error {
	p, err := cost.Find(file)
	if err != nil {
		return fmt.Errorf("%w; krait calibrate writes it", err)
	}
	list, err := calibrate.Check(c.Context(), p, o)
	if err != nil {
		return err
	}
	if asJSON {
		return writeJSON(c, "", list)
	}
	w := c.OutOrStdout()
	fmt.Fprintf(w, "%-12s %5s %7s  %10s %10s %6s  %10s %10s %6s\n", "model", "ranks", "prompt", "TTFT said", "took", "off", "TPOT said", "took", "off")
	for _, x := range list {
		fmt.Fprintf(w, "%-12s %5d %7d  %10s %10s %+5.0f%%  %10s %10s %+5.0f%%\n", x.Model, x.Ranks, x.Prompt,
			round(seconds(x.Predicted.TTFT)), round(seconds(x.Measured.TTFT)), off(x.Predicted.TTFT, x.Measured.TTFT),
			round(seconds(x.Predicted.TPOT)), round(seconds(x.Measured.TPOT)), off(x.Predicted.TPOT, x.Measured.TPOT))
		for _, part := range x.Parts {
			fmt.Fprintf(w, "  %-24s  %10s %10s %+5.0f%%\n", part.What, round(seconds(part.Predicted)), round(seconds(part.Measured)), off(part.Predicted, part.Measured))
		}
	}
	return nil
}

// off is by how many percent a prediction is more.
func off(said, took float64) float64 { return 100 * (said/cmp.Or(took, said) - 1) }

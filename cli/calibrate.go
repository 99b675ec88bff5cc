package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/krait-ml/krait/cost"
	"github.com/krait-ml/krait/internal/files"
	"github.com/krait-ml/krait/internal/terminal"
	"github.com/krait-ml/krait/lab/calibrate"
	"github.com/krait-ml/krait/passes"
	"github.com/spf13/cobra"
)

func newCalibrate() *cobra.Command {
	var o calibrate.Options
	from := modelArg{kind: "DIR"}
	var out string
	var check, quiet, asJSON bool
	c := &cobra.Command{
		Use:   "calibrate [flags] [DIR]",
		Short: "Measure this machine's CPU for krait simulate",
		Long: `Calibrate measures this machine's CPU: the speed of Krait's kernels, in models of random
weights that it makes, and the overhead of steps and collectives. It writes the hardware
profile local, which krait simulate --hw local uses. It needs 700 MB of disk, an idle machine
and about a minute. It measures all models in three passes, on new files each time, and averages
the middle half of steps.

With DIR it measures that model, too, and takes the operations that it has from it alone: the
profile then fits it best, since how fast weights are read depends on their shapes and on where
the system keeps the file.

--check writes nothing: it compares the profile's predictions for two models of other sizes,
or for DIR, with measurements, medians of three turns, beside the speed of memory just before.
With --runs 10 it does so ten times, and counts the rows that are within 15 %.`,
		Example: `  krait calibrate
  krait calibrate --check
  krait calibrate ~/models/mamba-130m
  krait simulate --like mamba-130m --hw local --tp 2`,
		Args: takes(0, 1, "one DIR"),
		RunE: func(c *cobra.Command, args []string) error {
			var err error
			if o.Model, err = from.take(c, args); err != nil {
				return err
			}
			for _, n := range o.Ranks {
				if n < 1 || n > passes.MaxRanks {
					return fmt.Errorf("--tp is %d; it must be from 1 to %d", n, passes.MaxRanks)
				}
			}
			if !check && (asJSON || o.Parts || o.Runs != 1) {
				return errors.New("--json, --parts and --runs are for --check: add --check, or leave them out")
			}
			if o.Runs < 1 {
				return fmt.Errorf("--runs is %d; it must be at least 1", o.Runs)
			}
			file := out
			if file == "" {
				var err error
				if file, err = cost.LocalFile(); err != nil {
					return err
				}
			}
			var end func()
			o.Progress, end = terminal.Progress(c.ErrOrStderr(), "calibrate", "steps", quiet)
			defer end()
			if check {
				return checkProfile(c, file, o, end, asJSON)
			}
			p, err := calibrate.Run(c.Context(), o)
			end()
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
	c.Flags().StringVarP(&out, "output", "o", "", "profile to write, or with --check to read (default: that of --hw local)")
	c.Flags().IntSliceVar(&o.Ranks, "tp", nil, "rank counts to measure (default 1, and 2 with two cores or more)")
	c.Flags().IntVar(&o.Workers, "threads", 0, "goroutines of kernels, over all ranks (default: all cores)")
	c.Flags().BoolVar(&check, "check", false, "compare predictions with measurements")
	c.Flags().BoolVar(&o.Parts, "parts", false, "also compare each operation of a prefill, with --check")
	c.Flags().IntVar(&o.Runs, "runs", 1, "runs of --check, one after the other")
	c.Flags().StringVar(&o.Models, "models", "", "folder that keeps the models for later runs (default: a temporary one)")
	c.Flags().BoolVar(&asJSON, "json", false, "print the result of --check as JSON")
	c.Flags().BoolVarP(&quiet, "quiet", "q", false, "print no progress and no result")
	c.AddCommand(newCalibratePayload(), newCalibrateImportance())
	return c
}

// checkProfile prints predictions beside measurements.
func checkProfile(c *cobra.Command, file string, o calibrate.Options, end func(), asJSON bool) error {
	p, err := cost.Find(file)
	if err != nil {
		return fmt.Errorf("%w; krait calibrate writes it", err)
	}
	list, err := calibrate.Check(c.Context(), p, o)
	end()
	if err != nil {
		return err
	}
	if asJSON {
		return writeJSON(c, "", list)
	}
	w := c.OutOrStdout()
	fmt.Fprintf(w, "%-12s %5s %7s %9s  %10s %10s %6s  %10s %10s %6s\n", "model", "ranks", "prompt", "reads", "TTFT pred.", "measured", "error", "TPOT pred.", "measured", "error")
	for _, x := range list {
		fmt.Fprintf(w, "%-12s %5d %7d %9s  %10s %10s %+5.0f%%  %10s %10s %+5.0f%%\n", x.Model, x.Ranks, x.Prompt, fmt.Sprintf("%.1f GB/s", x.Bytes/1e9),
			round(seconds(x.Predicted.TTFT)), round(seconds(x.Measured.TTFT)), excess(x.Predicted.TTFT, x.Measured.TTFT),
			round(seconds(x.Predicted.TPOT)), round(seconds(x.Measured.TPOT)), excess(x.Predicted.TPOT, x.Measured.TPOT))
		for _, part := range x.Parts {
			fmt.Fprintf(w, "  %-24s  %10s %10s %+5.0f%%\n", part.What, round(seconds(part.Predicted)), round(seconds(part.Measured)), excess(part.Predicted, part.Measured))
		}
	}
	printClose(w, list)
	return nil
}

// printClose counts the rows whose predictions are close.
func printClose(w io.Writer, list []calibrate.Comparison) {
	var rows, ttfts, tpots int
	for i := range list {
		ttft, tpot := list[i].Close()
		if ttft {
			ttfts++
		}
		if tpot {
			tpots++
		}
		if ttft && tpot {
			rows++
		}
	}
	fmt.Fprintf(w, "within %g %%: TTFT in %d and TPOT in %d of %s, both in %d (%.1f%%)\n", 100*calibrate.Close, ttfts, tpots, count(len(list), "row"), rows, 100*float64(rows)/float64(max(len(list), 1)))
}

// excess returns by how many percent a prediction exceeds the measurement.
func excess(predicted, measured float64) float64 {
	return 100 * (predicted/cmp.Or(measured, predicted) - 1)
}

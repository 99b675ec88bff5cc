package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/krait-ml/krait/internal/check"
	"github.com/spf13/cobra"
)

func newCheck() *cobra.Command {
	var o check.Options
	var device deviceFlags
	c := &cobra.Command{
		Use:   "check [flags] DIR",
		Short: "Compare a checkpoint with stored reference numbers",
		Long: `Check runs a checkpoint on the prompts of a file of reference numbers and
compares what the file has: logits, hidden states, states, the greedy
continuation and the logits of cached decoding. Every prompt is run as a batch,
each sequence alone, and in chunks. It prints a line per quantity with the
largest absolute difference over all of these and where it is, and exits with 1
when one is over the tolerance.

docs/check.md describes the file.`,
		Example: `  krait check testdata/golden/mamba-a
  krait check --tp 4 testdata/golden/falcon-mamba
  krait check --expected numbers.safetensors --tolerance 3e-4 ~/models/mamba-130m-hf`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			p := &checkPrinter{w: c.OutOrStdout()}
			var err error
			if o.Device, err = device.open(); err != nil {
				return err
			}
			ok, err := check.Run(c.Context(), args[0], o, p.line)
			if err != nil {
				return explained{err}
			}
			fmt.Fprintf(p.w, "\n%d passed, %d failed, %d not compared (tolerance %g)\n", p.passed, p.failed, p.skipped, o.Tolerance)
			if !ok {
				return errFailed
			}
			return nil
		},
	}
	c.Flags().StringVar(&o.Expected, "expected", "", "the file (default: DIR/expected.safetensors)")
	c.Flags().Float64Var(&o.Tolerance, "tolerance", 1e-4, "largest absolute difference that passes")
	c.Flags().IntSliceVar(&o.Chunks, "chunks", []int{1, 3, 16}, "also run prompts in chunks of these many tokens")
	device.add(c)
	shardingFlags(c, &o.Sharding)
	runningFlags(c, &o.Sharding)
	c.Flags().BoolVar(&o.Reference, "reference", false, "run the plain float64 kernels (slow)")
	return c
}

type checkPrinter struct {
	w                       io.Writer
	prompt                  string
	passed, failed, skipped int
}

func (p *checkPrinter) line(l check.Line) {
	if l.Prompt != p.prompt {
		fmt.Fprintf(p.w, "prompt %s\n", l.Prompt)
		p.prompt = l.Prompt
	}
	what, verdict := "", ""
	switch {
	case l.Skip != "":
		p.skipped++
		verdict = "not compared: " + l.Skip
	case l.Fail != "":
		p.failed++
		verdict = "FAIL: " + l.Fail
	default:
		p.passed++
		what, verdict = "equal", "ok"
	}
	if l.At != nil {
		what = fmt.Sprintf("%.3g at %s, %s", l.Max, strings.ReplaceAll(fmt.Sprint(l.At), " ", ","), l.Way)
	}
	fmt.Fprintf(p.w, "  %-32s %-44s %s\n", l.Quantity, what, verdict)
}

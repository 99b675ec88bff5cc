package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/internal/terminal"
	"github.com/krait-ml/krait/lab/check"
	"github.com/spf13/cobra"
)

func newCheck() *cobra.Command {
	var o check.Options
	var reference string
	var device deviceFlags
	var comm commFlags
	var out output
	from := modelArg{kind: "DIR", needed: true}
	c := &cobra.Command{
		Use:   "check [flags] DIR",
		Short: "Compare a checkpoint with reference numbers",
		Long: `Check runs a checkpoint on the prompts of a file of reference numbers and compares what the
file has: logits, hidden states, SSM states, the greedy continuation and the logits of cached
decoding. Every prompt runs as a batch, each sequence alone, and in chunks. It prints a line
per quantity with the largest absolute difference over all of these and its index, and exits
with status 1 if a difference exceeds the tolerance. docs/check.md describes the file.

--against needs no file: it runs two random prompts by kernels that are slow and simple, records
their numbers, and compares with these.`,
		Example: `  krait check testdata/golden/mamba-a
  krait check --tp 4 testdata/golden/falcon-mamba
  krait check --against plain --tp 2 ~/models/mamba-130m-hf
  krait check --expected numbers.safetensors --tolerance 3e-4 ~/models/mamba-130m-hf`,
		Args: takes(0, 1, "one DIR"),
		RunE: func(c *cobra.Command, args []string) error {
			dir, err := from.take(c, args)
			if err != nil {
				return err
			}
			on := modelFlags{device: device}
			on.options.Reference, on.options.Sharding = o.Reference, o.Sharding
			if comm.kind != "local" {
				on.device.only = severalProcesses
			}
			on.choose(c, dir, false)
			device = on.device
			if o.Device, err = device.open(hardwareName(c)); err != nil {
				return err
			}
			if o.Processes, err = comm.connect(c, device.name); err != nil {
				return err
			}
			o.Stated = !c.Flags().Changed("tolerance")
			if reference != "" {
				if o.Expected != "" || comm.kind != "local" {
					return errors.New("--against records its own numbers, in one process; leave out --expected and --comm")
				}
				var done func()
				if o.Expected, done, err = against(c, dir, reference); err != nil {
					return err
				}
				defer done()
			}
			if comm.follows() {
				return comm.follow(c.Context(), func() (*krait.Model, error) { return check.Open(dir, o) })
			}
			var end func()
			o.Progress, end = terminal.ByteProgress(c.ErrOrStderr(), "weights", false)
			defer end()
			o.Warn = func(w string) { end(); fmt.Fprintln(c.ErrOrStderr(), "warning:", printable(w)) }
			p := &checkReport{w: c.OutOrStdout()}
			var text bytes.Buffer
			if out.json {
				p.w = io.Discard
			} else if out.file != "" {
				p.w = &text
			}
			ok, err := check.Run(c.Context(), dir, o, func(l check.Line) { end(); p.line(l) })
			comm.opened = ok || err == nil
			if err != nil {
				return driverError{err}
			}
			p.end()
			if out.json || out.file != "" {
				err = out.print(c, p, func(w io.Writer) { w.Write(text.Bytes()) })
			}
			if err == nil && !ok {
				return errFailed
			}
			return err
		},
	}
	c.Flags().StringVar(&o.Expected, "expected", "", "file of reference numbers (default: DIR/expected.safetensors)")
	c.Flags().StringVar(&reference, "against", "", "compare with other kernels: plain (float64), or gorgonia if built with that tag")
	c.Flags().Float64Var(&o.Tolerance, "tolerance", 1e-4, "largest absolute difference that passes (default: the file's, or 0.0001)")
	c.Flags().Lookup("tolerance").DefValue = "0" // the help says the default
	c.Flags().IntSliceVar(&o.Chunks, "chunks", []int{1, 3, 16}, "also prefill in chunks of this many tokens")
	from.add(c)
	out.add(c)
	device.add(c)
	comm.add(c)
	shardingFlags(c, &o.Sharding)
	runningFlags(c, &o.Sharding)
	c.Flags().BoolVar(&o.Reference, "reference", false, "run the plain float64 kernels (slow)")
	return c
}

// checkReport prints lines as they come, and is all of them as JSON.
type checkReport struct {
	Tolerance float64     `json:"tolerance"`
	Passed    int         `json:"passed"`
	Failed    int         `json:"failed"`
	Skipped   int         `json:"not_compared"`
	Lines     []checkLine `json:"lines"`

	w      io.Writer
	prompt string
}

type checkLine struct {
	Prompt   string `json:"prompt"`
	Quantity string `json:"quantity"`
	Max      figure `json:"difference"` // null: not finite
	At       []int  `json:"at,omitempty"`
	Way      string `json:"way,omitempty"`
	Fail     string `json:"failed,omitempty"`
	Skip     string `json:"not_compared,omitempty"`
}

func (p *checkReport) line(l check.Line) {
	if l.Prompt != p.prompt {
		fmt.Fprintf(p.w, "prompt %s\n", visible(l.Prompt))
		p.prompt = l.Prompt
	}
	what, verdict := "", ""
	switch {
	case l.Skip != "":
		p.Skipped++
		verdict = "not compared: " + l.Skip
	case l.Fail != "":
		p.Failed++
		verdict = "FAIL: " + l.Fail
	default:
		p.Passed++
		what, verdict = "equal", "ok"
	}
	if l.At != nil {
		what = fmt.Sprintf("%.3g at %s, %s", l.Max, strings.ReplaceAll(fmt.Sprint(l.At), " ", ","), l.Way)
	}
	p.Tolerance = l.Tolerance
	p.Lines = append(p.Lines, checkLine{l.Prompt, l.Quantity, figure(l.Max), l.At, l.Way, l.Fail, l.Skip})
	fmt.Fprintf(p.w, "  %-32s %-44s %s\n", visible(l.Quantity), what, visible(verdict))
}

func (p *checkReport) end() {
	fmt.Fprintf(p.w, "\n%d passed, %d failed, %d not compared (tolerance %g)\n", p.Passed, p.Failed, p.Skipped, p.Tolerance)
}

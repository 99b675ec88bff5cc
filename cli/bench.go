package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/exec/cuda"
	"github.com/krait-ml/krait/internal/terminal"
	"github.com/krait-ml/krait/lab/bench"
	"github.com/krait-ml/krait/session/draft"
	"github.com/spf13/cobra"
)

func newBench() *cobra.Command {
	b := benchRun{modelFlags: &modelFlags{}}
	var profile profileFlags
	from := modelArg{kind: "DIR"}
	var force forceFlags
	var dp int
	c := &cobra.Command{
		Use:   "bench [flags] [DIR]",
		Short: "Measure the speed of a model",
		Long: `Bench measures, as medians: time to first token (TTFT), prefill tokens per second,
and the time of a decode step, which is one token for each sequence of the batch.

It prints the share of the roofline that each phase reaches. The roofline is the time to move
weights and state once at the measured memory bandwidth (a copy within a GPU's memory; on the CPU
a read loop in turns with the steps, the median share of all turns), and for prefill on the CPU
the time of its arithmetic at the measured f32 rate of multiply-adds in registers. On a GPU it
also counts launches and copies per step. All runs must give the same logits to the last bit;
the output says where they do not.

-o FILE also writes the measurements as JSON, for krait bench report. A name that ends in .jsonl
gets a line per measurement, appended as soon as it is made.`,
		Example: `  krait bench
  krait bench ~/models/mamba-2.8b-hf --device cuda --batch 1,8 --prompt 1024 -o out.json
  krait bench ~/models/mamba-2.8b-hf --device cuda --no-graphs --math bf16
  krait bench ~/models/mamba-130m --speculate ngram --force edited.go --prompt 1024 -n 512`,
		Args: takes(0, 1, "one DIR"),
		RunE: func(c *cobra.Command, args []string) error {
			dir, err := from.take(c, args)
			if err != nil {
				return err
			}
			if err := cmp.Or(b.check(), force.check(&b, dp), setReplicas(dp, b.modelFlags)); err != nil {
				return err
			}
			if profile.file != "" && dp > 1 {
				return errors.New("--profile records one model; leave out --dp")
			}
			b.options.Slots = bench.Share(slices.Max(b.batches), dp, 0)
			if err := profile.begin(c, b.modelFlags); err != nil {
				return err
			}
			defer b.close()
			for range dp {
				if err := b.open(c, dir); err != nil {
					return err
				}
			}
			if err := profile.opened(b.m); err != nil {
				return err
			}
			run := b.run
			if force.file != "" {
				run = func(c *cobra.Command) error { return b.speculate(c, &force) }
			}
			return cmp.Or(run(c), b.out.save(c, &b.file), profile.write(c, b.out.json))
		},
	}
	b.add(c)
	from.add(c)
	c.Flags().BoolVar(&b.o.NoCache, "no-cache", false, "prefill the whole sequence again for each token, without states")
	c.Flags().IntVar(&dp, "dp", 1, "data-parallel replicas that share the batch and the cores")
	profile.add(c)
	b.addSpeculate(c, draft.Off)
	force.add(c)
	expert(c, "no-cache", "speculate")
	c.AddCommand(newBenchKernels(), newBenchOps(), newBenchMeter(), newBenchPaired(), newBenchTrace(), newBenchReport())
	return c
}

// measurements says where measurements go: lines for people to standard output, and the file of
// krait bench report to -o FILE. --json swaps them: JSON to standard output, lines to standard
// error.
type measurements struct{ output }

func (o *measurements) add(c *cobra.Command) {
	c.Flags().BoolVar(&o.json, "json", false, "print the measurements as JSON; the text goes to standard error")
	c.Flags().StringVarP(&o.file, "output", "o", "", "also write the measurements as JSON to this file")
}

// lines is where lines for people go.
func (o *measurements) lines(c *cobra.Command) io.Writer {
	if o.json || o.file == "-" {
		return c.ErrOrStderr()
	}
	return c.OutOrStdout()
}

// appends reports whether each measurement becomes a line of FILE as soon as it is made.
func (o *measurements) appends() bool { return filepath.Ext(o.file) == ".jsonl" }

// take adds a measurement to f, and its line to -o FILE.jsonl.
func (o *measurements) take(f *bench.File, m bench.File) error {
	m.Environment = f.Environment
	f.Add(&m)
	if !o.appends() {
		return nil
	}
	return m.Append(o.file)
}

// save writes the measurements as JSON where a flag asks for it.
func (o *measurements) save(c *cobra.Command, f *bench.File) error {
	if o.file == "" && !o.json || o.appends() {
		return nil
	}
	return writeJSON(c, o.file, f)
}

// benchRun is a model to measure.
type benchRun struct {
	*modelFlags
	o       bench.Options
	batches []int
	out     measurements
	m       *krait.Model   // the last that was opened
	all     []*krait.Model // replicas
	file    bench.File
}

// add adds the flags of commands that measure steps.
func (b *benchRun) add(c *cobra.Command) {
	b.modelFlags.add(c)
	c.Flags().IntSliceVar(&b.batches, "batch", []int{1, 8}, "sequences per batch, or a list to measure in turn")
	c.Flags().IntVar(&b.o.Prompt, "prompt", 512, "tokens of each prompt")
	c.Flags().IntVar(&b.o.Chunk, "chunk", 512, "prompt tokens per prefill step and sequence; 0: all")
	c.Flags().IntVarP(&b.o.Tokens, "tokens", "n", 64, "tokens to generate per sequence")
	c.Flags().IntVar(&b.o.Repeat, "repeat", 5, "measured runs, after one warm-up run")
	b.out.add(c)
}

// check returns an error if a batch is empty.
func (b *benchRun) check() error {
	if len(b.batches) == 0 || slices.Min(b.batches) < 1 {
		return fmt.Errorf("--batch is %v; each must be at least 1", b.batches)
	}
	return nil
}

func (b *benchRun) close() {
	for _, m := range b.all {
		m.Close()
	}
}

// measureRoofline takes a second; scripts that do not look at the roofline replace it.
var measureRoofline = bench.MeasureRoofline

// open opens the model on a device whose launches are counted.
func (b *benchRun) open(c *cobra.Command, dir string) error {
	b.file.Environment = bench.Here(nil)
	b.device.prepare = func(d *cuda.Device) error {
		var err error
		b.file.Environment, err = bench.Watch(d, b.options.Sharding.Ranks, &b.o)
		return err
	}
	var err error
	if b.m, err = b.modelFlags.open(c, dir); err != nil {
		return err
	}
	if b.all = append(b.all, b.m); b.o.Counter == nil && len(b.all) == 1 {
		f := measureRoofline(b.options.Workers)
		b.o.Bandwidth, b.o.Rate, b.o.Read = f.Bytes, f.FLOPs, f.Read
		b.file.Environment.Measured(&f)
	}
	return err
}

// run measures the batches and prints a line for each.
func (b *benchRun) run(c *cobra.Command) error {
	w := b.out.lines(c)
	fmt.Fprintln(w, describe(b.m, &b.device)+beside(len(b.all)))
	printRoofline(w, &b.file.Environment)
	for _, b.o.Batch = range b.batches {
		var end func()
		b.o.Progress, end = terminal.Progress(c.ErrOrStderr(), fmt.Sprint("batch ", b.o.Batch), "steps", false)
		r, err := bench.MeasureReplicas(c.Context(), b.all, b.o)
		end()
		if err != nil {
			return driverError{err}
		}
		r.Device, r.Math, r.Graphs = b.device.name, b.device.options.Math, b.o.Counter != nil && !b.device.options.NoGraphs
		r.NoDependent = b.device.options.NoDependent
		printResult(w, r)
		if err := b.out.take(&b.file, bench.File{Results: []bench.Result{*r}}); err != nil {
			return err
		}
	}
	return nil
}

func printResult(w io.Writer, r *bench.Result) {
	fmt.Fprintf(w, "batch %d, prompt %d: TTFT %.4g ms, %.5g tokens/s of prompt; a step %.4g ms, %.5g tokens/s\n", r.Batch, r.Prompt, r.TTFT, r.Prefill, r.Step, r.Decode)
	if r.Launches > 0 {
		fmt.Fprintf(w, "  a step: %.0f launches and %.0f copies, %.4g µs of the host\n", r.Launches, r.Copies, r.Host)
	}
	if r.PromptShare > 0 {
		fmt.Fprintf(w, "  the prompts are %.4g GFLOP, which take %.4g ms: %.1f %% of the roofline\n", float64(r.FLOPs)/1e9, r.PromptRoofline, 100*r.PromptShare)
	}
	if r.Share > 0 {
		fmt.Fprintf(w, "  a step moves %s, which takes %.4g ms: %.1f %% of the roofline\n", driver.Bytes(r.Bytes), r.Roofline, 100*r.Share)
	}
	printReads(w, "  between steps", r.Reads)
	if !*r.Repeats {
		fmt.Fprintf(w, "  NOT REPEATABLE: runs gave different logits\n")
	}
}

// printReads prints the bandwidth of memory beside what was measured.
func printReads(w io.Writer, when string, reads bench.Spread) {
	if reads.Median > 0 {
		fmt.Fprintf(w, "%s memory read at %v GB/s\n", when, reads.GB())
	}
}

// printRoofline prints the bandwidth of memory and the rate of arithmetic.
func printRoofline(w io.Writer, e *bench.Environment) {
	switch {
	case e.Rate > 0:
		fmt.Fprintf(w, "%s read at %.1f GB/s and calculate at %.1f GFLOP/s, in %s\n", count(e.Threads, "thread"), e.Bandwidth/1e9, e.Rate/1e9, e.ISA)
	case e.Bandwidth > 0:
		fmt.Fprintf(w, "%s, memory copies at %.1f GB/s\n", e.GPU, e.Bandwidth/1e9)
	}
}

func newBenchReport() *cobra.Command {
	return &cobra.Command{
		Use:   "report FILE...",
		Short: "Print measurements as tables in Markdown",
		Long: `Report reads files written by krait bench -o or by scripts/gpu-suite/peers.py, and prints
them as tables in Markdown.`,
		Example: `  krait bench report results/*.json > results.md`,
		Args:    takes(1, -1, "at least one FILE of measurements"),
		RunE: func(c *cobra.Command, args []string) error {
			f, err := bench.Read(args)
			if err != nil {
				return err
			}
			bench.Report(c.OutOrStdout(), f)
			return nil
		},
	}
}

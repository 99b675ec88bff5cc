package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/cmd/krait/bench"
	"github.com/krait-ml/krait/cmd/krait/synth"
	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/exec/cuda"
	"github.com/krait-ml/krait/exec/devices"
	"github.com/spf13/cobra"
)

func newBench() *cobra.Command {
	var f modelFlags
	var o bench.Options
	var batches []int
	from := modelArg{kind: "DIR"}
	var out string
	c := &cobra.Command{
		Use:   "bench [flags] [DIR]",
		Short: "Measure how fast a model runs",
		Long: `Bench measures, as medians: the time from prompts to their first tokens, prompts'
tokens per second, and the time of a step, which is one token for each sequence.
On a GPU it also counts what the host launches per step, and says what share of
the time the device's memory needs at least to move weights and state once, at the
bandwidth that a copy within the device has here. Every run must give the same
logits to the last bit; the output tells where one does not.

bench kernels measures each operation by itself, bench report makes a table.`,
		Example: `  krait bench
  krait bench --model ~/models/mamba-2.8b-hf --device cuda --batch 1,8 --prompt 1024 --json out.json
  krait bench --model ~/models/mamba-2.8b-hf --device cuda --no-graphs --math bf16`,
		Args: takes(0, 1, "one DIR"),
		RunE: func(c *cobra.Command, args []string) error {
			dir, err := from.take(c, args)
			if err != nil {
				return err
			}
			if len(batches) == 0 || slices.Min(batches) < 1 {
				return fmt.Errorf("--batch %v: a batch has at least 1 sequence", batches)
			}
			f.options.Slots = slices.Max(batches)
			b := benchRun{modelFlags: &f, w: lines(c, out), o: o}
			if err := b.open(c, dir); err != nil {
				return err
			}
			defer b.m.Close()
			return cmp.Or(b.run(c.Context(), batches), save(c, out, &b.file))
		},
	}
	f.add(c)
	from.add(c)
	c.Flags().IntSliceVar(&batches, "batch", []int{1, 8}, "sequences; several are measured one after the other")
	c.Flags().IntVar(&o.Prompt, "prompt", 512, "tokens of each prompt")
	c.Flags().IntVar(&o.Chunk, "chunk", 512, "tokens of each prompt that go through the model at once; 0: all")
	c.Flags().IntVarP(&o.Tokens, "tokens", "n", 64, "tokens that each sequence goes on for")
	c.Flags().IntVar(&o.Repeat, "repeat", 5, "runs, after one that is not counted")
	c.Flags().StringVar(&out, "json", "", "also write the numbers to this file; - is standard output, and only they go there")
	c.AddCommand(newBenchKernels(), newBenchReport())
	return c
}

// lines is where lines for people go: not to standard output where JSON goes there.
func lines(c *cobra.Command, json string) io.Writer {
	if json == "-" {
		return c.ErrOrStderr()
	}
	return c.OutOrStdout()
}

// save writes what was measured, also where not all was.
func save(c *cobra.Command, path string, f *bench.File) error {
	if path == "" {
		return nil
	}
	return writeJSON(c, path, f)
}

// benchRun is a model under measurement.
type benchRun struct {
	*modelFlags
	w    io.Writer
	o    bench.Options
	m    *krait.Model
	file bench.File
}

// open opens the model on a device that is watched.
func (b *benchRun) open(c *cobra.Command, dir string) error {
	b.file.Environment = bench.Here(nil)
	b.device.prepare = func(d *cuda.Device) error {
		var err error
		b.file.Environment, err = bench.Watch(d, b.options.Sharding.Ranks, &b.o)
		return err
	}
	var err error
	b.m, err = b.modelFlags.open(c, dir)
	return err
}

// run measures the batches and prints a line for each.
func (b *benchRun) run(ctx context.Context, batches []int) error {
	fmt.Fprintln(b.w, describe(b.m, b.device.name))
	if b.o.Bandwidth > 0 {
		fmt.Fprintf(b.w, "%s, memory copies at %.1f GB/s\n", b.file.Environment.GPU, b.o.Bandwidth/1e9)
	}
	for _, b.o.Batch = range batches {
		r, err := bench.Measure(ctx, b.m, b.o)
		if err != nil {
			return explained{err}
		}
		r.Device, r.Math, r.Graphs = b.device.name, b.device.options.Math, b.o.Counter != nil && !b.device.options.NoGraphs
		b.file.Results = append(b.file.Results, *r)
		b.print(r)
	}
	return nil
}

func (b *benchRun) print(r *bench.Result) {
	fmt.Fprintf(b.w, "batch %d, prompt %d: TTFT %.4g ms, %.5g tokens/s of prompt; a step %.4g ms, %.5g tokens/s\n", r.Batch, r.Prompt, r.TTFT, r.Prefill, r.Step, r.Decode)
	if r.Launches > 0 {
		fmt.Fprintf(b.w, "  a step: %.0f launches and %.0f copies, %.4g µs of the host\n", r.Launches, r.Copies, r.Host)
	}
	if r.Share > 0 {
		fmt.Fprintf(b.w, "  a step moves %s, which takes %.4g ms: %.1f %% of the floor\n", driver.Bytes(r.Bytes), r.Floor, 100*r.Share)
	}
	if !*r.Repeats {
		fmt.Fprintf(b.w, "  NOT REPEATABLE: runs gave different logits\n")
	}
}

func newBenchKernels() *cobra.Command {
	var f synthFlags
	var o bench.KernelOptions
	var device, out string
	c := &cobra.Command{
		Use:   "kernels [flags]",
		Short: "Measure each operation of a model by itself, on a GPU",
		Long: `Kernels measures, for every operation of a model as it runs, fused, and every
shape that it has there, how long its kernels take, and how long the device needs at
least to move operands and results once, or to calculate. Numbers are random and no checkpoint
is needed: --like names a published size, --config a config.json.`,
		Example: `  krait bench kernels --device cuda --like mamba-2.8b --json kernels.json`,
		Args:    takes(0, 0, ""),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := f.read(c); err != nil {
				return err
			}
			if slices.ContainsFunc(o.Decode, func(n int) bool { return n < 1 }) || o.Batch < 0 || o.Prompt < 1 {
				return fmt.Errorf("--decode %v, --batch %d, --prompt %d: sizes are at least 1", o.Decode, o.Batch, o.Prompt)
			}
			g, err := synth.Graph(f.Options)
			if err != nil {
				return err
			}
			d, err := devices.Driver(device)
			if err != nil {
				return explained{err}
			}
			w := lines(c, out)
			o.Progress = func(k bench.Kernel) { printKernel(w, k) }
			file := bench.File{Environment: bench.Here(d)}
			file.Kernels, err = bench.Kernels(c.Context(), d, g, cmp.Or(f.Like, filepath.Base(filepath.Dir(f.From))), o)
			err = cmp.Or(err, save(c, out, &file))
			switch {
			case err != nil:
				return explained{err}
			case slices.ContainsFunc(file.Kernels, func(k bench.Kernel) bool { return k.Error != "" }):
				return errFailed // its line says how
			}
			return nil
		},
	}
	f.add(c)
	c.Flags().StringVar(&f.DType, "dtype", "bf16", "format of the weights: f32, bf16 or f16")
	c.Flags().StringVar(&device, "device", "cuda", "cuda or cuda-sim")
	c.Flags().IntSliceVar(&o.Decode, "decode", []int{1, 8}, "sequences that have a token each")
	c.Flags().IntVar(&o.Batch, "batch", 8, "prompts; 0: none")
	c.Flags().IntVar(&o.Prompt, "prompt", 4096, "tokens of each prompt")
	c.Flags().StringVar(&out, "json", "", "also write the numbers to this file; - is standard output, and only they go there")
	return c
}

func printKernel(w io.Writer, k bench.Kernel) {
	if k.Error != "" {
		fmt.Fprintf(w, "%-16s %-16s %-44s failed: %s\n", k.Phase, k.Op, k.Name, k.Error)
		return
	}
	fmt.Fprintf(w, "%-16s %-16s %-44s %9.4g µs, floor %9.4g (%s), %5.1f %%  %s\n", k.Phase, k.Op, k.Name, k.Time, k.Floor, k.Bound, 100*k.Share, k.Launch)
}

func newBenchReport() *cobra.Command {
	return &cobra.Command{
		Use:     "report FILE...",
		Short:   "Write files of measurements as a table in Markdown",
		Long:    `Report joins files that --json wrote, and those of scripts/gpu-suite/peers.py, and writes tables in Markdown to standard output.`,
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

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/checkpoint/synth"
	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/exec/cuda"
	"github.com/krait-ml/krait/exec/devices"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels/cpu"
	"github.com/krait-ml/krait/lab/bench"
	"github.com/spf13/cobra"
)

func newBench() *cobra.Command {
	var f modelFlags
	var o bench.Options
	var batches []int
	from := modelArg{kind: "DIR"}
	var out string
	var dp int
	var pair pairedFlags
	var trace traceFlags
	var meter meterFlags
	var ops opsFlags
	var profile profileFlags
	c := &cobra.Command{
		Use:   "bench [flags] [DIR]",
		Short: "Measure how fast a model runs",
		Long: `Bench measures, as medians: the time from prompts to their first tokens, prompts'
tokens per second, and the time of a step, which is one token for each sequence.
Beside them stands what share of the time memory needs at least to move weights and
state once, at the bandwidth measured in the same run: by a copy within a GPU's
memory, by a loop that reads on the CPU. There prompts have a roofline, too: their
arithmetic at the rate of a loop that multiplies and adds f32 in registers. On a GPU it
also counts what the host launches per step. Every run must give the same
logits to the last bit; the output tells where one does not.

With --paired it measures a peer, llama.cpp, on the same models, in turns, and prints
ratios of medians: Krait's tokens per second to the peer's. DIR has its programs in bin/
(llama-bench, llama-batched-bench), its models as gguf/NAME-TYPE.gguf, and the folders
that they were made from as hf/NAME-TYPE. Sequences of a batch have an eighth of the
prompt, and go on half as long. With other work on the machine ratios say little.

With --trace it replays requests, which krait cache-sim also reads and krait trace makes, and
measures the time from a request's arrival to its first token, and tokens of output per
second. --batch requests run at the same time, others wait. Token ids that are not in the
vocabulary stand for tokens that are drawn for them, and outputs are fed as the trace has
them. With --prefix-cache it does so with a cache and without, --rounds times, in turns.

With --meter, on the simulated GPU, it measures nothing: it counts what a step of prompts
and a step of a token each launch and move, kernel by kernel, against the least that they
could, and models times for --hw (docs/cuda.md). It needs no weights: a folder with
config.json will do, or --like with a published size.

With --ops it measures, in place of whole steps, each operation where it runs in one; with
--hw and a GPU for each rank, collectives beside what the links of that profile should take.

bench kernels measures each operation by itself, bench report makes a table.`,
		Example: `  krait bench
  krait bench --model ~/models/mamba-2.8b-hf --device cuda --batch 1,8 --prompt 1024 --json out.json
  krait bench --model ~/models/mamba-2.8b-hf --device cuda --no-graphs --math bf16
  krait bench --paired ~/peer --only mamba-130m-bf16 --batch 16
  krait bench --device cuda-sim --meter --like mamba-2.8b --batch 1 --prompt 2048
  krait bench --trace chat.jsonl --speed 0 --batch 1 --prefix-cache 64MiB --rounds 5`,
		Args: takes(0, 1, "one DIR"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := trace.check(c, pair.rounds); err != nil {
				return err
			}
			if f.comm.kind != "local" && (c.Flags().Changed("paired") || c.Flags().Changed("trace")) {
				return errors.New("--paired and --trace open several models in turns, with all ranks in this process: leave out --comm")
			}
			if profile.file != "" && (c.Flags().Changed("paired") || c.Flags().Changed("trace")) {
				return errors.New("--profile is of what bench measures by itself; leave out --paired and --trace")
			}
			if err := cmp.Or(meter.check(c), ops.check(c)); err != nil {
				return err
			}
			if meter.on {
				return meter.run(c, args, &f, from, batches, o.Prompt, out)
			}
			if c.Flags().Changed("paired") {
				return pair.run(c, args, &f, &o, batches, out)
			}
			dir, err := from.take(c, args)
			if err != nil {
				return err
			}
			if c.Flags().Changed("trace") {
				return trace.run(c, &f, dir, batches, pair.rounds, out)
			}
			if len(batches) == 0 || slices.Min(batches) < 1 {
				return fmt.Errorf("--batch %v: a batch has at least 1 sequence", batches)
			}
			if err := replicated(dp, &f); err != nil {
				return err
			}
			if profile.file != "" && dp > 1 {
				return errors.New("--profile is of one model; leave out --dp")
			}
			f.options.Slots = bench.Share(slices.Max(batches), dp, 0)
			b := benchRun{modelFlags: &f, w: lines(c, out), o: o}
			if ops.on {
				return ops.run(c, &b, dir, batches, out)
			}
			if err := profile.begin(c, &f); err != nil {
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
			return cmp.Or(b.run(c.Context(), batches), save(c, out, &b.file), profile.write(c, out == "-"))
		},
	}
	f.add(c)
	from.add(c)
	c.Flags().IntSliceVar(&batches, "batch", []int{1, 8}, "sequences; several are measured one after the other")
	c.Flags().IntVar(&o.Prompt, "prompt", 512, "tokens of each prompt")
	c.Flags().IntVar(&o.Chunk, "chunk", 512, "tokens of each prompt that go through the model at once; 0: all")
	c.Flags().IntVarP(&o.Tokens, "tokens", "n", 64, "tokens that each sequence goes on for")
	c.Flags().BoolVar(&o.NoCache, "no-cache", false, "read the whole text again for every token, as without states")
	c.Flags().IntVar(&dp, "dp", 1, "replicas that share the batch, data parallel, and the machine's cores")
	c.Flags().IntVar(&o.Repeat, "repeat", 5, "runs, after one that is not counted")
	c.Flags().StringVar(&out, "json", "", "also write the numbers to this file; - is standard output, and only they go there")
	pair.add(c)
	trace.add(c)
	profile.add(c)
	meter.add(c)
	ops.add(c)
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
	m    *krait.Model   // the last that was opened
	all  []*krait.Model // replicas
	file bench.File
}

func (b *benchRun) close() {
	for _, m := range b.all {
		m.Close()
	}
}

// measureRoofline takes a second; scripts that do not check the roofline get a fixed one.
var measureRoofline = bench.MeasureRoofline

// open opens the model on a device that is watched.
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
		b.o.Bandwidth, b.o.Rate = f.Bytes, f.FLOPs
		b.file.Environment.Measured(&f)
	}
	return err
}

// run measures the batches and prints a line for each.
func (b *benchRun) run(ctx context.Context, batches []int) error {
	fmt.Fprintln(b.w, describe(b.m, b.device.name)+beside(len(b.all)))
	printRoofline(b.w, &b.file.Environment)
	for _, b.o.Batch = range batches {
		r, err := bench.MeasureReplicas(ctx, b.all, b.o)
		if err != nil {
			return explained{err}
		}
		r.Device, r.Math, r.Graphs = b.device.name, b.device.options.Math, b.o.Counter != nil && !b.device.options.NoGraphs
		r.NoDependent = b.device.options.NoDependent
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
	if r.PromptShare > 0 {
		fmt.Fprintf(b.w, "  the prompts are %.4g GFLOP, which take %.4g ms: %.1f %% of the roofline\n", float64(r.FLOPs)/1e9, r.PromptRoofline, 100*r.PromptShare)
	}
	if r.Share > 0 {
		fmt.Fprintf(b.w, "  a step moves %s, which takes %.4g ms: %.1f %% of the roofline\n", driver.Bytes(r.Bytes), r.Roofline, 100*r.Share)
	}
	if !*r.Repeats {
		fmt.Fprintf(b.w, "  NOT REPEATABLE: runs gave different logits\n")
	}
}

// printRoofline says what memory and processors do at best.
func printRoofline(w io.Writer, e *bench.Environment) {
	switch {
	case e.Rate > 0:
		fmt.Fprintf(w, "%s read at %.1f GB/s and calculate at %.1f GFLOP/s, in %s\n", count(e.Threads, "thread"), e.Bandwidth/1e9, e.Rate/1e9, e.ISA)
	case e.Bandwidth > 0:
		fmt.Fprintf(w, "%s, memory copies at %.1f GB/s\n", e.GPU, e.Bandwidth/1e9)
	}
}

func newBenchKernels() *cobra.Command {
	var f synthFlags
	var o bench.KernelOptions
	var device, out string
	var threads int
	c := &cobra.Command{
		Use:   "kernels [flags]",
		Short: "Measure each operation of a model by itself",
		Long: `Kernels measures, for every operation of a model as it runs, fused, and every
shape that it has there, how long its kernels take, and how long the device needs at
least to move operands and results once, or to calculate. Numbers are random and no checkpoint
is needed: --like names a published size, --config a config.json. Operands are packed, and
not in a cache, before every run.

On the CPU the prompt is one of 512 tokens where flags do not say otherwise.`,
		Example: `  krait bench kernels --device cuda --like mamba-2.8b --json kernels.json
  krait bench kernels --device cpu --like mamba-130m --decode 1,16`,
		Args: takes(0, 0, ""),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := f.read(c); err != nil {
				return err
			}
			if device == "cpu" {
				unless(c, "batch", func() { o.Batch = 1 })
				unless(c, "prompt", func() { o.Prompt = 512 })
			}
			if slices.ContainsFunc(o.Decode, func(n int) bool { return n < 1 }) || o.Batch < 0 || o.Prompt < 1 || o.Repeat < 1 || threads < 0 {
				return fmt.Errorf("--decode %v, --batch %d, --prompt %d, --repeat %d, --threads %d: sizes are at least 1", o.Decode, o.Batch, o.Prompt, o.Repeat, threads)
			}
			g, err := synth.Graph(f.Options)
			if err != nil {
				return err
			}
			w := lines(c, out)
			o.Progress = func(k bench.Kernel) { printKernel(w, k) }
			var file bench.File
			model := cmp.Or(f.Like, filepath.Base(filepath.Dir(f.From)))
			if device == "cpu" {
				err = cpuKernels(c.Context(), w, &file, g, model, threads, o)
			} else {
				err = gpuKernels(c.Context(), &file, g, model, device, o)
			}
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
	c.Flags().StringVar(&device, "device", "cuda", "cpu, cuda or cuda-sim")
	c.Flags().IntVar(&threads, "threads", 0, "on the CPU, goroutines per kernel (default: all cores)")
	c.Flags().IntVar(&o.Repeat, "repeat", 10, "on the CPU, runs of each, after one that is not counted")
	c.Flags().IntSliceVar(&o.Decode, "decode", []int{1, 8}, "sequences that have a token each")
	c.Flags().IntVar(&o.Batch, "batch", 8, "prompts; 0: none")
	c.Flags().IntVar(&o.Prompt, "prompt", 4096, "tokens of each prompt")
	c.Flags().StringVar(&out, "json", "", "also write the numbers to this file; - is standard output, and only they go there")
	return c
}

// unless calls f where a flag was not given.
func unless(c *cobra.Command, flag string, f func()) {
	if !c.Flags().Changed(flag) {
		f()
	}
}

func gpuKernels(ctx context.Context, file *bench.File, g *graph.Graph, model, device string, o bench.KernelOptions) error {
	d, err := devices.Driver(device)
	if err != nil {
		return err
	}
	file.Environment = bench.Here(d)
	file.Kernels, err = bench.Kernels(ctx, d, g, model, o)
	return err
}

func cpuKernels(ctx context.Context, w io.Writer, file *bench.File, g *graph.Graph, model string, threads int, o bench.KernelOptions) error {
	isa, err := cpu.ChosenISA()
	if err != nil {
		return err
	}
	f := measureRoofline(threads)
	file.Environment = bench.Here(nil)
	file.Environment.Measured(&f)
	printRoofline(w, &file.Environment)
	file.Kernels, err = bench.CPUKernels(ctx, isa, f, g, model, o)
	return err
}

func printKernel(w io.Writer, k bench.Kernel) {
	if k.Error != "" {
		fmt.Fprintf(w, "%-16s %-24s %-44s failed: %s\n", k.Phase, k.Op, k.Name, k.Error)
		return
	}
	fmt.Fprintf(w, "%-16s %-24s %-44s %9.4g µs, %10s, roofline %9.4g (%s), %5.1f %%  %s\n", k.Phase, k.Op, k.Name, k.Time, driver.Bytes(k.Bytes), k.Roofline, k.Bound, 100*k.Share, strings.TrimSpace(k.Way+" "+k.Launch))
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

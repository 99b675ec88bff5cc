package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/krait-ml/krait/checkpoint/synth"
	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/exec/devices"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels/cpu"
	"github.com/krait-ml/krait/lab/bench"
	"github.com/spf13/cobra"
)

func newBenchKernels() *cobra.Command {
	var f synthFlags
	var o bench.KernelOptions
	var device string
	var out measurements
	var threads int
	c := &cobra.Command{
		Use:   "kernels [flags]",
		Short: "Measure each operation of a model by itself",
		Long: `Kernels measures every operation of a model after fusion, in every shape that the model
uses: the time of its kernels, and the roofline: the time to move operands and results once,
or to compute, whichever is longer. Weights are random: --like names a published size, --config a
config.json. Operands are packed and evicted from caches before every run. On the CPU a read loop
does that, and the share is the median of those by the bandwidth beside each run.

On the CPU the default is one prompt of 512 tokens.`,
		Example: `  krait bench kernels --device cuda --like mamba-2.8b -o kernels.json
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
				return fmt.Errorf("--decode %v, --prompt %d and --repeat %d must be at least 1, --batch %d and --threads %d not negative", o.Decode, o.Prompt, o.Repeat, o.Batch, threads)
			}
			g, err := synth.Graph(f.Options)
			if err != nil {
				return err
			}
			w := out.lines(c)
			var file bench.File
			var lost error // of a line
			o.Progress = func(k bench.Kernel) {
				printKernel(w, k)
				lost = cmp.Or(lost, out.take(&file, bench.File{Kernels: []bench.Kernel{k}}))
			}
			model := cmp.Or(f.Like, filepath.Base(filepath.Dir(f.From)))
			if device == "cpu" {
				err = cpuKernels(c.Context(), w, &file, g, model, threads, o)
			} else {
				err = gpuKernels(c.Context(), &file, g, model, device, o)
			}
			err = cmp.Or(err, lost, out.save(c, &file))
			switch {
			case err != nil:
				return driverError{err}
			case slices.ContainsFunc(file.Kernels, func(k bench.Kernel) bool { return k.Error != "" }):
				return errFailed // its line says how
			}
			return nil
		},
	}
	f.add(c)
	c.Flags().StringVar(&f.DType, "dtype", "bf16", "weight format: f32, bf16 or f16")
	c.Flags().StringVar(&device, "device", "cuda", "device: cpu, cuda or cuda-sim")
	c.Flags().IntVar(&threads, "threads", 0, "goroutines of CPU kernels (default: all cores)")
	c.Flags().IntVar(&o.Repeat, "repeat", 10, "measured runs on the CPU, after one warm-up run")
	c.Flags().IntSliceVar(&o.Decode, "decode", []int{1, 8}, "batch sizes of decode steps")
	c.Flags().IntVar(&o.Batch, "batch", 8, "prompts of a prefill step; 0: no prefill")
	c.Flags().IntVar(&o.Prompt, "prompt", 4096, "tokens of each prompt")
	out.add(c)
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
	_, err = bench.Kernels(ctx, d, g, model, o)
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
	list, err := bench.CPUKernels(ctx, isa, f, g, model, o)
	printReads(w, "between runs", bench.ReadsOf(list))
	return err
}

func printKernel(w io.Writer, k bench.Kernel) {
	if k.Error != "" {
		fmt.Fprintf(w, "%-16s %-24s %-44s failed: %s\n", k.Phase, k.Op, k.Name, k.Error)
		return
	}
	fmt.Fprintf(w, "%-16s %-24s %-44s %9.4g µs, %10s, roofline %9.4g (%s), %5.1f %%  %s\n", k.Phase, k.Op, k.Name, k.Time, driver.Bytes(k.Bytes), k.Roofline, k.Bound, 100*k.Share, strings.TrimSpace(k.Way+" "+k.Launch))
}

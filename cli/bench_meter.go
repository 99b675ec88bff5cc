package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/krait-ml/krait/cost"
	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/internal/terminal"
	"github.com/krait-ml/krait/lab/bench"
	"github.com/spf13/cobra"

	kernels "github.com/krait-ml/krait/kernels/cuda"
)

// meterHardware is the default hardware profile of modelled times.
const meterHardware = "h100-nvlink"

// meterFlags are the flags of krait bench meter.
type meterFlags struct {
	from    graphArg
	batches []int
	device  string
	math    string
	o       bench.MeterOptions
	out     measurements
}

func newBenchMeter() *cobra.Command {
	f := meterFlags{from: newGraphArg()}
	c := &cobra.Command{
		Use:   "meter [flags] [DIR | FILE.ir]",
		Short: "Count launches and bytes on the simulated GPU",
		Long: `Meter runs the kernels of a prefill and a decode step on the simulated GPU. It counts launches
and bytes moved, kernel by kernel, against the lower bound, and models times for --hw; it
measures no time (docs/cuda.md). It needs no weights: a folder with config.json is enough, or
--like with a published size.`,
		Example: `  krait bench meter --like mamba-2.8b --batch 1 --prompt 2048
  krait bench meter ~/models/jamba --hw a100-nvlink --math bf16 -o meter.json`,
		Args: takes(0, 1, "one DIR or FILE.ir"),
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, args) },
	}
	f.from.add(c)
	f.from.addDType(c)
	shardingFlags(c, &f.o.Sharding)
	ofHardware(c, meterHardware)
	c.Flags().StringVar(&f.device, "device", "cuda-sim", "device: cuda-sim")
	hide(c, "device", "tp", "strategy", "place", "payload", "phase", "budget", "calibration", "overlap") // one rank
	c.Flags().StringVar(&f.math, "math", "f32", "precision of matrix products: f32 or bf16")
	c.Flags().IntSliceVar(&f.batches, "batch", []int{1, 8}, "sequences per batch, or a list to count in turn")
	c.Flags().IntVar(&f.o.Prompt, "prompt", 512, "tokens of each prompt")
	c.Flags().BoolVar(&f.o.NoGraphs, "no-graphs", false, "launch kernels one by one, without CUDA graphs")
	c.Flags().BoolVar(&f.o.Whole, "whole", false, "simulate all blocks of all launches (small models only)")
	f.out.add(c)
	return c
}

func (f *meterFlags) run(c *cobra.Command, args []string) error {
	maths := map[string]kernels.Math{"f32": kernels.F32, "bf16": kernels.BF16}
	math, ok := maths[f.math]
	switch {
	case f.device != "cuda-sim":
		return errors.New("bench meter counts on the simulated GPU: give --device cuda-sim, or leave out --device")
	case c.Flags().Changed("tp"):
		return errors.New("bench meter counts steps of one rank; leave out --tp")
	case !ok:
		return fmt.Errorf("--math is %q; it must be f32 or bf16", f.math)
	case len(f.batches) == 0 || slices.Min(f.batches) < 1:
		return fmt.Errorf("--batch is %v; each must be at least 1", f.batches)
	}
	p, err := cost.Find(cmp.Or(hardwareName(c), meterHardware))
	if err != nil {
		return err
	}
	g, path, err := f.from.read(c, args)
	if err != nil {
		return err
	}
	w := f.out.lines(c)
	file := bench.File{Environment: bench.Environment{Commit: bench.Revision()}}
	f.o.Profile, f.o.Math = p, math
	for _, f.o.Batch = range f.batches {
		var end func()
		f.o.Progress, end = terminal.Progress(c.ErrOrStderr(), fmt.Sprint("batch ", f.o.Batch), "steps", false)
		r, err := interruptible(c, "", func() (*bench.MeterResult, error) { return bench.Meter(c.Context(), g, f.o) })
		end()
		if err != nil {
			return driverError{err}
		}
		r.Model = f.from.title(path, g)
		printMetered(w, r, p)
		if err := f.out.take(&file, bench.File{Metered: []*bench.MeterResult{r}}); err != nil {
			return err
		}
	}
	return f.out.save(c, &file)
}

func printMetered(w io.Writer, m *bench.MeterResult, p *cost.Profile) {
	fmt.Fprintf(w, "%s on cuda-sim, math %s: counted; times are modelled for %s\n", m.Model, m.Math, p.About)
	for i := range m.Phases {
		printMeteredPhase(w, &m.Phases[i])
	}
	fmt.Fprintf(w, "\ncompiled by the driver on first use: %d kernels of %d instructions, modelled %.1f s\n", m.Compiled, m.Instrs, m.Compiling)
}

func printMeteredPhase(w io.Writer, p *bench.MeterPhase) {
	fmt.Fprintf(w, "\n%s: %d launches; with copies, a chain of %d\n", p.Phase, p.Launches, p.Chain)
	for _, l := range p.Layers {
		fmt.Fprintf(w, "  %s as %s: %d launches and %s each\n", count(l.Count, "layer"), l.First, l.Launches, driver.Bytes(l.Bytes))
	}
	fmt.Fprintf(w, "  moves %s, least is %s: %.3f times as much; what operations read and write once is %s\n", driver.Bytes(p.Moved()), driver.Bytes(p.Least), p.Over, driver.Bytes(p.Operands))
	fmt.Fprintf(w, "  modelled: %.4g ms; least bytes or arithmetic take %.4g ms: %.1f %% of the roofline\n", 1e3*p.Modelled, 1e3*p.Roofline, 100*p.Share)
	fmt.Fprintf(w, "  waves of blocks fill %s of the multiprocessors, by modelled time, without libraries\n", share(p.Filled))
	fmt.Fprintf(w, "  %-28s %8s %8s %7s %9s %9s %9s %8s %7s %7s %10s  %s\n", "kernel", "launches", "blocks", "waves", "loaded", "stored", "asked", "sectors", "banks", "occ.", "modelled", "bound by")
	for i := range p.Kernels {
		k := &p.Kernels[i]
		fmt.Fprintf(w, "  %-28s %8d %8d %7s %9s %9s %9s %8s %7s %7s %7.1f µs  %s\n", k.Kernel, k.Launches, k.Blocks, number(k.Waves), driver.Bytes(k.Loaded), driver.Bytes(k.Stored),
			driver.Bytes(k.Asked), times(k.Sectors, k.LeastSectors), times(k.Passes, k.LeastPasses), share(k.Occupancy), 1e6*k.Modelled, k.Bound)
	}
}

// share writes a share in percent; 0 stands for an unknown one.
func share(v float64) string {
	if v == 0 {
		return "–"
	}
	return fmt.Sprintf("%.0f %%", 100*v)
}

// number writes a number with one digit; 0 stands for an unknown one.
func number(v float64) string {
	if v == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f", v)
}

// times writes the ratio of a count to its lower bound.
func times(n, least int64) string {
	if least == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f", float64(n)/float64(least))
}

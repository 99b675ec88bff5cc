package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/krait-ml/krait/cost"
	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/lab/bench"
	"github.com/spf13/cobra"

	kernels "github.com/krait-ml/krait/kernels/cuda"
)

// meterFlags are those of what is counted in place of being measured.
type meterFlags struct {
	on, whole   bool
	like, dtype string
}

// meterHardware is what times are modelled for where nothing is said.
const meterHardware = "h100-nvlink"

func (f *meterFlags) add(c *cobra.Command) {
	c.Flags().BoolVar(&f.on, "meter", false, "count what kernels launch and move, on the simulated GPU, in place of measuring; no weights are needed")
	c.Flags().StringVar(&f.like, "like", "", "with --meter: a published size instead of DIR, as krait synth has them")
	c.Flags().StringVar(&f.dtype, "dtype", "", "with --meter: format of the weights: f32, bf16 or f16 (default: as the model has them)")
	c.Flags().BoolVar(&f.whole, "whole", false, "with --meter: interpret all blocks of all launches: for small models")
	c.Flags().Lookup("hw").Usage += "; with --meter what times are modelled for (default " + meterHardware + ")"
}

// check refuses what goes with another.
func (f *meterFlags) check(c *cobra.Command) error {
	for _, name := range []string{"like", "dtype", "whole"} {
		if !f.on && c.Flags().Changed(name) {
			return fmt.Errorf("--%s is for --meter", name)
		}
	}
	for _, name := range []string{"paired", "trace", "dp", "profile", "no-cache", "comm", "tp"} {
		if f.on && c.Flags().Changed(name) {
			return fmt.Errorf("--meter counts steps of one rank; leave out --%s", name)
		}
	}
	return nil
}

func (f *meterFlags) run(c *cobra.Command, args []string, m *modelFlags, from modelArg, batches []int, prompt int, out string) error {
	maths := map[string]kernels.Math{"": kernels.F32, "f32": kernels.F32, "bf16": kernels.BF16}
	math, ok := maths[m.device.options.Math]
	switch {
	case m.device.name != "cuda-sim":
		return errors.New("--meter counts on the simulated GPU: give --device cuda-sim")
	case !ok:
		return fmt.Errorf("--math %q: there are f32 and bf16", m.device.options.Math)
	case len(batches) == 0 || slices.Min(batches) < 1:
		return fmt.Errorf("--batch %v: a batch has at least 1 sequence", batches)
	}
	p, err := cost.Find(cmp.Or(hardwareName(c), meterHardware))
	if err != nil {
		return err
	}
	s := simulateFlags{from: from, like: f.like, dtype: f.dtype}
	g, err := s.graph(c, args)
	if err != nil {
		return err
	}
	path, err := from.take(c, args)
	if err != nil {
		return err
	}
	w := lines(c, out)
	var list []*bench.MeterResult
	for _, n := range batches {
		r, err := bench.Meter(c.Context(), g, bench.MeterOptions{Batch: n, Prompt: prompt, Profile: p, Math: math,
			Sharding: m.options.Sharding, NoGraphs: m.device.options.NoGraphs, Whole: f.whole})
		if err != nil {
			return explained{err}
		}
		r.Model = cmp.Or(f.like, nameOf(path, g))
		printMetered(w, r, p)
		list = append(list, r)
	}
	if out == "" {
		return nil
	}
	return writeJSON(c, out, bench.File{Environment: bench.Environment{Commit: bench.Revision()}, Metered: list})
}

func printMetered(w io.Writer, m *bench.MeterResult, p *cost.Profile) {
	fmt.Fprintf(w, "%s on cuda-sim, math %s: counted; times are modelled for %s, none is measured\n", m.Model, m.Math, p.About)
	for i := range m.Phases {
		printMeteredPhase(w, &m.Phases[i])
	}
	fmt.Fprintf(w, "\ncompiled by the driver at the first time: %d kernels of %d instructions, modelled %.1f s\n", m.Compiled, m.Instrs, m.Compiling)
}

func printMeteredPhase(w io.Writer, p *bench.MeterPhase) {
	fmt.Fprintf(w, "\n%s: %d launches; with copies, a chain of %d\n", p.Phase, p.Launches, p.Chain)
	for _, l := range p.Layers {
		fmt.Fprintf(w, "  %s as %s: %d launches and %s each\n", count(l.Count, "layer"), l.First, l.Launches, driver.Bytes(l.Bytes))
	}
	fmt.Fprintf(w, "  moves %s, least is %s: %.3f times as much; what operations read and write once is %s\n", driver.Bytes(p.Moved()), driver.Bytes(p.Least), p.Over, driver.Bytes(p.Operands))
	fmt.Fprintf(w, "  modelled: %.4g ms; least bytes or arithmetic take %.4g ms: %.1f %% of the roofline\n", 1e3*p.Modelled, 1e3*p.Roofline, 100*p.Share)
	fmt.Fprintf(w, "  %-28s %8s %8s %9s %9s %9s %8s %7s %7s %10s  %s\n", "kernel", "launches", "blocks", "loaded", "stored", "asked", "sectors", "banks", "occ.", "modelled", "bound by")
	for i := range p.Kernels {
		k := &p.Kernels[i]
		fmt.Fprintf(w, "  %-28s %8d %8d %9s %9s %9s %8s %7s %7s %7.1f µs  %s\n", k.Kernel, k.Launches, k.Blocks, driver.Bytes(k.Loaded), driver.Bytes(k.Stored),
			driver.Bytes(k.Asked), times(k.Sectors, k.LeastSectors), times(k.Passes, k.LeastPasses), share(k.Occupancy), 1e6*k.Modelled, k.Bound)
	}
}

// share is a share in percent; nothing is known of 0.
func share(v float64) string {
	if v == 0 {
		return "–"
	}
	return fmt.Sprintf("%.0f %%", 100*v)
}

// times is how many times as many there are as there could be.
func times(n, least int64) string {
	if least == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f", float64(n)/float64(least))
}

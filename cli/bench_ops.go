package cli

import (
	"fmt"
	"io"

	"github.com/krait-ml/krait/cost"
	"github.com/krait-ml/krait/lab/bench"
	"github.com/spf13/cobra"
)

// opsFlags are those of operations that are measured in place of whole steps.
type opsFlags struct{ on bool }

func (f *opsFlags) add(c *cobra.Command) {
	c.Flags().BoolVar(&f.on, "ops", false, "measure the operations of a step where they run, in place of steps (on CUDA, kernels are launched one by one then); with --hw collectives between GPUs stand beside what its links are modelled to take")
}

// check refuses what goes with another.
func (f *opsFlags) check(c *cobra.Command) error {
	for _, name := range []string{"meter", "paired", "trace", "dp", "profile", "no-cache", "comm"} {
		if f.on && c.Flags().Changed(name) {
			return fmt.Errorf("--ops measures operations of one model in this process; leave out --%s", name)
		}
	}
	return nil
}

// run measures the batches, a table each.
func (f *opsFlags) run(c *cobra.Command, b *benchRun, dir string, batches []int, out string) error {
	var links *cost.Profile
	if name := hardwareName(c); name != "" {
		var err error
		if links, err = cost.Find(name); err != nil {
			return err
		}
	}
	var rec bench.OpRecorder
	b.options.Record = rec.Record
	defer b.close()
	if err := b.open(c, dir); err != nil {
		return err
	}
	fmt.Fprintln(b.w, describe(b.m, b.device.name))
	for _, b.o.Batch = range batches {
		r, err := bench.MeasureOps(c.Context(), b.m, &rec, links, b.o)
		if err != nil {
			return explained{err}
		}
		r.Device, r.Math = b.device.name, b.device.options.Math
		b.file.Ops = append(b.file.Ops, r)
		printOps(b.w, r)
	}
	return save(c, out, &b.file)
}

func printOps(w io.Writer, r *bench.OpRun) {
	for i := range r.Phases {
		p := &r.Phases[i]
		fmt.Fprintf(w, "%s\n", p.Phase)
		for _, o := range p.Ops {
			fmt.Fprintf(w, "  %-26s %5d times %10.4g µs", o.Op, o.Count, o.Time)
			if o.Modelled > 0 {
				fmt.Fprintf(w, ", modelled %.4g", o.Modelled)
			}
			fmt.Fprintln(w)
		}
	}
}

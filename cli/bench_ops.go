package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/krait-ml/krait/cost"
	"github.com/krait-ml/krait/lab/bench"
	"github.com/spf13/cobra"
)

func newBenchOps() *cobra.Command {
	b := benchRun{modelFlags: &modelFlags{}}
	from := modelArg{kind: "DIR"}
	c := &cobra.Command{
		Use:   "ops [flags] [DIR]",
		Short: "Measure each operation within a step",
		Long: `Ops measures each operation within a running step. On a GPU it launches kernels one by one.
With --hw and a GPU for each rank, it also prints the modelled time of each collective on the
links of that hardware profile.`,
		Example: `  krait bench ops ~/models/mamba-2.8b-hf --batch 1
  krait bench ops ~/models/mamba-2.8b-hf --device cuda --tp 2 --hw h100-nvlink -o ops.json`,
		Args: takes(0, 1, "one DIR"),
		RunE: func(c *cobra.Command, args []string) error {
			dir, err := from.take(c, args)
			if err != nil {
				return err
			}
			if b.comm.kind != "local" {
				return errors.New("bench ops measures ranks of this process; leave out --comm")
			}
			if err := b.check(); err != nil {
				return err
			}
			b.options.Slots = slices.Max(b.batches)
			return b.ops(c, dir)
		},
	}
	b.add(c)
	basic(c, "hw")
	c.Flags().Lookup("hw").Usage = "hardware profile for modelled collectives and --strategy auto: a name or a file"
	hide(c, commNames...)
	from.add(c)
	return c
}

// ops measures the batches and prints a table for each.
func (b *benchRun) ops(c *cobra.Command, dir string) error {
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
	w := b.out.lines(c)
	fmt.Fprintln(w, describe(b.m, &b.device))
	for _, b.o.Batch = range b.batches {
		r, err := bench.MeasureOps(c.Context(), b.m, &rec, links, b.o)
		if err != nil {
			return driverError{err}
		}
		r.Device, r.Math = b.device.name, b.device.options.Math
		printOps(w, r)
		if err := b.out.take(&b.file, bench.File{Ops: []*bench.OpRun{r}}); err != nil {
			return err
		}
	}
	return b.out.save(c, &b.file)
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

package cli

import (
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/visualize"
	"github.com/spf13/cobra"
)

func newGraphSchedule() *cobra.Command {
	var s krait.Sharding
	from := newGraphArg()
	var f format
	var p picture
	var rank, layer int
	c := &cobra.Command{
		Use:   "schedule [flags] [DIR | FILE.ir]",
		Short: "Print or draw what a rank runs",
		Long: `Schedule lowers a model and prints what one rank runs: buffers with their place in
memory, and steps on the compute and the communication stream with the events that
order them. A FILE.ir is graph text at any stage, on which the passes run that are
left.

As dot or svg it draws kernels and collectives in their order, and dashed where one
stream waits for the other. Layers that run the same are drawn once; with --detail
block, the kernels between two events are a box.

Without DIR it is the embedded model's.`,
		Example: `  krait schedule --tp 4 --rank 1
  krait schedule --tp 2 --layer 0 -o schedule.svg
  krait schedule --tp 8 --detail block -o schedule.svg`,
		Args: takes(0, 1, "one DIR or FILE.ir"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.settle(); err != nil {
				return err
			}
			drawn, err := p.options(f)
			if err != nil {
				return err
			}
			g, _, err := from.read(c, args)
			if err != nil {
				return err
			}
			all, err := lowered(c, g, s)
			if err != nil {
				return err
			}
			if rank < 0 || rank >= len(all) {
				return fmt.Errorf("--rank %d: there are ranks 0 to %d", rank, len(all)-1)
			}
			block := ""
			if c.Flags().Changed("layer") {
				block = "layers." + strconv.Itoa(layer)
				if !slices.ContainsFunc(all[rank].Steps, func(st lowering.Step) bool { return inBlock(st, block) }) {
					return fmt.Errorf("--layer %d: the schedule has no steps of it", layer)
				}
			}
			drawn.Block = block
			return f.write(c, all[rank].String, func(w io.Writer) error { return visualize.Schedule(w, all[rank], drawn) })
		},
	}
	shardingFlags(c, &s)
	c.Flags().IntVar(&rank, "rank", 0, "which rank")
	c.Flags().IntVar(&layer, "layer", 0, "draw only this block")
	from.add(c)
	f.add(c)
	p.add(c)
	return c
}

package cli

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/internal/files"
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
		Long: `Schedule lowers a model and prints the schedule of one rank: buffers with their offsets, and
steps on the compute and the communication stream with the events that order them. A FILE.ir
is graph text at any stage, on which the remaining passes run, or a schedule as printed, which
is checked instead of lowered.

As dot or svg it draws kernels and collectives in order, with dashed lines for waits between
streams. Equal layers are drawn once; with --detail block, the kernels between two events are
one box. Without DIR it uses the embedded model.`,
		Example: `  krait graph schedule --tp 4 --rank 1
  krait graph schedule --tp 2 --layer 0 -o schedule.svg
  krait graph schedule --tp 8 --detail block -o schedule.svg
  krait graph schedule --tp 2 -o edited.ir; $EDITOR edited.ir; krait graph schedule edited.ir`,
		Args: takes(0, 1, "one DIR or FILE.ir"),
		RunE: func(c *cobra.Command, args []string) error {
			drawn, err := p.options(&f)
			if err != nil {
				return err
			}
			shown, err := readSchedule(c, &from, args)
			switch {
			case err != nil:
				return err
			case shown != nil && (!s.IsZero() || c.Flags().Changed("rank")):
				return fmt.Errorf("%q is a schedule of rank %d of %d already: leave out --rank, --tp and other flags of sharding", shown.Name, shown.Rank, shown.Ranks)
			case shown == nil:
				g, _, err := from.read(c, args)
				if err != nil {
					return err
				}
				all, err := lowered(c, g, s)
				if err != nil {
					return err
				}
				if rank < 0 || rank >= len(all) {
					return fmt.Errorf("--rank is %d; it must be from 0 to %d", rank, len(all)-1)
				}
				shown = all[rank]
			}
			block := ""
			if c.Flags().Changed("layer") {
				block = "layers." + strconv.Itoa(layer)
				if !slices.ContainsFunc(shown.Steps, func(st lowering.Step) bool { return inBlock(st, block) }) {
					return fmt.Errorf("--layer %d: the schedule has no steps of it", layer)
				}
			}
			drawn.Block = block
			return f.write(c, shown.String, func(w io.Writer) error { return visualize.Schedule(w, shown, drawn) })
		},
	}
	shardingFlags(c, &s)
	c.Flags().IntVar(&rank, "rank", 0, "rank whose schedule to print")
	c.Flags().IntVar(&layer, "layer", 0, "draw only this layer")
	from.add(c)
	f.add(c)
	p.add(c)
	return c
}

// readSchedule returns the schedule that the argument is the text of, parsed and checked; nil if
// the argument is a model or graph text.
func readSchedule(c *cobra.Command, from *graphArg, args []string) (*lowering.Schedule, error) {
	if from.like != "" {
		return nil, nil
	}
	path, err := from.take(c, args)
	if err != nil || filepath.Ext(path) != ".ir" && path != "-" {
		return nil, err
	}
	text, err := readBounded(c, path, files.Graph)
	if err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(bytes.TrimSpace(text), []byte("schedule ")) {
		if path == "-" {
			c.SetIn(bytes.NewReader(text)) // for the parser of graphs
		}
		return nil, nil
	}
	return interruptible(c, "lower", func() (*lowering.Schedule, error) {
		s, err := lowering.ParseSchedule(string(text))
		if err == nil {
			err = s.Check()
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return s, nil
	})
}

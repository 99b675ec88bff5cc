package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/krait-ml/krait/checkpoint/synth"
	"github.com/krait-ml/krait/internal/files"
	"github.com/krait-ml/krait/internal/terminal"
	"github.com/spf13/cobra"
)

func newSynth() *cobra.Command {
	var f synthFlags
	var quiet bool
	c := &cobra.Command{
		Use:   "synth [flags] DIR",
		Short: "Make a checkpoint with random weights",
		Long: `Synth makes a folder with config.json and random weights of a sensible scale, of any
size and any family, to test and measure without a download. Generated text is noise.
The same seed gives the same bytes.

--like takes the dimensions of a published size:
` + wrap(synth.Sizes(), 78) + `
--config takes the dimensions of any config.json.`,
		Example: `  krait synth --like mamba-130m random/mamba-130m
  krait synth --like falcon-mamba-7b --layers 4 --dtype f16 random/short
  krait synth --config testdata/golden/jamba/config.json --dtype f32 random/jamba`,
		Args: takes(1, 1, "one DIR to make"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.read(c); err != nil {
				return err
			}
			var end func()
			f.Progress, end = terminal.ByteProgress(c.ErrOrStderr(), "weights", quiet)
			made, err := synth.Write(c.Context(), args[0], f.Options)
			end()
			if err != nil || quiet {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "%s (%s, %s parameters, %s bytes)\n", visible(args[0]), made.Family, thousands(made.Parameters), thousands(made.Bytes))
			return nil
		},
	}
	f.add(c)
	c.Flags().StringVar(&f.DType, "dtype", "bf16", "weight format: f32, bf16 or f16")
	c.Flags().Uint64Var(&f.Seed, "seed", 0, "seed of the weights; the same seed gives the same bytes")
	c.Flags().BoolVar(&f.Force, "force", false, "overwrite the checkpoint in a folder that is not empty")
	c.Flags().BoolVarP(&quiet, "quiet", "q", false, "print nothing")
	return c
}

// synthFlags say which model is made.
type synthFlags struct{ synth.Options }

func (f *synthFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.Like, "like", "", "published size to take dimensions from")
	c.Flags().StringVar(&f.From, "config", "", "config.json to take dimensions from; - is standard input")
	c.Flags().IntVar(&f.Layers, "layers", 0, "keep only this many layers (default: all)")
	c.Flags().IntVar(&f.Vocab, "vocab", 0, "vocabulary size (default: as the config says)")
}

func (f *synthFlags) read(c *cobra.Command) error {
	if (f.Like == "") == (f.From == "") {
		return errors.New("give either --like or --config")
	}
	if f.Layers < 0 || f.Vocab < 0 {
		return fmt.Errorf("--layers %d and --vocab %d: neither may be negative", f.Layers, f.Vocab)
	}
	if f.From == "" {
		return nil
	}
	var err error
	f.Config, err = readBounded(c, f.From, files.Config)
	return err
}

// wrap lays words out in lines of a width, indented.
func wrap(words []string, width int) string {
	var b strings.Builder
	line := ""
	for _, w := range words {
		if len(line)+len(w) > width {
			b.WriteString(line + "\n")
			line = ""
		}
		line += "  " + w
	}
	return b.String() + line + "\n"
}

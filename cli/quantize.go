package cli

import (
	"errors"
	"fmt"

	"github.com/krait-ml/krait/checkpoint/quantize"
	"github.com/spf13/cobra"
)

func newQuantizeWeights() *cobra.Command {
	var to, out string
	var quiet bool
	from := modelArg{kind: "DIR", needed: true}
	c := &cobra.Command{
		Use:   "quantize-weights --to q8 -o DIR2 [flags] DIR",
		Short: "Write a checkpoint with its matrices in 8-bit blocks",
		Long: `Quantize-weights writes a folder like DIR in which the matrices that are multiplied
with, a tied embedding too, are in blocks: 32 numbers of 8 bits and a scale in f16,
34 bytes, as Q8_0 of GGUF has them. An element is off by at most half of its block's
scale, a 254th of the largest magnitude there. Everything else stays as it is:
norms, convolutions, A, D, time steps, biases, embeddings that are only looked up,
what chooses between experts, and matrices that blocks would not make smaller.

The new folder runs like any other, on CPUs. docs/q8.md says what is in its files.`,
		Example: `  krait quantize-weights ~/models/mamba-130m-hf --to q8 -o ~/models/mamba-130m-q8
  krait eval ~/models/mamba-130m-q8 --text text.txt`,
		Args: takes(0, 1, "one DIR"),
		RunE: func(c *cobra.Command, args []string) error {
			dir, err := from.take(c, args)
			switch {
			case err != nil:
				return err
			case out == "":
				return errors.New("-o DIR2 is missing: the folder to make")
			case to == "":
				return errors.New("--to is missing: the format of the weights, q8")
			case to != "q8":
				return fmt.Errorf("--to %s: there is q8", to)
			}
			var report func(done, total int64)
			tell, end := progress(c.ErrOrStderr(), "weights", "bytes", quiet)
			if tell != nil {
				report = func(done, total int64) { tell(int(done), int(total)) }
			}
			made, err := quantize.Write(c.Context(), dir, out, report)
			end()
			if err != nil || quiet {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "%s (%s, %d matrices in q8, %d tensors as they were): %s bytes of %s\n",
				visible(out), made.Family, made.Matrices, made.Others, thousands(made.After), thousands(made.Before))
			return nil
		},
	}
	from.add(c)
	c.Flags().StringVar(&to, "to", "", "format of the weights: q8")
	c.Flags().StringVarP(&out, "output", "o", "", "the folder to make; it must be new or empty")
	c.Flags().BoolVarP(&quiet, "quiet", "q", false, "print nothing")
	return c
}

package cli

import (
	"errors"
	"fmt"

	"github.com/krait-ml/krait/checkpoint/convert"
	"github.com/spf13/cobra"
)

func newConvert() *cobra.Command {
	var kind string
	var quiet bool
	c := &cobra.Command{
		Use:   "convert [flags] SRC DST",
		Short: "Write a checkpoint in another format",
		Long: `Convert writes the checkpoint SRC as DST: a GGUF file where DST ends in .gguf, else a
Hugging Face folder. SRC is all that Krait opens: a folder of Hugging Face with
safetensors or a pytorch_model.bin, a folder of the original state-spaces code, or a
GGUF file.

In a GGUF file matrices have the format of --type; norms, convolutions, A and D are in
f32, as llama.cpp's converter writes them. What the format has no key for is kept in
one of Krait's, so that Krait runs the same model; what other programs make otherwise
is said. DST is whole or not there, and what is there already is not touched.
docs/checkpoints.md says what becomes of names and numbers.`,
		Example: `  krait convert ~/models/mamba-130m-hf mamba-130m.gguf --type q8_0
  krait convert mamba-130m.gguf mamba-130m
  krait convert ~/models/mamba2-130m ~/models/mamba2-130m-hf`,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) != 2 {
				return errors.New("convert takes two arguments: SRC, the checkpoint, and DST, the folder or file.gguf to make")
			}
			var report func(done, total int64)
			tell, end := progress(c.ErrOrStderr(), "weights", "bytes", quiet)
			if tell != nil {
				report = func(done, total int64) { tell(int(done), int(total)) }
			}
			made, err := convert.Write(c.Context(), args[0], args[1], kind, report)
			end()
			if err != nil || quiet {
				return err
			}
			for _, note := range made.Notes {
				fmt.Fprintf(c.ErrOrStderr(), "krait: note: %s\n", visible(note))
			}
			fmt.Fprintf(c.OutOrStdout(), "%s (%s, %d tensors): %s bytes\n", visible(args[1]), made.Family, made.Tensors, thousands(made.Bytes))
			return nil
		},
	}
	c.Flags().StringVar(&kind, "type", "", "format of the matrices in a GGUF file: f32, f16, bf16 or q8_0 (default: that of SRC's embedding)")
	c.Flags().BoolVarP(&quiet, "quiet", "q", false, "print nothing")
	return c
}

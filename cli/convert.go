package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/krait-ml/krait/checkpoint/convert"
	"github.com/krait-ml/krait/checkpoint/imatrix"
	"github.com/krait-ml/krait/checkpoint/quantize"
	"github.com/krait-ml/krait/internal/terminal"
	"github.com/spf13/cobra"
)

func newConvert() *cobra.Command {
	var kind, dst, weights string
	var quiet bool
	from := modelArg{kind: "SRC", needed: true}
	c := &cobra.Command{
		Use:   "convert [flags] SRC DST",
		Short: "Write a checkpoint in another format",
		Long: `Convert writes the checkpoint SRC as DST: a GGUF file where DST ends in .gguf, else a Hugging
Face folder. SRC is any checkpoint that Krait opens: a Hugging Face folder with safetensors or
pytorch_model.bin, a folder of the original state-spaces code, or a GGUF file.

In a GGUF file matrices have the format of --type (f32, f16, bf16, q8_0, q6_k,
q5_k_m, q5_0, q4_k_m, q4_0, iq4_nl or iq4_xs: llama.cpp's mixtures); norms, convolutions, A
and D are in f32, as llama.cpp's converter writes them. Values without a
GGUF key get a key of Krait's, so that Krait runs the same model; notes say what other
programs read differently. DST is written completely or not at all, and must not exist.
docs/checkpoints.md maps names and numbers.

--type f32 writes a folder in f32: of one in 8 or 4 bits (FP8, NVFP4, MXFP4, GPTQ, AWQ) the
numbers that Krait computes with.

--type q8 writes a folder whose matrices, a tied embedding too, are in blocks of 32 8-bit
numbers and an f16 scale (34 bytes, like GGUF's Q8_0). The error of an element is at most half
of its block's scale, a 254th of the largest magnitude in the block. Norms, convolutions, A, D,
time steps, biases, routers, embeddings used only for lookup, and matrices that blocks do
not make smaller keep their format (docs/q8.md).

--type fp8 writes a folder as DeepSeek and Qwen publish them: matrices in E4M3 with a scale for
each 128 rows and 128 columns (weight_scale_inv), and quantization_config in config.json. The
embedding and the head keep their format, too.`,
		Example: `  krait convert ~/models/mamba-130m-hf mamba-130m.gguf --type q8_0
  krait convert ~/models/mamba-130m-hf mamba-130m-q8 --type q8
  krait convert mamba-130m.gguf mamba-130m
  krait convert ~/models/bamba-9b bamba-9b.gguf --type q4_k_m --imatrix imatrix.gguf
  krait convert ~/models/mamba2-130m ~/models/mamba2-130m-hf`,
		Args: takes(0, 2, "SRC, a checkpoint, and DST, the folder or file.gguf to make"),
		RunE: func(c *cobra.Command, args []string) error {
			if dst == "" && len(args) > 0 {
				dst, args = args[len(args)-1], args[:len(args)-1]
			}
			src, err := from.take(c, args)
			switch {
			case err == nil && dst == "":
				err = errors.New("DST is missing: the folder or file.gguf to make")
			case errors.Is(err, errNoModel):
				err = errors.New("convert needs SRC, a checkpoint, and DST, the folder or file.gguf to make")
			}
			if err != nil {
				return err
			}
			report, end := terminal.ByteProgress(c.ErrOrStderr(), "weights", quiet)
			info, err := convertTo(c, src, dst, kind, weights, report)
			end()
			if err != nil || quiet {
				return err
			}
			for _, note := range info.notes {
				fmt.Fprintf(c.ErrOrStderr(), "krait: note: %s\n", visible(note))
			}
			fmt.Fprintf(c.OutOrStdout(), "%s %s\n", visible(dst), info.summary)
			return nil
		},
	}
	from.add(c)
	c.Flags().StringVar(&kind, "type", "", "weight format: q8, fp8, f32, or for GGUF bf16, q4_k_m, … (default: as in SRC)")
	detail(c, "type", "the default of a GGUF file is the format of SRC's embedding; a folder without --type keeps all formats.")
	c.Flags().StringVar(&weights, "imatrix", "", "importance matrix for 4 to 6 bits, as krait calibrate importance writes it")
	c.Flags().StringVarP(&dst, "output", "o", "", "folder or FILE.gguf to write, in place of DST")
	c.Flags().BoolVarP(&quiet, "quiet", "q", false, "print no progress and no summary")
	return c
}

// conversion describes a checkpoint that was written.
type conversion struct {
	notes   []string
	summary string
}

func convertTo(c *cobra.Command, src, dst, kind, weights string, report func(done, total int64)) (conversion, error) {
	if weights != "" && !strings.HasSuffix(dst, ".gguf") {
		return conversion{}, fmt.Errorf("--imatrix is for GGUF files, and %s is a folder: name it FILE.gguf", dst)
	}
	if slices.Contains(quantize.Kinds(), kind) {
		if strings.HasSuffix(dst, ".gguf") {
			return conversion{}, fmt.Errorf("--type %s writes a folder, and %s is a GGUF file: give --type q8_0", kind, dst)
		}
		q, err := quantize.Write(c.Context(), src, dst, kind, report)
		if err != nil {
			return conversion{}, err
		}
		return conversion{summary: fmt.Sprintf("(%s, %d matrices in %s, %d tensors unchanged): %s bytes of %s%s", q.Family, q.Matrices, kind, q.Others, thousands(q.After), thousands(q.Before), lossOf(q.Loss))}, nil
	}
	if kind != "" && !slices.Contains(convert.Types(), kind) {
		return conversion{}, fmt.Errorf("--type is %s; it must be q8, fp8 or f32 for a folder, or for FILE.gguf one of %s", kind, strings.Join(convert.Types(), ", "))
	}
	if kind != "" && kind != "f32" && !strings.HasSuffix(dst, ".gguf") {
		return conversion{}, fmt.Errorf("--type %s is for GGUF files, and %s is a folder: name it FILE.gguf, or give --type q8, fp8, f32 or none", kind, dst)
	}
	var importance *imatrix.Matrix
	if weights != "" {
		var err error
		if importance, err = imatrix.Read(weights); err != nil {
			return conversion{}, fmt.Errorf("--imatrix: %w", err)
		}
	}
	m, err := convert.WriteWeighted(c.Context(), src, dst, kind, importance, report)
	if err != nil {
		return conversion{}, err
	}
	return conversion{m.Notes, fmt.Sprintf("(%s, %d tensors): %s bytes%s", m.Family, m.Tensors, thousands(m.Bytes), lossOf(m.Loss))}, nil
}

// lossOf says how far matrices are from what they were, relatively.
func lossOf(loss float64) string {
	if loss == 0 {
		return ""
	}
	return fmt.Sprintf(", matrices off by %.2f %%", 100*loss)
}

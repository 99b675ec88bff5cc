package cli

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/internal/files"
	"github.com/krait-ml/krait/internal/terminal"
	"github.com/krait-ml/krait/lab/importance"
	"github.com/spf13/cobra"
)

func newCalibrateImportance() *cobra.Command {
	var f modelFlags
	var o importance.Options
	from := modelArg{kind: "DIR", needed: true}
	var path, out string
	var ids bool
	var limit int
	c := &cobra.Command{
		Use:   "importance --text FILE -o FILE.gguf [flags] DIR",
		Short: "Measure which columns of matrices matter, for convert --imatrix",
		Long: `Importance runs a text through a model, and writes the sums of the squares of each matrix's
inputs: an importance matrix, as llama-imatrix writes it. krait convert --imatrix FILE.gguf, and
llama-quantize --imatrix, weigh errors of columns by them. Take a text like those that the model
will be used for. Down projections of experts have no entries.`,
		Example: `  krait calibrate importance ~/models/mamba-130m-hf --text train.txt -o imatrix.gguf
  krait convert ~/models/mamba-130m-hf mamba-130m.gguf --type q4_k_m --imatrix imatrix.gguf`,
		Args: takes(0, 1, "one DIR"),
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case path == "":
				return errors.New("--text FILE is missing: the text file to run")
			case out == "":
				return errors.New("-o FILE.gguf is missing: the file to write")
			case limit < 0 || o.Window < 1:
				return fmt.Errorf("--window %d and --limit %d: a window has at least 1 token, and the limit must not be negative", o.Window, limit)
			}
			dir, err := from.take(c, args)
			if err != nil {
				return err
			}
			return f.importance(c, dir, path, out, ids, limit, o)
		},
	}
	f.add(c)
	from.add(c)
	c.Flags().StringVar(&path, "text", "", "text file to run (required); - is standard input")
	c.Flags().StringVarP(&out, "output", "o", "", "file to write (required)")
	c.Flags().BoolVar(&ids, "ids", false, "take --text as token ids")
	c.Flags().IntVar(&o.Window, "window", 512, "tokens per window")
	c.Flags().IntVar(&limit, "limit", 0, "use only the first tokens of the text; 0: all")
	return c
}

func (f *modelFlags) importance(c *cobra.Command, dir, path, out string, ids bool, limit int, o importance.Options) error {
	f.options.Slots = 1
	tokens, err := f.tokensOf(c, dir, path, ids, limit)
	if err != nil {
		return err
	}
	var done func()
	o.Progress, done = terminal.Progress(c.ErrOrStderr(), "calibrate importance", "tokens", f.quiet)
	found, err := importance.Run(c.Context(), dir, func(dir string, keep []string) (*krait.Model, error) {
		with := *f
		with.quiet, with.options.Keep = true, keep
		return with.open(c, dir)
	}, tokens, o)
	done()
	if err != nil {
		return err
	}
	found.Datasets = []string{filepath.Base(path)}
	var data bytes.Buffer
	if err := found.Write(&data); err != nil {
		return err
	}
	if err := files.Write(out, data.Bytes()); err != nil || f.quiet {
		return err
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "%s: %d matrices, %s\n", visible(out), len(found.Entries), count(len(tokens), "token"))
	return err
}

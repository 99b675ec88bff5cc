package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/krait-ml/krait"
	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

func newEval() *cobra.Command {
	var f modelFlags
	var o krait.Evaluate
	var path string
	var ids bool
	var limit int
	c := &cobra.Command{
		Use:   "eval [flags] [DIR]",
		Short: "Measure how well a model predicts a text",
		Long: `Eval scores a text: the mean of -log2 p over its tokens, as bits per byte and as
perplexity per token. The text is cut into windows that each start from an empty
state, and whose first token is not scored; --window 0 makes it one sequence.

With --quantize it also runs the model without, and prints how well both agree:
  top-1            how often they put the same token first
  top-5 ordered    how often the five most likely tokens are the same, in the same
                   order: the published measure
  top-5 places     how many of the five places hold the same token, as a mean share
  top-5 same set   how often the five are the same, in any order
  top-5 unordered  how many of the five both have, as a mean share

Without DIR it uses the embedded model.`,
		Example: `  krait eval --text testdata/val.txt
  krait eval --text testdata/val.txt --tp 4 --quantize fp16
  krait eval --text testdata/val.txt --window 0 --limit 4096
  krait eval ~/models/mamba-130m-hf --text ids.txt --ids --window 2048`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if path == "" {
				return errors.New("--text FILE is missing: the text to score")
			}
			if limit < 0 || o.Window < 0 {
				return fmt.Errorf("--window %d and --limit %d: neither may be negative", o.Window, limit)
			}
			f.options.Slots = 1
			m, err := f.open(append(args, "")[0], c.ErrOrStderr())
			if err != nil {
				return err
			}
			defer m.Close()
			text, tokens, err := readText(m, path, ids, limit)
			if err != nil {
				return err
			}
			var done func()
			o.Progress, done = progress(c.ErrOrStderr(), "eval", "tokens", f.quiet)
			e, err := m.Evaluate(c.Context(), tokens, o)
			done()
			if err != nil {
				return err
			}
			report(c.OutOrStdout(), m, f.device.name, path, text, len(tokens), e)
			if f.options.Sharding.Quantize == "" {
				return nil
			}
			return f.agreement(c, m, append(args, "")[0], tokens, o)
		},
	}
	f.add(c)
	c.Flags().StringVar(&path, "text", "", "the text to score")
	c.Flags().BoolVar(&ids, "ids", false, "the file holds token ids")
	c.Flags().IntVar(&o.Window, "window", 512, "tokens per window; 0: the whole text is one")
	c.Flags().IntVar(&limit, "limit", 0, "score only the first tokens of the text; 0: all")
	return c
}

// readText reads the file as text, whose length in bytes is returned too, or as ids.
func readText(m *krait.Model, path string, ids bool, limit int) (bytes int, tokens []int, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, nil, err
	}
	if ids {
		tokens, err = readIDs(string(data))
	} else {
		var t krait.Tokenizer
		if t, err = m.Tokenizer(); err == nil {
			tokens = t.Encode(string(data), false)
			bytes = len(data)
		}
	}
	if err != nil {
		return 0, nil, fmt.Errorf("%s: %w", path, err)
	}
	if limit > 0 && limit < len(tokens) {
		tokens = tokens[:limit]
		if t, err := m.Tokenizer(); err == nil && bytes > 0 {
			bytes = len(t.Decode(tokens, false))
		}
	}
	return bytes, tokens, nil
}

// report prints bits per byte where bytes are known. What is scored of the text
// is all but the first token of each window.
func report(w io.Writer, m *krait.Model, device string, path string, bytes, tokens int, e *krait.Evaluation) {
	fmt.Fprintln(w, "model          ", describe(m, device))
	fmt.Fprintf(w, "text            %s, %s tokens in %d windows, %s scored\n", path, thousands(int64(tokens)), len(e.Windows), thousands(int64(e.Scored)))
	if bytes > 0 {
		share := float64(bytes) * float64(e.Scored) / float64(tokens)
		fmt.Fprintf(w, "bits per byte   %.6f\n", e.Bits/share)
	}
	fmt.Fprintf(w, "bits per token  %.6f\n", e.BitsPerToken())
	fmt.Fprintf(w, "perplexity      %.4f\n", e.Perplexity())
}

// agreement compares the model with one whose payloads are not rounded.
func (f *modelFlags) agreement(c *cobra.Command, m *krait.Model, dir string, tokens []int, o krait.Evaluate) error {
	plain := *f
	plain.quiet = true
	plain.options.Sharding.Quantize = ""
	plain.options.Sharding.CheckPayloads = false
	plain.options.Sharding.Dump = ""
	base, err := plain.open(dir, c.ErrOrStderr())
	if err != nil {
		return err
	}
	defer base.Close()
	var done func()
	o.Progress, done = progress(c.ErrOrStderr(), "agreement", "tokens", f.quiet)
	a, err := krait.Agree(c.Context(), m, base, tokens, o)
	done()
	if err != nil {
		return err
	}
	w := c.OutOrStdout()
	fmt.Fprintf(w, "agreement with the run that is not quantized (%s), over %s tokens\n", f.options.Sharding.Quantize, thousands(int64(a.Tokens)))
	fmt.Fprintf(w, "top-1           %.2f%%\n", 100*a.Top1)
	fmt.Fprintf(w, "top-5 ordered   %.2f%%\n", 100*a.Top5Ordered)
	fmt.Fprintf(w, "top-5 places    %.2f%%\n", 100*a.Top5Places)
	fmt.Fprintf(w, "top-5 same set  %.2f%%\n", 100*a.Top5Set)
	fmt.Fprintf(w, "top-5 unordered %.2f%%\n", 100*a.Top5Unordered)
	return nil
}

// progress is a bar on a terminal, and nothing in a pipe.
func progress(w io.Writer, what, unit string, quiet bool) (func(done, all int), func()) {
	f, ok := w.(*os.File)
	if !ok || quiet || !term.IsTerminal(int(f.Fd())) {
		return nil, func() {}
	}
	bar := progressbar.NewOptions(1, progressbar.OptionSetWriter(w), progressbar.OptionSetDescription(what),
		progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionSetItsString(unit), progressbar.OptionClearOnFinish())
	return func(done, all int) {
		bar.ChangeMax(all)
		bar.Set(done)
	}, func() { bar.Finish() }
}

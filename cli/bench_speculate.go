package cli

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/lab/bench"
	"github.com/krait-ml/krait/session/draft"
	"github.com/spf13/cobra"
)

// forceFlags are the flags of bench with drafts.
type forceFlags struct{ file string }

func (f *forceFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.file, "force", "", "text to decode in place of the tokens chosen, with --speculate")
	detail(c, "force", `its first --prompt tokens are the prompt, and the next -n stand for those chosen, since weights
may be random; "random" is a text with nothing to copy. Decode with drafts and without is measured
in turns.`)
	expert(c, "force")
}

// check returns an error for flags that do not go together.
func (f *forceFlags) check(b *benchRun, dp int) error {
	speculates := b.options.Speculate != draft.Off
	switch {
	case speculates != (f.file != ""):
		return errors.New("--speculate and --force FILE go together: the text of FILE is decoded with drafts and without")
	case speculates && (dp > 1 || b.o.NoCache):
		return errors.New("--speculate measures one model with its states: leave out --dp and --no-cache")
	}
	return nil
}

// tokens returns the tokens of the text, by bytes if the model has no tokenizer.
func (f *forceFlags) tokens(m *krait.Model, n int) ([]int, error) {
	var ids []int
	if f.file == "random" {
		r := rand.New(rand.NewPCG(1, 1))
		for range n {
			ids = append(ids, r.IntN(m.Vocab()))
		}
		return ids, nil
	}
	text, err := os.ReadFile(f.file)
	if err != nil {
		return nil, fmt.Errorf("--force: %w", err)
	}
	if t, err := m.Tokenizer(); err == nil {
		return t.Encode(string(text), false)
	}
	for _, c := range text {
		ids = append(ids, int(c)%m.Vocab())
	}
	return ids, nil
}

// speculate measures the batches with drafts and without.
func (b *benchRun) speculate(c *cobra.Command, f *forceFlags) error {
	w := b.out.lines(c)
	fmt.Fprintln(w, describe(b.m, &b.device))
	printRoofline(w, &b.file.Environment)
	ids, err := f.tokens(b.m, b.o.Prompt+b.o.Tokens)
	if err != nil {
		return err
	}
	for _, b.o.Batch = range b.batches {
		r, err := bench.MeasureSpeculation(c.Context(), b.m, bench.SpeculationOptions{Options: b.o, Speculate: b.options.Speculate, Text: ids})
		if err != nil {
			return driverError{err}
		}
		r.Math = b.device.options.Math
		printSpeculation(w, r)
		if err := b.out.take(&b.file, bench.File{Speculations: []bench.Speculation{*r}}); err != nil {
			return err
		}
	}
	return nil
}

func printSpeculation(w io.Writer, r *bench.Speculation) {
	fmt.Fprintf(w, "batch %d, prompt %d, %d tokens: %.5g tokens/s without drafts, %.5g with %s: %.2f times\n", r.Batch, r.Prompt, r.Tokens, r.Without, r.With, r.Kind, r.Ratio)
	fmt.Fprintf(w, "  accepted %d of %d drafts; %.0f steps per run\n", r.Accepted, r.Drafted, r.Steps)
}

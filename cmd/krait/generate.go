package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/krait-ml/krait"
	"github.com/spf13/cobra"
)

func newGenerate() *cobra.Command {
	var f modelFlags
	var o krait.Generate
	var dir string
	var ids bool
	c := &cobra.Command{
		Use:   "generate [flags] PROMPT",
		Short: "Continue a text",
		Long: `Generate continues a prompt and streams the text to standard output. What else
one wants to know (model, prompt tokens, time to the first token, tokens per
second) goes to standard error. A PROMPT of - is read from standard input.

Without --model it uses the embedded model, trained on the King James Bible.
Without --temperature it is greedy, unless the folder's generation_config.json
says otherwise: flags override that file.`,
		Example: `  krait generate "In the beginning"
  krait generate --temperature 0.8 --seed 7 --max-tokens 300 "And the LORD said"
  krait generate --model ~/models/mamba-130m-hf --ids "510 5347 273"`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			prompt := args[0]
			if prompt == "-" {
				text, err := io.ReadAll(c.InOrStdin())
				if err != nil {
					return err
				}
				prompt = string(text)
			}
			f.options.Slots = 1
			m, err := f.open(dir, c.ErrOrStderr())
			if err != nil {
				return err
			}
			defer m.Close()
			defaults(c, m, &o)
			return generate(c, &f, m, prompt, ids, o)
		},
	}
	f.add(c)
	c.Flags().StringVarP(&dir, "model", "m", "", "Hugging Face folder with config.json and model.safetensors")
	c.Flags().BoolVar(&ids, "ids", false, "PROMPT is token ids; print token ids")
	c.Flags().IntVarP(&o.MaxTokens, "max-tokens", "n", 200, "stop after this many tokens")
	c.Flags().Float64VarP(&o.Temperature, "temperature", "t", 0, "0 is greedy; 1 samples from the model's distribution")
	c.Flags().IntVar(&o.TopK, "top-k", 0, "sample from the k most probable tokens; 0: all")
	c.Flags().Float64Var(&o.TopP, "top-p", 1, "sample from the most probable tokens up to this probability")
	c.Flags().Float64Var(&o.RepetitionPenalty, "repetition-penalty", 1, "make tokens that were seen less likely; 1: do not")
	c.Flags().Uint64Var(&o.Seed, "seed", 0, "of the random numbers: the same seed gives the same text")
	c.Flags().StringArrayVar(&o.Stop, "stop", nil, "end before this text (may be given several times)")
	c.Flags().BoolVar(&o.IgnoreEOS, "ignore-eos", false, "go on where the model would end the text")
	return c
}

// defaults takes what no flag says from the checkpoint's generation_config.json.
func defaults(c *cobra.Command, m *krait.Model, o *krait.Generate) {
	d := m.Defaults()
	if !c.Flags().Changed("temperature") {
		o.Temperature = d.Temperature
	}
	if !c.Flags().Changed("top-k") {
		o.TopK = d.TopK
	}
	if !c.Flags().Changed("top-p") {
		o.TopP = d.TopP
	}
	if !c.Flags().Changed("repetition-penalty") {
		o.RepetitionPenalty = d.RepetitionPenalty
	}
}

func generate(c *cobra.Command, f *modelFlags, m *krait.Model, prompt string, ids bool, o krait.Generate) error {
	if o.MaxTokens < 1 {
		return fmt.Errorf("--max-tokens is %d; it must be at least 1", o.MaxTokens)
	}
	out, info := c.OutOrStdout(), c.ErrOrStderr()
	if f.quiet {
		info = io.Discard
	}
	fmt.Fprintln(info, "model  ", describe(m, f.device.name))
	var read func()
	o.OnPrompt, read = progress(c.ErrOrStderr(), "prompt", "tokens", f.quiet)
	first := sync.OnceFunc(read)
	defer first()
	var g *krait.Generation
	var err error
	if ids {
		var tokens []int
		if tokens, err = readIDs(prompt); err == nil {
			o.OnToken = after(first, separated(out))
			g, err = m.GenerateIDs(c.Context(), tokens, o)
		}
	} else {
		o.OnText = after(first, func(text string) { io.WriteString(out, text) })
		g, err = m.Generate(c.Context(), prompt, o)
	}
	if err != nil {
		return err
	}
	fmt.Fprintln(out)
	fmt.Fprintf(info, "prompt  %d tokens, TTFT %s\n", g.PromptTokens, round(g.TTFT))
	fmt.Fprintf(info, "output  %d tokens, %.1f tokens/s, ended by %s\n", len(g.IDs), g.TokensPerSecond(), g.Reason)
	return nil
}

// after runs first before every call of f.
func after[T any](first func(), f func(T)) func(T) {
	return func(x T) {
		first()
		f(x)
	}
}

// separated prints ids with blanks between them.
func separated(w io.Writer) func(int) {
	sep := ""
	return func(id int) {
		fmt.Fprintf(w, "%s%d", sep, id)
		sep = " "
	}
}

// round leaves three digits.
func round(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for unit*1000 <= d {
		unit *= 10
	}
	return d.Round(unit)
}

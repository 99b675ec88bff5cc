package cli

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/terminal"
	"github.com/krait-ml/krait/session/draft"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func newGenerate() *cobra.Command {
	var f modelFlags
	var kept prefixFlags
	var elsewhere prefillFlags
	var profile profileFlags
	var sampled samplingFlags
	var o krait.Generate
	from := modelArg{kind: "DIR"}
	var ids bool
	var to output
	var many manyFlags
	var chunk int
	c := &cobra.Command{
		Use:   "generate [flags] [DIR] PROMPT",
		Short: "Continue a prompt",
		Long: `Generate continues a prompt and streams the text to standard output. The model, the seed, the
number of prompt tokens, TTFT and tokens per second go to standard error. --json prints all of
them with the text on standard output at the end.

A single argument is the PROMPT; - reads it from standard input. A PROMPT that names an
existing file or folder or a downloaded model, or looks like a path (./x, x.gguf), is an error:
give such a PROMPT after a DIR, with --model, or on standard input.

With --prefill ADDR a prefill server (krait serve prefill) prefills the prompt and this process
fetches the state; if that fails, it warns and prefills the prompt itself.

Without DIR it uses the embedded model, trained on the King James Bible. Sampling is greedy by
default, or as the folder's generation_config.json says; flags override that file.`,
		Example: `  krait generate "In the beginning"
  krait generate --temperature 0.8 --seed 7 --max-tokens 300 "And the LORD said"
  krait generate --temperature 1 --min-p 0.05 --logprobs 3 -n 5 "And the LORD said"
  krait generate ~/models/mamba-130m-hf --ids "510 5347 273"
  krait generate --tp 3 --prefill 127.0.0.1:7070 "In the beginning"
  krait generate --dp 2 --prompts psalms.txt ~/models/mamba-130m-hf`,
		Args: takes(0, 2, "a PROMPT in quotes, after DIR if one is given"),
		RunE: func(c *cobra.Command, args []string) (err error) {
			if err := cmp.Or(many.check(c), f.chunk(c, chunk), sampled.take(c, &o)); err != nil {
				return err
			}
			if many.file != "" {
				if len(args) > 1 {
					return fmt.Errorf("%q: --prompts gives the prompts; leave out PROMPT", args[1])
				}
				dir, err := from.take(c, args)
				if err != nil {
					return err
				}
				return many.run(c, dir, &f, &sampled, o, to)
			}
			if len(args) == 0 {
				return takes(1, 2, "a PROMPT in quotes, after DIR if one is given")(c, args)
			}
			prompt := args[len(args)-1]
			if len(args) == 1 {
				if err := from.notPath(c, prompt); err != nil {
					return err
				}
			}
			dir, err := from.take(c, args[:len(args)-1])
			if err != nil {
				return err
			}
			if prompt == "-" {
				text, err := readText(c, prompt)
				if err != nil {
					return err
				}
				prompt = string(text)
			}
			f.options.Slots = 1
			if err := cmp.Or(kept.checkCodec(elsewhere.address != ""), kept.options(&f)); err != nil {
				return err
			}
			if err := profile.begin(c, &f); err != nil {
				return err
			}
			if elsewhere.address != "" {
				f.options.Sharding.Phase = cmp.Or(f.options.Sharding.Phase, "decode")
			}
			m, err := f.open(c, dir)
			if err != nil {
				return err
			}
			defer func() { err = cmp.Or(err, m.Close()) }() // which writes --prefix-cache-dir
			p, err := elsewhere.open(c, m, f.quiet)
			if err != nil {
				return err
			}
			if p != nil {
				defer p.Close() // before the model
				o.Prefill = p
			}
			if err := profile.opened(m); err != nil {
				return err
			}
			defaults(c, m, &o)
			sampled.seed(c, &o)
			r := generateRun{modelFlags: &f, m: m, ids: ids, to: to, o: o}
			return cmp.Or(r.run(c, prompt), profile.write(c, f.quiet || to.json))
		},
	}
	kept.add(c)
	elsewhere.add(c)
	profile.add(c)
	c.Flags().VisitAll(func(x *pflag.Flag) { many.alone = append(many.alone, x.Name) })
	f.add(c)
	from.add(c)
	to.add(c)
	many.add(c)
	c.Flags().IntVar(&chunk, "chunk", 512, "prompt tokens per prefill step; 0: all")
	c.Flags().BoolVar(&ids, "ids", false, "take PROMPT as token ids, and print token ids")
	c.Flags().IntVarP(&o.MaxTokens, "max-tokens", "n", 200, "maximum tokens to generate")
	sampled.add(c, &o)
	sampled.addLogProbs(c)
	f.addSpeculate(c, draft.Auto)
	c.Flags().StringArrayVar(&o.Stop, "stop", nil, "stop string: end the output before this text (repeatable)")
	c.Flags().BoolVar(&o.IgnoreEOS, "ignore-eos", false, "continue after the end-of-sequence token")
	expert(c, "chunk", "dp", "ignore-eos", "states")
	return c
}

// chunk limits the prompt tokens of a step; 0: no limit.
func (f *modelFlags) chunk(c *cobra.Command, n int) error {
	const least, all = graph.PartBlock, 1 << 30
	switch {
	case n < 0 || 0 < n && n < least:
		return fmt.Errorf("--chunk is %d; it must be at least %d tokens, or 0 for all", n, least)
	case n == 0:
		f.options.MaxTokensPerStep = all
	case c.Flags().Changed("chunk"):
		f.options.MaxTokensPerStep = n
	}
	return nil
}

// generateRun is a prompt that is continued.
type generateRun struct {
	*modelFlags
	m   *krait.Model
	ids bool
	to  output
	o   krait.Generate
}

func (r *generateRun) run(c *cobra.Command, prompt string) error {
	if r.o.MaxTokens < 1 {
		return fmt.Errorf("--max-tokens is %d; it must be at least 1", r.o.MaxTokens)
	}
	out, info := c.OutOrStdout(), c.ErrOrStderr()
	if r.quiet {
		info = io.Discard
	}
	var text bytes.Buffer
	switch {
	case r.to.json:
		out, info = io.Discard, io.Discard
	case r.to.file != "" && r.to.file != "-":
		out = &text
	}
	fmt.Fprintln(info, "model  ", describe(r.m, &r.device))
	if r.o.Temperature > 0 {
		fmt.Fprintln(info, "seed   ", r.o.Seed)
	}
	if !r.quiet {
		r.o.OnFallback = func(why error) {
			fmt.Fprintln(c.ErrOrStderr(), "warning: prefill in this process:", printable(why.Error()))
		}
	}
	var read func()
	r.o.OnPrompt, read = terminal.Progress(c.ErrOrStderr(), "prompt", "tokens", r.quiet)
	g, err := r.generate(c.Context(), out, prompt, sync.OnceFunc(read))
	read()
	if g == nil {
		return err
	}
	if err != nil {
		if len(g.IDs) > 0 {
			fmt.Fprintln(out) // after the text so far
		}
		return err
	}
	if r.to.json {
		return writeJSON(c, r.to.file, r.figures(g))
	}
	fmt.Fprintln(out)
	r.printProbs(out, g)
	fmt.Fprintf(info, "prompt  %s, TTFT %s\n", count(g.PromptTokens, "token"), round(g.TTFT))
	if r.options.PrefixCache > 0 {
		fmt.Fprintf(info, "cache   cached %d of %s\n", g.CachedTokens, count(g.PromptTokens, "prompt token"))
	}
	if g.Drafts > 0 {
		fmt.Fprintf(info, "drafts  accepted %d of %s of %s\n", g.Accepted, count(g.Drafts, "token"), g.Drafter)
	}
	if g.DraftError != nil {
		fmt.Fprintln(info, "warning: no more drafts:", printable(g.DraftError.Error()))
	}
	if x := g.Remote; x != nil {
		fmt.Fprintf(info, "prefill %s by the server in %s; %s bytes in %s, %s", count(x.Tokens, "token"), round(x.Prefill), thousands(x.Bytes), count(x.Pieces, "piece"), round(x.Transfer))
		if x.Local > 0 {
			fmt.Fprintf(info, "; KV rows of %d were here", x.Local)
		}
		fmt.Fprintln(info)
	}
	fmt.Fprintf(info, "output  %s, %.1f tokens/s, ended by %s\n", count(len(g.IDs), "token"), g.TokensPerSecond(), g.Reason)
	if text.Len() > 0 {
		return write(c, r.to.file, text.Bytes())
	}
	return nil
}

// printProbs prints the log-probabilities, if they were asked for.
func (r *generateRun) printProbs(out io.Writer, g *krait.Generation) {
	if !r.o.LogProbs {
		return
	}
	fmt.Fprintf(out, "\n%8s %8s %7s  %s\n", "token", "logprob", "p", "text")
	for _, p := range r.probs(g) {
		fmt.Fprintln(out, p.row())
	}
}

func (r *generateRun) probs(g *krait.Generation) []tokenProb {
	t, _ := r.m.Tokenizer() // without one, ids do
	return probsOf(t, g.IDs, g.LogProbs)
}

// generate streams the text, or ids; first is called before anything is printed.
func (r *generateRun) generate(ctx context.Context, out io.Writer, prompt string, first func()) (*krait.Generation, error) {
	if !r.ids {
		r.o.OnText = after(first, func(text string) { io.WriteString(out, text) })
		return r.m.Generate(ctx, prompt, r.o)
	}
	tokens, err := readIDs(prompt)
	if err != nil {
		return nil, err
	}
	each := after(first, separated(out))
	r.o.OnToken = func(id int, _ time.Time) { each(id) }
	return r.m.GenerateIDs(ctx, tokens, r.o)
}

// figures is a generation as JSON.
func (r *generateRun) figures(g *krait.Generation) any {
	return struct {
		Model        modelFigures  `json:"model"`
		Text         string        `json:"text"`
		IDs          []int         `json:"ids"`
		Reason       krait.Reason  `json:"reason"`
		Seed         *uint64       `json:"seed,omitempty"`
		PromptTokens int           `json:"prompt_tokens"`
		CachedTokens int           `json:"cached_tokens"`
		TTFT         float64       `json:"ttft_seconds"`
		Total        float64       `json:"total_seconds"`
		Rate         float64       `json:"tokens_per_second"`
		Drafts       *draftFigures `json:"drafts,omitempty"`
		Prefill      *remoteReport `json:"prefill,omitempty"`
		LogProbs     []tokenProb   `json:"logprobs,omitempty"`
	}{figuresOf(r.m, r.device.name), g.Text, append([]int{}, g.IDs...), g.Reason, seedOf(&r.o), g.PromptTokens, g.CachedTokens, g.TTFT.Seconds(), g.Total.Seconds(), g.TokensPerSecond(), draftsOf(g), transferOf(g, r.o.Prefill), r.probs(g)}
}

// draftFigures counts the drafts of speculative decoding.
type draftFigures struct {
	Kind     string `json:"kind"`
	Drafted  int    `json:"drafted"`
	Accepted int    `json:"accepted"`
}

func draftsOf(g *krait.Generation) *draftFigures {
	if g.Drafts == 0 {
		return nil
	}
	return &draftFigures{g.Drafter, g.Drafts, g.Accepted}
}

// remoteReport describes the prefill of another server.
type remoteReport struct {
	Tokens   int     `json:"tokens"` // that were prefilled there
	Held     int     `json:"held"`   // of these, whose rows were here
	Bytes    int64   `json:"bytes"`
	Pieces   int     `json:"pieces"`
	Prefill  float64 `json:"prefill_seconds"`
	Reading  float64 `json:"transfer_seconds"`
	Fallback string  `json:"fallback,omitempty"` // why this process prefilled the prompt
}

func transferOf(g *krait.Generation, p krait.Prefiller) *remoteReport {
	if p == nil {
		return nil
	}
	f := &remoteReport{}
	if x := g.Remote; x != nil {
		*f = remoteReport{Tokens: x.Tokens, Held: x.Local, Bytes: x.Bytes, Pieces: x.Pieces, Prefill: x.Prefill.Seconds(), Reading: x.Transfer.Seconds()}
	}
	if g.Fallback != nil {
		f.Fallback = g.Fallback.Error()
	}
	return f
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

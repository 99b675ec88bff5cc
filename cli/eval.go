package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/checkpoint/hub"
	"github.com/krait-ml/krait/internal/terminal"
	"github.com/krait-ml/krait/lab/agreement"
	"github.com/spf13/cobra"
)

func newEval() *cobra.Command {
	var f modelFlags
	var o krait.Evaluate
	from := modelArg{kind: "DIR"}
	var path, against string
	var ids bool
	var out output
	var limit int
	c := &cobra.Command{
		Use:   "eval [flags] [DIR]",
		Short: "Measure how well a model predicts a text",
		Long: `Eval scores a text: the mean of -log2 p over its tokens, as bits per byte and as perplexity
per token. The text is cut into windows that start from an empty state and whose first token
is not scored; --window 0 makes it one window.

With --payload, --states or --math it also runs the model with exact payloads, states and
products in f32, and prints how well the two agree:
  top-1            share of tokens with the same most probable prediction
  top-5 ordered    share with the same five predictions in the same order, the
                   published measure
  top-5 places     mean share of the five positions with the same prediction
  top-5 same set   share with the same five predictions in any order
  top-5 unordered  mean overlap of the two sets of five predictions

With --against DIR2 it also scores the text with another model, such as the source of
krait convert --type q8, and prints how many more bits DIR needs.

Without DIR it uses the embedded model.`,
		Example: `  krait eval --text testdata/val.txt
  krait eval --text testdata/val.txt --tp 4 --payload fp16
  krait eval --text testdata/val.txt --window 0 --limit 4096
  krait eval ~/models/mamba-130m-q8 --against ~/models/mamba-130m-hf --text text.txt
  krait eval ~/models/mamba-130m-hf --text ids.txt --ids --window 2048`,
		Args: takes(0, 1, "one DIR"),
		RunE: func(c *cobra.Command, args []string) error {
			if path == "" {
				return errors.New("--text FILE is missing: the text file to score")
			}
			if limit < 0 || o.Window < 0 {
				return fmt.Errorf("--window %d and --limit %d: neither may be negative", o.Window, limit)
			}
			dir, err := from.take(c, args)
			if err == nil {
				against, err = locate(c, against, hub.Weights)
			}
			if err != nil {
				return err
			}
			f.options.Slots = 1
			if err := f.connect(c); err != nil {
				return err
			}
			if f.comm.follows() {
				return f.followEval(c, dir, against)
			}
			m, err := f.open(c, dir)
			if err != nil {
				return err
			}
			defer m.Close()
			var other *krait.Model
			if against != "" {
				if other, err = f.open(c, against); err != nil {
					return err
				}
				defer other.Close()
			}
			r := evalReport{Model: figuresOf(m, f.device.name), Text: path}
			tokens, err := r.read(c, m, ids, limit)
			if err != nil {
				return err
			}
			var done func()
			o.Progress, done = terminal.Progress(c.ErrOrStderr(), "eval", "tokens", f.quiet)
			e, err := m.Evaluate(c.Context(), tokens, o)
			done()
			if err != nil {
				return err
			}
			r.score(e)
			now := !out.json && out.file == "" // before a comparison, which takes as long again
			if now {
				r.print(c.OutOrStdout(), describe(m, &f.device))
			}
			if r.roundings = f.rounded(); r.roundings != (roundings{}) {
				if r.Agreement, err = f.agreement(c, m, dir, tokens, o); err != nil {
					return err
				}
			}
			if other != nil {
				if r.Against, err = f.against(c, other, &r, tokens, o); err != nil {
					return err
				}
			}
			return out.print(c, r, func(w io.Writer) {
				if !now {
					r.print(w, describe(m, &f.device))
				}
				r.printAgainst(w)
				r.printAgreement(w)
			})
		},
	}
	f.add(c)
	from.add(c)
	out.add(c)
	c.Flags().StringVar(&path, "text", "", "text file to score (required); - is standard input")
	c.Flags().StringVar(&against, "against", "", "DIR2, a second model to compare with")
	c.Flags().BoolVar(&ids, "ids", false, "take --text as token ids")
	c.Flags().IntVar(&o.Window, "window", 512, "tokens per window; 0: the whole text is one window")
	c.Flags().IntVar(&limit, "limit", 0, "score only the first tokens of the text; 0: all")
	return c
}

// evalReport is the result of eval.
type evalReport struct {
	Model        modelFigures `json:"model"`
	Text         string       `json:"text"`
	Bytes        int          `json:"bytes,omitempty"` // of the text, where it is text
	Tokens       int          `json:"tokens"`
	Windows      int          `json:"windows"`
	Scored       int          `json:"scored"`
	BitsPerByte  figure       `json:"bits_per_byte,omitempty"`
	BitsPerToken figure       `json:"bits_per_token"`
	Perplexity   figure       `json:"perplexity"`
	Against      *evalReport  `json:"against,omitempty"` // of the other model
	roundings
	Agreement *agreement.Agreement `json:"agreement,omitempty"` // with nothing rounded
}

// roundings are the formats of payloads, states and products, empty where nothing is rounded.
type roundings struct {
	Quantize string `json:"quantize,omitempty"`
	States   string `json:"states,omitempty"`
	Math     string `json:"math,omitempty"`
}

// undone says what a model is like that rounds nothing.
func (r *roundings) undone() string {
	var list []string
	for _, x := range [][2]string{{"exact payloads", r.Quantize}, {"states in f32", r.States}, {"products in f32", r.Math}} {
		if x[1] != "" {
			list = append(list, x[0]+" ("+x[1]+")")
		}
	}
	return strings.Join(list, " and ")
}

// read reads the text as tokens, or as ids.
func (r *evalReport) read(c *cobra.Command, m *krait.Model, ids bool, limit int) (tokens []int, err error) {
	data, err := readText(c, r.Text)
	if err != nil {
		return nil, err
	}
	if ids {
		tokens, err = readIDs(string(data))
	} else {
		var t krait.Tokenizer
		if t, err = m.Tokenizer(); err == nil {
			tokens, err = t.Encode(string(data), false)
			r.Bytes = len(data)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.Text, err)
	}
	if limit > 0 && limit < len(tokens) {
		tokens = tokens[:limit]
		if t, err := m.Tokenizer(); err == nil && r.Bytes > 0 {
			r.Bytes = len(t.Decode(tokens, false))
		}
	}
	r.Tokens = len(tokens)
	return tokens, nil
}

// score sets the scores; bits per byte need the text's bytes. All tokens but the first of each
// window are scored.
func (r *evalReport) score(e *krait.Evaluation) {
	r.Windows, r.Scored = len(e.Windows), e.Scored
	if r.Bytes > 0 {
		r.BitsPerByte = figure(e.Bits / (float64(r.Bytes) * float64(e.Scored) / float64(r.Tokens)))
	}
	r.BitsPerToken, r.Perplexity = figure(e.BitsPerToken()), figure(e.Perplexity())
}

func (r *evalReport) print(w io.Writer, model string) {
	fmt.Fprintln(w, "model          ", model)
	fmt.Fprintf(w, "text            %s, %s in %s, %s scored\n", visible(r.Text), count(r.Tokens, "token"), count(r.Windows, "window"), thousands(int64(r.Scored)))
	if r.Bytes > 0 {
		fmt.Fprintf(w, "bits per byte   %.6f\n", r.BitsPerByte)
	}
	fmt.Fprintf(w, "bits per token  %.6f\n", r.BitsPerToken)
	fmt.Fprintf(w, "perplexity      %.4f\n", r.Perplexity)
}

func (r *evalReport) printAgreement(w io.Writer) {
	a := r.Agreement
	if a == nil {
		return
	}
	fmt.Fprintf(w, "agreement with %s, over %s\n", r.undone(), count(a.Tokens, "token"))
	fmt.Fprintf(w, "top-1           %.2f%%\n", 100*a.Top1)
	fmt.Fprintf(w, "top-5 ordered   %.2f%%\n", 100*a.Top5Ordered)
	fmt.Fprintf(w, "top-5 places    %.2f%%\n", 100*a.Top5Places)
	fmt.Fprintf(w, "top-5 same set  %.2f%%\n", 100*a.Top5Set)
	fmt.Fprintf(w, "top-5 unordered %.2f%%\n", 100*a.Top5Unordered)
}

// against scores the same tokens with another model.
func (f *modelFlags) against(c *cobra.Command, m *krait.Model, r *evalReport, tokens []int, o krait.Evaluate) (*evalReport, error) {
	other := evalReport{Model: figuresOf(m, f.device.name), Text: r.Text, Bytes: r.Bytes, Tokens: r.Tokens}
	var done func()
	o.Progress, done = terminal.Progress(c.ErrOrStderr(), "against", "tokens", f.quiet)
	defer done()
	e, err := m.Evaluate(c.Context(), tokens, o)
	if err != nil {
		return nil, err
	}
	other.score(e)
	return &other, nil
}

// printAgainst prints how many more bits the model takes than the other.
func (r *evalReport) printAgainst(w io.Writer) {
	if r.Against == nil {
		return
	}
	unit, here, there := "token", r.BitsPerToken, r.Against.BitsPerToken
	if r.Bytes > 0 {
		unit, here, there = "byte", r.BitsPerByte, r.Against.BitsPerByte
	}
	fmt.Fprintf(w, "against %s: bits per %s %.6f, %+.6f here\n", visible(r.Against.Model.Name), unit, there, here-there)
}

// rounded returns the formats that the flags set.
func (f *modelFlags) rounded() roundings {
	r := roundings{f.options.Sharding.Payload, f.options.Sharding.States, f.device.options.Math}
	if r.Math == "f32" {
		r.Math = ""
	}
	return r
}

// agreement compares the model with one that rounds nothing.
func (f *modelFlags) agreement(c *cobra.Command, m *krait.Model, dir string, tokens []int, o krait.Evaluate) (*agreement.Agreement, error) {
	plain := f.plain()
	base, err := plain.open(c, dir)
	if err != nil {
		return nil, err
	}
	defer base.Close()
	var done func()
	o.Progress, done = terminal.Progress(c.ErrOrStderr(), "agreement", "tokens", f.quiet)
	defer done()
	return agreement.Measure(c.Context(), m, base, tokens, o)
}

// plain returns the flags of the model with exact payloads, and states and products in f32.
func (f *modelFlags) plain() *modelFlags {
	plain := *f
	plain.quiet = true
	plain.device.options.Math = "f32"
	plain.options.Sharding.Payload, plain.options.Sharding.States = "", ""
	plain.options.Sharding.CheckPayloads = false
	plain.options.Sharding.Dump = nil
	return &plain
}

// followEval follows rank 0 on the models that it opens, in their order.
func (f *modelFlags) followEval(c *cobra.Command, dir, against string) error {
	open := func(f *modelFlags, dir string) func() (*krait.Model, error) {
		return func() (*krait.Model, error) { return f.load(c, dir) }
	}
	list := []func() (*krait.Model, error){open(f, dir)}
	if against != "" {
		list = append(list, open(f, against))
	}
	if f.rounded() != (roundings{}) {
		list = append(list, open(f.plain(), dir))
	}
	return f.comm.follow(c.Context(), list...)
}

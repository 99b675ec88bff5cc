package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync/atomic"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/internal/terminal"
	"github.com/krait-ml/krait/session/draft"
	"github.com/krait-ml/krait/text/chat"
	"github.com/spf13/cobra"
)

// chatFlags are the flags of krait chat.
type chatFlags struct {
	modelFlags
	sampled   samplingFlags
	from      modelArg
	o         krait.Generate
	system    string
	guard     bool
	noHistory bool
}

func newChat() *cobra.Command {
	f := chatFlags{from: modelArg{kind: "DIR"}}
	c := &cobra.Command{
		Use:   "chat [flags] [DIR]",
		Short: "Chat with a model",
		Long: `Chat answers lines of standard input and keeps the sequence's state between turns, so that a
turn prefills its own tokens only. A line that ends with \ continues on the next. Ctrl-C stops
an answer; at the prompt it ends the program.

On a terminal lines can be edited, up and down recall earlier ones, Tab completes commands, and
lines pasted together are one message. Answers are wrapped as Markdown to the window's width.

Lines that begin with / are commands; /help lists them, and // begins a line with /.

The checkpoint's chat template formats the prompt. Without one, Chat warns and begins lines
with User: and Assistant:.`,
		Example: `  krait chat ~/models/falcon-mamba-7b-instruct
  krait chat --system "Answer in one sentence." --temperature 0.7 ~/models/zamba2
  printf 'Hello\n/save talk\n' | krait chat -q ~/models/zamba2`,
		Args: takes(0, 1, "at most a DIR"),
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, args) },
	}
	f.add(c)
	addStateCodec(c, &f.options.StateCodec)
	f.from.add(c)
	f.sampled.add(c, &f.o)
	c.Flags().IntVarP(&f.o.MaxTokens, "max-tokens", "n", 1024, "maximum tokens of an answer")
	c.Flags().StringArrayVar(&f.o.Stop, "stop", nil, "stop string: end an answer before this text (repeatable)")
	c.Flags().BoolVar(&f.o.IgnoreEOS, "ignore-eos", false, "continue after the end-of-sequence token")
	c.Flags().StringVarP(&f.system, "system", "s", "", "system message")
	c.Flags().BoolVar(&f.guard, "guard", false, "encode special tokens in typed text as plain text")
	c.Flags().BoolVar(&f.noHistory, "no-history", false, "keep no file of the lines typed on a terminal")
	c.Flags().Lookup("quiet").Usage = "print the answers only"
	detail(c, "seed", "a random seed is printed; each further answer takes one more.")
	detail(c, "no-history", "by default up to 1,000 are kept in chat_history in $XDG_STATE_HOME/krait (~/.local/state/krait).")
	f.addSpeculate(c, draft.Auto)
	expert(c, "comm", "states", "no-history", "speculate")
	return c
}

func (f *chatFlags) run(c *cobra.Command, args []string) (err error) {
	dir, err := f.from.take(c, args)
	if err != nil {
		return err
	}
	if err := f.sampled.take(c, &f.o); err != nil {
		return err
	}
	if f.o.MaxTokens < 1 {
		return fmt.Errorf("--max-tokens is %d; it must be at least 1", f.o.MaxTokens)
	}
	f.options.Slots = 1
	t := &talk{f: f, c: c, out: c.OutOrStdout(), info: c.ErrOrStderr(), shown: terminal.Is(c.InOrStdin())}
	if f.quiet {
		t.info = io.Discard
	}
	if err := t.open(dir); err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, t.close()) }()
	if t.shown {
		t.onTerminal()
		t.note("/help lists commands; Ctrl-D ends")
	}
	t.reset(f.system)
	return t.run(c.Context(), c.InOrStdin())
}

// talk is a chat on the command line.
type talk struct {
	conversation
	f         *chatFlags
	c         *cobra.Command
	dir       string // of the model
	o         krait.Generate
	changed   []string // what /set was given, in order
	out, info io.Writer
	shown     bool // standard input is a terminal: prompts are shown

	// On a terminal for both input and answers; otherwise nil.
	editor *terminal.Editor
	page   *terminal.Wrapped
}

// open opens a model and says which. Without its own chat template it uses the plain one.
func (t *talk) open(dir string) (err error) {
	o := t.f.o
	if t.m, err = t.f.open(t.c, dir); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			t.m.Close()
			t.m = nil
		}
	}()
	t.dir = dir
	defaults(t.c, t.m, &o)
	if !t.c.Flags().Changed("seed") {
		o.Seed = uint64(rand.Uint32())
	}
	if t.tokens, err = t.m.Tokenizer(); err != nil {
		return err
	}
	t.template, err = t.m.ChatTemplate()
	if errors.Is(err, chat.ErrNone) {
		t.warn("warning", errors.New("the checkpoint has no chat template and may not be a chat model: lines begin with \"User:\" and \"Assistant:\""))
		t.template, err = chat.Plain(), nil
		o.Stop = append([]string{"\nUser:"}, o.Stop...)
	}
	if err != nil {
		return err
	}
	if t.f.guard {
		t.guard = chat.Specials(t.tokens)
	}
	if t.seq, err = t.m.NewSequence(); err != nil {
		return err
	}
	t.o = o
	t.note("model   " + describe(t.m, &t.f.device))
	if o.Temperature > 0 {
		t.note(fmt.Sprint("seed    ", o.Seed))
	}
	return nil
}

// close closes the model.
func (t *talk) close() error {
	if t.m == nil {
		return nil
	}
	t.seq.Close()
	err := t.m.Close()
	t.m, t.marks = nil, nil
	return err
}

// note prints a line beside the talk.
func (t *talk) note(text string) {
	text = terminal.Break(t.info, text)
	if t.page != nil {
		text = terminal.Dim(text)
	}
	fmt.Fprintln(t.info, text)
}

// warn prints what is wrong.
func (t *talk) warn(what string, err error) {
	fmt.Fprintln(t.info, terminal.Break(t.info, what+": "+printable(err.Error())))
}

// run answers lines until there are no more, or the context is done.
func (t *talk) run(ctx context.Context, in io.Reader) error {
	next := t.lines(in)
	for {
		text, err := next(ctx)
		if text != "" {
			if err := t.line(ctx, text); err == errQuit {
				return nil
			} else if err != nil {
				return err
			}
		}
		switch {
		case err == io.EOF:
			if t.shown && t.editor == nil {
				fmt.Fprintln(t.out)
			}
			return nil
		case err != nil:
			return err
		}
	}
}

// line runs a line. Errors are printed, and the chat continues.
func (t *talk) line(ctx context.Context, text string) error {
	if rest, ok := strings.CutPrefix(text, "/"); ok && !strings.HasPrefix(rest, "/") {
		err := t.command(rest)
		if err != nil && err != errQuit && t.m != nil {
			t.warn("error", err)
			return nil
		}
		return err
	} else if ok {
		text = rest
	}
	if strings.TrimSpace(text) == "" {
		return nil
	}
	return t.answer(ctx, text)
}

// answer answers the user. It returns only errors that end the chat.
func (t *talk) answer(ctx context.Context, text string) error {
	answering, stop := context.WithCancel(ctx)
	defer stop()
	defer onInterrupt(func() bool { stop(); return true })()
	var end func()
	t.reading, end = terminal.Progress(t.info, "prompt", "tokens", false)
	defer end()
	begun := false
	out, err := t.ask(answering, text, t.o, func(text string, sofar *reply) {
		end()
		if !begun { // what a template leaves before an answer is not shown
			text = strings.TrimLeft(text, " \n")
		}
		begun = begun || text != ""
		t.say(text, sofar)
	})
	end()
	t.o.Seed++ // so that the same question gets another answer
	if out != nil {
		t.said()
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, krait.ErrClosed):
		return err
	case errors.Is(err, errStopped):
		t.note("[stopped]")
	case err != nil:
		t.warn("error", err)
	default:
		t.note(fmt.Sprintf("[prefilled %d of %s, generated %d at %.1f tokens/s, ended by %s]", out.read, count(out.prompt, "token"), out.tokens, out.rate, out.reason))
	}
	return nil
}

// say writes a part of an answer, on a terminal with the rate below it.
func (t *talk) say(text string, sofar *reply) {
	if t.page == nil {
		io.WriteString(t.out, text)
		return
	}
	if !t.f.quiet {
		t.page.Status(fmt.Sprintf("%s, %.1f tokens/s; Ctrl-C stops", count(sofar.tokens, "token"), sofar.rate))
	}
	io.WriteString(t.page, text)
}

// said ends an answer.
func (t *talk) said() {
	if t.page == nil {
		fmt.Fprintln(t.out)
		return
	}
	t.page.End()
}

// interrupts is called on Ctrl-C; if it returns false the program ends.
var interrupts atomic.Pointer[func() bool]

// onInterrupt sets it until the function that it returns is called.
func onInterrupt(f func() bool) (end func()) {
	interrupts.Store(&f)
	return func() { interrupts.Store(nil) }
}

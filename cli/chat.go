package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/text/chat"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

func newChat() *cobra.Command {
	var f modelFlags
	var sampled samplingFlags
	var o krait.Generate
	from := modelArg{kind: "DIR"}
	var system string
	var guard bool
	c := &cobra.Command{
		Use:   "chat [flags] [DIR]",
		Short: "Chat with a model",
		Long: `Chat answers lines of standard input and keeps the sequence's state between turns, so that a
turn prefills its own tokens only. A line that ends with \ continues on the next. Ctrl-C stops
an answer; at the prompt it ends the program.

Lines that begin with / are commands; /help lists them, and // begins a line with /.

The checkpoint's chat template formats the prompt. Without one, Chat warns and begins lines
with User: and Assistant:.`,
		Example: `  krait chat ~/models/falcon-mamba-7b-instruct
  krait chat --system "Answer in one sentence." --temperature 0.7 ~/models/zamba2
  printf 'Hello\n/save talk\n' | krait chat -q ~/models/zamba2`,
		Args: takes(0, 1, "at most a DIR"),
		RunE: func(c *cobra.Command, args []string) (err error) {
			dir, err := from.take(c, args)
			if err != nil {
				return err
			}
			if err := sampled.take(c, &o); err != nil {
				return err
			}
			if o.MaxTokens < 1 {
				return fmt.Errorf("--max-tokens is %d; it must be at least 1", o.MaxTokens)
			}
			f.options.Slots = 1
			m, err := f.open(c, dir)
			if err != nil {
				return err
			}
			defer func() { err = cmp.Or(err, m.Close()) }()
			defaults(c, m, &o)
			if !c.Flags().Changed("seed") {
				o.Seed = uint64(rand.Uint32())
			}
			t, err := newTalk(c, &f, m, o)
			if err != nil {
				return err
			}
			defer t.seq.Close()
			if guard {
				t.guard = chat.Specials(t.conversation.tokens)
			}
			t.reset(system)
			return t.run(c.Context(), c.InOrStdin())
		},
	}
	f.add(c)
	addStateCodec(c, &f.options.StateCodec)
	from.add(c)
	sampled.add(c, &o)
	c.Flags().IntVarP(&o.MaxTokens, "max-tokens", "n", 1024, "maximum tokens of an answer")
	c.Flags().StringArrayVar(&o.Stop, "stop", nil, "stop string: end an answer before this text (repeatable)")
	c.Flags().BoolVar(&o.IgnoreEOS, "ignore-eos", false, "continue after the end-of-sequence token")
	c.Flags().StringVarP(&system, "system", "s", "", "system message")
	c.Flags().BoolVar(&guard, "guard", false, "encode special tokens in typed text as plain text")
	c.Flags().Lookup("quiet").Usage = "print the answers only"
	detail(c, "seed", "a random seed is printed; each further answer takes one more.")
	expert(c, "comm", "states")
	return c
}

// talk is a chat on the command line.
type talk struct {
	conversation
	o         krait.Generate
	out, info io.Writer
	shown     bool // standard input is a terminal: prompts are shown
}

func newTalk(c *cobra.Command, f *modelFlags, m *krait.Model, o krait.Generate) (*talk, error) {
	t := &talk{o: o, out: c.OutOrStdout(), info: c.ErrOrStderr()}
	t.m = m
	if f.quiet {
		t.info = io.Discard
	}
	var err error
	if t.conversation.tokens, err = m.Tokenizer(); err != nil {
		return nil, err
	}
	t.template, err = m.ChatTemplate()
	if errors.Is(err, chat.ErrNone) {
		fmt.Fprintln(t.info, "warning: the checkpoint has no chat template and may not be a chat model: lines begin with User: and Assistant:")
		t.template, err = chat.Plain(), nil
		t.o.Stop = append([]string{"\nUser:"}, t.o.Stop...)
	}
	if err != nil {
		return nil, err
	}
	if t.seq, err = m.NewSequence(); err != nil {
		return nil, err
	}
	fmt.Fprintln(t.info, "model  ", describe(m, f.device.name))
	if o.Temperature > 0 {
		fmt.Fprintln(t.info, "seed   ", o.Seed)
	}
	if file, ok := c.InOrStdin().(*os.File); ok {
		t.shown = term.IsTerminal(int(file.Fd()))
	}
	if t.shown {
		fmt.Fprintln(t.info, "/help lists commands; Ctrl-D ends")
	}
	return t, nil
}

// run answers lines until there are no more, or the context is done.
func (t *talk) run(ctx context.Context, in io.Reader) error {
	next := inputLines(in)
	for {
		if t.shown {
			fmt.Fprint(t.out, "> ")
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case line := <-next:
			if line.text != "" {
				if err := t.line(ctx, line.text); err == errQuit {
					return nil
				} else if err != nil {
					return err
				}
			}
			switch {
			case line.err == io.EOF:
				if t.shown {
					fmt.Fprintln(t.out)
				}
				return nil
			case line.err != nil:
				return line.err
			}
		}
	}
}

// inputLine is a line of the input, or several that belong together.
type inputLine struct {
	text string
	err  error // after the line
}

// longestLineRead is how many bytes of a line are read.
const longestLineRead = 1 << 20

// inputLines reads the input line by line.
func inputLines(in io.Reader) <-chan inputLine {
	next := make(chan inputLine)
	go func() {
		s := bufio.NewScanner(in)
		s.Buffer(nil, longestLineRead)
		text := ""
		for s.Scan() {
			line := strings.TrimSuffix(s.Text(), "\r")
			if before, more := strings.CutSuffix(line, `\`); more {
				text += before + "\n"
				continue
			}
			next <- inputLine{text: text + line}
			text = ""
		}
		err := s.Err()
		if errors.Is(err, bufio.ErrTooLong) {
			err = fmt.Errorf("a line has more than %d bytes, the limit", longestLineRead)
		}
		next <- inputLine{strings.TrimSuffix(text, "\n"), cmp.Or(err, io.EOF)}
	}()
	return next
}

// line runs a line. Errors are printed, and the chat continues.
func (t *talk) line(ctx context.Context, text string) error {
	if rest, ok := strings.CutPrefix(text, "/"); ok && !strings.HasPrefix(rest, "/") {
		err := t.command(rest)
		if err != nil && err != errQuit {
			fmt.Fprintln(t.info, "error:", printable(err.Error()))
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
	begun := false
	out, err := t.ask(answering, text, t.o, func(text string) {
		if !begun { // what a template leaves before an answer is not shown
			text = strings.TrimLeft(text, " \n")
		}
		begun = begun || text != ""
		io.WriteString(t.out, text)
	})
	t.o.Seed++ // so that the same question gets another answer
	if out != nil {
		fmt.Fprintln(t.out)
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, krait.ErrClosed):
		return err
	case errors.Is(err, errStopped):
		fmt.Fprintln(t.info, "[stopped]")
	case err != nil:
		fmt.Fprintln(t.info, "error:", printable(err.Error()))
	default:
		fmt.Fprintf(t.info, "[prefilled %d of %s, generated %d at %.1f tokens/s, ended by %s]\n", out.read, count(out.prompt, "token"), out.tokens, out.rate, out.reason)
	}
	return nil
}

// interrupts is called on Ctrl-C; if it returns false the program ends.
var interrupts atomic.Pointer[func() bool]

// onInterrupt sets it until the function that it returns is called.
func onInterrupt(f func() bool) (end func()) {
	interrupts.Store(&f)
	return func() { interrupts.Store(nil) }
}

package cli

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/text/chat"
	"github.com/krait-ml/krait/text/sampling"
	"github.com/krait-ml/krait/text/tokenizer"
)

// conversation is an active chat. The sequence's state stays between turns, so that a turn
// reads its own tokens only; where the template renders earlier turns in another way than
// before, it continues from the latest mark that still matches.
type conversation struct {
	m        *krait.Model
	template *chat.Template
	tokens   tokenizer.Tokenizer
	guard    []string
	seq      *krait.Sequence
	reading  func(done, all int) // gets the progress of a prefill; nil: not called

	messages []chat.Message
	turns    []turn
	fed      []int      // what the sequence has read
	known    string     // the text of it, as it was rendered and written
	marks    []bookmark // in the order of their tokens
}

// turn is where a turn began, for undo.
type turn struct{ messages, fed int }

// bookmark is a state that the sequence can go back to.
type bookmark struct {
	fed   []int
	known string
	state *krait.Snapshot
}

// mostMarks bounds how many states are kept: two for each turn.
const mostMarks = 32

// reply describes an answer.
type reply struct {
	text   string
	reason krait.Reason
	read   int // tokens of the prompt that were read for it
	prompt int // tokens that it has
	tokens int // of the answer
	rate   float64
}

// errStopped ends an answer that the user stopped.
var errStopped = errors.New("stopped")

// ask adds what the user says and writes the answer to emit, with what is known of it so far. Where
// an error comes before the answer begins, the conversation is what it was.
func (c *conversation) ask(ctx context.Context, text string, o krait.Generate, emit func(text string, sofar *reply)) (*reply, error) {
	begun := turn{messages: len(c.messages)}
	messages := append(slices.Clip(c.messages), chat.Message{Role: "user", Content: text})
	prompt, err := c.template.Render(messages, chat.Options{Generate: true, Guard: c.guard})
	if err != nil {
		return nil, err
	}
	ids, err := chat.Encode(c.tokens, prompt)
	if err != nil {
		return nil, err
	}
	if len(ids) == 0 {
		return nil, errors.New("the chat template renders these messages to an empty prompt")
	}
	sampler, err := sampling.New(o.Sampling(), c.m.Vocab())
	if err != nil {
		return nil, err
	}
	stop, err := sampling.NewStop(o.Stop)
	if err != nil {
		return nil, err
	}
	rest, err := c.goOn(ids)
	if err != nil {
		return nil, err
	}
	begun.fed = len(c.fed)
	if err := c.mark(); err != nil {
		return nil, err
	}
	out := &reply{read: len(rest), prompt: len(ids)}
	logits, err := c.read(ctx, rest)
	if err != nil {
		return nil, errors.Join(err, c.undoTo(begun))
	}
	c.known = prompt
	if err := c.mark(); err != nil {
		return nil, err
	}
	sampler.Read(ids...)
	w := answer{c: c, o: &o, sampler: sampler, stop: stop, stream: c.tokens.NewStream(true), emit: emit, out: out}
	err = w.run(ctx, logits)
	c.messages = append(messages, chat.Message{Role: "assistant", Content: out.text})
	c.turns = append(c.turns, begun)
	c.known += out.text
	return out, err
}

// goOn lets the sequence have as much of a prompt as it had before, and returns the rest,
// of at least one token.
func (c *conversation) goOn(ids []int) ([]int, error) {
	if rest := c.after(ids, c.fed, c.known); rest != nil {
		return rest, nil
	}
	for len(c.marks) > 0 {
		last := c.marks[len(c.marks)-1]
		if rest := c.after(ids, last.fed, last.known); rest != nil {
			c.fed, c.known = last.fed, last.known
			return rest, c.seq.Restore(last.state)
		}
		c.marks = c.marks[:len(c.marks)-1]
	}
	c.fed, c.known = nil, ""
	return ids, c.seq.Reset()
}

// after is what follows the tokens that were fed in ids, or nil where these do not begin with
// them. An answer's tokens may be others than those of its text: the text decides.
func (c *conversation) after(ids, fed []int, known string) []int {
	if begins(ids, fed) {
		return ids[len(fed):]
	}
	same, err := chat.Encode(c.tokens, known)
	if err == nil && len(fed) > 0 && begins(ids, same) && c.tokens.Decode(same, false) == c.tokens.Decode(fed, false) {
		return ids[len(same):]
	}
	return nil
}

// begins reports whether a list begins with another, and is longer.
func begins(list, with []int) bool {
	return len(list) > len(with) && slices.Equal(list[:len(with)], with)
}

// mark keeps the state.
func (c *conversation) mark() error {
	if len(c.fed) == 0 {
		return nil
	}
	if n := len(c.marks); n > 0 && len(c.marks[n-1].fed) == len(c.fed) {
		return nil
	}
	state, err := c.seq.Snapshot()
	if err != nil {
		return err
	}
	if len(c.marks) == mostMarks {
		c.marks = slices.Delete(c.marks, 0, 1)
	}
	c.marks = append(c.marks, bookmark{slices.Clip(c.fed), c.known, state})
	return nil
}

// read feeds tokens, some at a time, so that it can be stopped between.
func (c *conversation) read(ctx context.Context, ids []int) (logits []float32, err error) {
	const chunk = 512
	done := 0
	for part := range slices.Chunk(ids, chunk) {
		if c.reading != nil {
			c.reading(done, len(ids))
		}
		done += len(part)
		if ctx.Err() != nil {
			return nil, errStopped
		}
		if logits, err = c.feed(ctx, part...); err != nil {
			return nil, err
		}
	}
	return logits, nil
}

// feed feeds tokens. A step is not stopped in its middle: the state would be lost.
func (c *conversation) feed(ctx context.Context, ids ...int) ([]float32, error) {
	logits, err := c.seq.Step(context.WithoutCancel(ctx), ids...)
	if err != nil {
		c.forget()
		return nil, err
	}
	c.fed = append(c.fed, ids...)
	return logits, nil
}

// forget begins the sequence anew; the messages stay, and are read again by the next turn.
func (c *conversation) forget() {
	c.fed, c.known, c.marks = nil, "", nil
	_ = c.seq.Reset() // if this fails, the next step says so
}

// undo takes back the last turn, and returns what the user said in it.
func (c *conversation) undo() (said string, err error) {
	n := len(c.turns)
	if n == 0 {
		return "", errors.New("there is no turn to undo")
	}
	last := c.turns[n-1]
	said = c.messages[last.messages].Content
	c.turns = c.turns[:n-1]
	c.messages = c.messages[:last.messages]
	return said, c.undoTo(last)
}

// undoTo takes the sequence back to where a turn began, if that is kept.
func (c *conversation) undoTo(t turn) error {
	for n := len(c.marks); n > 0 && len(c.marks[n-1].fed) > t.fed; n-- {
		c.marks = c.marks[:n-1]
	}
	if n := len(c.marks); n > 0 {
		c.fed, c.known = c.marks[n-1].fed, c.marks[n-1].known
		return c.seq.Restore(c.marks[n-1].state)
	}
	c.forget()
	return nil
}

// reset begins anew, with the system's message.
func (c *conversation) reset(system string) {
	c.messages, c.turns = nil, nil
	if system != "" {
		c.messages = []chat.Message{{Role: "system", Content: system}}
	}
	c.forget()
}

// system is what the system says.
func (c *conversation) system() string {
	if len(c.messages) > 0 && c.messages[0].Role == "system" {
		return c.messages[0].Content
	}
	return ""
}

// answer is an answer that is being written.
type answer struct {
	c       *conversation
	o       *krait.Generate
	sampler *sampling.Sampler
	stop    *sampling.Stop
	stream  tokenizer.Stream
	emit    func(string, *reply)
	out     *reply
	begun   time.Time
}

// run chooses tokens until there is a reason to end, or the user stops it.
func (w *answer) run(ctx context.Context, logits []float32) error {
	w.begun = time.Now()
	err := w.tokens(ctx, logits)
	if w.out.reason != krait.ReachedStop {
		w.say(w.stream.Flush())
		w.put(w.stop.Flush())
	}
	w.measure()
	return err
}

// measure computes the rate until now.
func (w *answer) measure() {
	if t := time.Since(w.begun).Seconds(); t > 0 {
		w.out.rate = float64(w.out.tokens) / t
	}
}

func (w *answer) tokens(ctx context.Context, logits []float32) error {
	eos := w.c.m.EOS()
	for w.out.tokens < w.o.MaxTokens {
		id, err := w.sampler.Sample(logits)
		if err != nil {
			return err
		}
		w.sampler.Accept(id)
		if !w.o.IgnoreEOS && slices.Contains(eos, id) {
			w.out.reason = krait.ReachedEOS
			return nil
		}
		if logits, err = w.c.feed(ctx, id); err != nil {
			return err
		}
		w.out.tokens++
		if w.say(w.stream.Push(id)) {
			w.out.reason = krait.ReachedStop
			return nil
		}
		if ctx.Err() != nil {
			return errStopped
		}
	}
	w.out.reason = krait.ReachedMax
	return nil
}

// say takes text and reports whether it ends at a stop string.
func (w *answer) say(text string) bool {
	shown, stopped := w.stop.Push(text)
	w.put(shown)
	return stopped
}

func (w *answer) put(text string) {
	if text != "" {
		w.out.text += text
		w.measure()
		w.emit(text, w.out)
	}
}

package openai

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/internal/program"
	"github.com/krait-ml/krait/internal/trace"
	"github.com/krait-ml/krait/serving/internal/api"
	"github.com/krait-ml/krait/session/admit"
	"github.com/krait-ml/krait/text/reply"
	"github.com/krait-ml/krait/text/tokenizer"
)

// form formats generated texts as the API's objects.
type form interface {
	send(e *events, c *choice, p part) error          // a part of a choice, in a stream
	end(e *events, u *usage) error                    // of a stream
	fail(e *events, err *Error)                       // in a stream
	whole(list []*choice, parts []part, u *usage) any // the answer, if it is not streamed
}

// part is a piece of a choice's text.
type part struct {
	text   string
	said   reply.Output // the text of a chat, taken apart
	probs  []probToken
	ids    []int
	first  bool
	finish *string
}

// probToken is a token with its log-probabilities, where the client requests them.
type probToken struct {
	krait.LogProbs
	id     int
	offset int // of the token's text, in characters
}

// choice is one generated text. A single goroutine owns it.
type choice struct {
	index  int
	prompt []int
	extra  *extra
	shares bool // it shares the prefill of the choice before it
	o      krait.Generate
	out    *krait.Generation

	parser *reply.Parser // nil: the text is what it says

	ticket  *admit.Ticket
	call    trace.Call    // of the request
	prefill trace.Context // of the span of the prefill
	arrived time.Time
	queued  time.Duration
	first   time.Duration    // until the first token was chosen
	last    time.Duration    // until the last one was
	tokens  int              // so far
	took    time.Duration    // until it ended
	ids     []int            // tokens that no part has yet, where parts have them
	stream  tokenizer.Stream // counts characters
	chars   int
	id      int // of the token before its log-probabilities come
	probs   []probToken
	scored  []krait.LogProbs // of the prompt's tokens from the second on, where it is echoed with them
	begun   bool             // a part was sent
	done    bool             // it ended without an error
}

func (s *Server) head(prefix, object string) head {
	return head{ID: api.NewID(prefix), Object: object, Created: time.Now().Unix(), Model: s.o.Name, Build: "krait-" + program.Version()}
}

// serve generates the choices of a request, and writes them.
func (s *Server) serve(w *response, r *http.Request, p *params, prompts [][]int, f form) error {
	if !s.o.ShareCache {
		p.generate.Salt = w.tenant
	}
	by, err := s.namedPrefill(r)
	if err != nil {
		return err
	}
	p.generate.Prefill, p.generate.Tenant = by, w.tenant
	list, err := s.choices(p, prompts)
	if err != nil {
		return err
	}
	var stream *events
	if p.stream {
		stream = &events{w: w}
	}
	if s.m.Speculates() {
		w.used.Drafts = &draftDetails{}
	}
	runErr := s.run(r.Context(), w.tenant, list, p.choices, stream, f)
	for _, c := range list {
		w.queued = max(w.queued, c.queued)
		w.used.add(c)
	}
	switch {
	case runErr != nil && stream != nil && w.status != 0:
		f.fail(stream, errorOf(runErr))
		return runErr
	case runErr != nil:
		return runErr
	case stream != nil:
		return f.end(stream, &w.used)
	}
	parts := make([]part, len(list))
	for i, c := range list {
		parts[i] = part{text: c.out.Text, probs: c.probs, ids: c.ids, first: true, finish: finish(c.out)}
		parts[i].said, parts[i].finish = c.hear(parts[i].text, parts[i].finish)
	}
	api.WriteJSON(w, http.StatusOK, f.whole(list, parts, &w.used))
	return nil
}

// choices makes the choices of a request, n for each prompt, with distinct seeds.
func (s *Server) choices(p *params, prompts [][]int) ([]*choice, error) {
	if n := len(prompts) * p.choices; n > s.queue.Max() {
		return nil, bad("n", "it is %d; at most %d sequences fit this server's queue", n, s.queue.Max())
	}
	var list []*choice
	for _, ids := range prompts {
		o := p.generate
		o.MaxTokens = p.most
		if room := s.m.Session().Longest(); room > 0 {
			if left := room - len(ids) + 1; left < 1 || o.MaxTokens > left && !p.clip {
				e := bad("max_tokens", "the prompt has %d tokens and max_tokens is %d; together they must not exceed %d", len(ids), o.MaxTokens, room)
				code := "context_length_exceeded"
				e.Code = &code
				return nil, e
			} else {
				o.MaxTokens = min(o.MaxTokens, left)
			}
		}
		for range p.choices {
			o.Seed = uint64(p.seed) + uint64(len(list))
			if p.grammar != nil {
				if err := s.constrain(p.grammar, &o); err != nil {
					return nil, err
				}
			}
			s.delay(p.least, &o)
			c := &choice{index: len(list), prompt: ids, extra: &p.extra, o: o, stream: s.tokens.NewStream(true)}
			if p.answer != nil {
				c.parser = p.answer.Parser()
			}
			list = append(list, c)
		}
	}
	return list, nil
}

// run generates the choices, n for each prompt, and returns when all have ended. The first failure
// cancels the others.
func (s *Server) run(ctx context.Context, tenant string, list []*choice, n int, e *events, f form) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var texts []admit.Text
	for i, c := range list {
		c.shares = i%n > 0
		texts = append(texts, admit.Text{Prompt: len(c.prompt), Max: max(c.o.MaxTokens, 1), Shares: c.shares}) // one is chosen in any case
	}
	tickets, err := s.queue.Enter(tenant, texts)
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	var failed atomic.Bool
	for i, c := range list {
		c.ticket = tickets[i]
	}
	for some := range slices.Chunk(list, n) {
		all.Go(func() {
			if err := s.generate(ctx, some, e, f); err != nil {
				failed.Store(true)
				stop(err)
			}
		})
	}
	all.Wait()
	if failed.Load() { // and not where ctx ended after all that
		return context.Cause(ctx)
	}
	return nil
}

// generate generates the choices of a prompt.
func (s *Server) generate(ctx context.Context, list []*choice, e *events, f form) error {
	begun := time.Now()
	call := trace.From(ctx)
	prefill := s.o.Trace.Start(call.Context)
	ctx, stop := context.WithCancelCause(trace.With(ctx, trace.Call{ID: call.ID, Context: prefill}))
	defer stop(nil)
	var options []krait.Generate
	send := func(c *choice, text string, end *string) {
		if err := s.send(c, text, end, e, f); err != nil { // the client does not read
			stop(context.Canceled)
		}
	}
	for _, c := range list {
		c.call, c.prefill = call, prefill
		s.prepare(c, begun, send)
		options = append(options, c.o)
	}
	err := s.m.GenerateChoices(ctx, list[0].prompt, options, func(i int, out *krait.Generation, err error) {
		c := list[i]
		c.took = time.Since(begun)
		if out != nil && out.DraftError != nil {
			s.o.Log.Warn("no more drafts for a text", "id", c.call.ID, "tenant", c.ticket.Name(), "error", out.DraftError)
		}
		if c.out, c.done = out, err == nil; c.done {
			send(c, "", finish(out))
		}
		s.ended(c, cause(ctx, err))
	})
	for _, c := range list {
		if c.out == nil { // it never had a slot
			c.took = time.Since(begun)
			s.ended(c, cause(ctx, err))
		}
	}
	return cause(ctx, err)
}

// cause returns why a context ended, if that is why there is an error.
func cause(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// ended counts a choice with its error, and releases its ticket.
func (s *Server) ended(c *choice, err error) {
	used := 0
	if c.out != nil {
		used = len(c.out.IDs)
		if !c.shares {
			used += len(c.prompt)
		}
	}
	s.text(c, err)
	s.spans(c)
	c.ticket.Leave(used)
}

// prepare sets the callbacks of a choice.
func (s *Server) prepare(c *choice, begun time.Time, send func(c *choice, text string, end *string)) {
	c.arrived = begun
	c.o.OnBegin = func(at time.Time) {
		c.queued = at.Sub(begun)
		c.ticket.Begin()
	}
	c.o.OnToken = func(id int, at time.Time) {
		c.id = id
		s.timed(c, at.Sub(begun))
		if c.extra.ids {
			c.ids = append(c.ids, id)
		}
	}
	c.o.OnLogProbs = func(p krait.LogProbs) {
		c.probs = append(c.probs, probToken{p, c.id, c.chars})
		c.chars += utf8.RuneCountInString(c.stream.Push(c.id))
	}
	c.o.OnPromptLogProbs = func(list []krait.LogProbs) { c.scored = list }
	if by := c.o.Prefill; by == nil || by.Down() {
		c.o.Prefill = s.choosePrefill(c.prompt)
	}
	c.o.OnFallback = func(why error) {
		s.o.Log.Warn("prefill server failed; this server prefills the prompt", "id", c.call.ID, "tenant", c.ticket.Name(), "error", why)
	}
	c.o.OnText = func(text string) { send(c, text, nil) }
}

// timed notes when a token was chosen.
func (s *Server) timed(c *choice, at time.Duration) {
	switch {
	case c.first == 0:
		c.first = at
	case s.o.Metrics != nil:
		s.o.Metrics.Gap(at - c.last)
	}
	c.last = at
	c.tokens++
}

// send sends a part of a choice if the answer is streamed.
func (s *Server) send(c *choice, text string, end *string, e *events, f form) error {
	if e == nil {
		return nil
	}
	said, end := c.hear(text, end)
	if said.Empty() && end == nil { // the parser waits for more
		return nil
	}
	p := part{text: text, said: said, probs: c.probs, ids: c.ids, first: !c.begun, finish: end}
	c.probs, c.ids, c.begun = nil, nil, true
	return f.send(e, c, p)
}

// finish returns the finish_reason of a text.
func finish(g *krait.Generation) *string {
	reason := "stop"
	if g.Reason == krait.ReachedMax {
		reason = "length"
	}
	return &reason
}

// add counts a choice, and its prompt unless an earlier choice shares it.
func (u *usage) add(c *choice) {
	if c.out == nil {
		return
	}
	if !c.shares {
		u.Prompt += len(c.prompt)
		u.Details.Cached += c.out.CachedTokens
	}
	if u.Drafts != nil {
		u.Drafts.Accepted += c.out.Accepted
		u.Drafts.Rejected += c.out.Drafts - c.out.Accepted
	}
	u.Completion += len(c.out.IDs)
	u.Total = u.Prompt + u.Completion
}

// spelling returns a token's text and its bytes. A token that is not valid UTF-8 alone has its
// spelling in the vocabulary, and no bytes unless the vocabulary is of bytes.
func (s *Server) spelling(id int) (string, []int) {
	text := s.tokens.Decode([]int{id}, false)
	if !strings.ContainsRune(text, utf8.RuneError) {
		bytes := make([]int, len(text))
		for i := range bytes {
			bytes[i] = int(text[i])
		}
		return text, bytes
	}
	if _, ok := s.tokens.(tokenizer.Bytes); ok {
		return fmt.Sprintf(`bytes:\x%02x`, id), []int{id}
	}
	if piece, ok := s.tokens.Piece(id); ok && utf8.ValidString(piece) {
		return piece, nil
	}
	return fmt.Sprintf("token_id:%d", id), nil
}

func (s *Server) tokenProb(id int, p float64) tokenProb {
	name, bytes := s.spelling(id)
	return tokenProb{name, finite(p), bytes}
}

// finite replaces -Inf and NaN, which JSON lacks, by the API's -9999.
func finite(p float64) float64 {
	if math.IsInf(p, -1) || math.IsNaN(p) {
		return -9999
	}
	return p
}

// events writes server-sent events. The header goes out with the first event, so that an earlier
// failure still has its own status.
type events struct {
	mu  sync.Mutex
	w   *response
	err error
}

// send sends an event of JSON. The name is empty in most streams.
func (e *events) send(name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return e.write(name, string(data))
}

// failed returns the error of an event that could not be sent.
func (e *events) failed() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err
}

func (e *events) write(name, data string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil {
		return e.err
	}
	if e.w.status == 0 {
		e.w.Header().Set("Content-Type", "text/event-stream")
		e.w.Header().Set("Cache-Control", "no-store")
		e.w.Header().Set("X-Accel-Buffering", "no")
	}
	if name != "" {
		name = "event: " + name + "\n"
	}
	if _, e.err = fmt.Fprintf(e.w, "%sdata: %s\n\n", name, data); e.err == nil {
		e.err = e.w.control.Flush()
	}
	e.w.control.SetWriteDeadline(time.Time{}) // HTTP/2 would apply it between two events, too
	return e.err
}

// listForm is the form of completions and chats: a list of choices, each formatted by itself.
type listForm struct {
	choices choiceForm
	usage   bool // sent at the end of a stream
	usages  bool // and that of its choice in each part
}

type choiceForm interface {
	part(c *choice, p part) any  // a part of a choice, in a stream
	whole(c *choice, p part) any // all of a choice
	heads() (part, whole head)
}

func (f listForm) send(e *events, c *choice, p part) error {
	head, _ := f.choices.heads()
	if f.usage {
		var so *usage
		if f.usages {
			so = &usage{Prompt: len(c.prompt), Completion: c.tokens, Total: len(c.prompt) + c.tokens}
		}
		return e.send("", partWithUsage{head, []any{f.choices.part(c, p)}, so})
	}
	return e.send("", answer{head: head, Choices: []any{f.choices.part(c, p)}})
}

func (f listForm) end(e *events, u *usage) error {
	if head, _ := f.choices.heads(); f.usage {
		e.send("", partWithUsage{head, []any{}, u})
	}
	return e.write("", "[DONE]")
}

func (f listForm) fail(e *events, err *Error) { e.send("", err.Body(e.w.Header())) }

func (f listForm) whole(list []*choice, parts []part, u *usage) any {
	_, head := f.choices.heads()
	all := answer{head: head, Usage: u}
	for i, c := range list {
		all.Choices = append(all.Choices, f.choices.whole(c, parts[i]))
	}
	return all
}

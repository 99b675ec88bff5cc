package krait

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/session"
	"github.com/krait-ml/krait/session/draft"
	"github.com/krait-ml/krait/session/schedule"
	"github.com/krait-ml/krait/text/sampling"
)

// Generate sets how a prompt is continued. The zero value is greedy, up to 200 tokens or the end of
// text.
type Generate struct {
	MaxTokens int // 0: 200

	Temperature       float64 // 0: greedy
	TopK              int     // keep the k most probable tokens; 0: all
	TopP              float64 // keep the most probable tokens up to this probability; 0: all
	MinP              float64 // keep tokens with at least this share of the highest probability; 0: all
	RepetitionPenalty float64 // divides logits of tokens seen, as in transformers; 0 or 1: none
	PresencePenalty   float64 // subtracted from logits of tokens generated, as by OpenAI; 0: none
	FrequencyPenalty  float64 // the same, for each occurrence
	Seed              uint64  // the same seed gives the same text

	// LogitBias is added to the logits of tokens, by id: from -100, which excludes the token, to
	// 100, which excludes all others.
	LogitBias map[int]float64
	// Mask returns the tokens that may be chosen, before each token: [sampling.Config].
	Mask func() []int32
	// Accept gets each token chosen, in the goroutine that calls Mask, before Mask is called again;
	// true ends the text after the token ([ReachedEOS]). It may be nil.
	Accept func(id int) (last bool)

	// LogProbs returns the log-probability of each token, TopLogProbs those of as many most
	// probable tokens beside it. They change no text.
	LogProbs    bool
	TopLogProbs int

	// PromptLogProbs returns those of the prompt's tokens, too, each given the tokens before it,
	// with TopLogProbs others. The whole prompt is prefilled here then: without Prefill and without
	// hits in the prefix cache, which may admit it. They change no text.
	PromptLogProbs bool
	// PromptOnly ends the generation after prefill (ReachedMax), whatever MaxTokens is.
	PromptOnly bool

	Stop      []string // ends before any of these texts
	IgnoreEOS bool     // continue after the end of text
	StopIDs   []int    // tokens that end the text as well, also with IgnoreEOS

	// Keep are texts that special tokens have in the text, by id. Without one they have none.
	Keep map[int]string

	// Salt separates the prefix cache: a prompt hits only prefixes of the same salt, so that
	// neither time nor CachedTokens tells of others. It changes no text. A Prefiller gets it, too;
	// 4096 bytes at most.
	Salt string

	// Breakpoints are numbers of prompt tokens after which later prompts are expected to differ. The
	// prefix cache keeps a state after the deepest that it does not hit.
	Breakpoints []int
	// Messages are numbers of prompt tokens after which messages of a conversation end, up to the
	// last message. Where nothing else says where later prompts part from this one, the prefix cache
	// keeps a state after the deepest before the last that it does not hit.
	Messages []int

	// Speculate selects the drafts of this generation: ngram, mtp, auto or off. Empty: as
	// [Options.Speculate], which must not be off for the others, and be mtp for mtp. It changes no
	// text.
	Speculate string

	// Tenant names the sender. Slots, time and KV pages are shared fairly among tenants: a
	// generation of a tenant that has more is paused if another waits, which changes no text.
	Tenant string

	// Prefill prefills all tokens of the prompt but the last on another machine; nil: this one
	// does. If it fails this machine does, too, and [Generation.Fallback] says why.
	Prefill Prefiller
	// OnFallback gets the reason before this machine prefills the prompt instead. It may be nil.
	OnFallback func(why error)

	// OnBegin gets the time at which the prompt may be prefilled. It may be nil.
	OnBegin func(at time.Time)
	// OnPrompt gets the number of a long prompt's tokens prefilled, from 0, and of all.
	OnPrompt func(done, all int)
	// OnText gets text as soon as it is final, in whole characters.
	OnText func(text string)
	// OnToken gets each token, also without a tokenizer, and when it was chosen.
	OnToken func(id int, at time.Time)
	// OnPromptLogProbs gets [Generation.PromptLogProbs], before the first token. It may be nil.
	OnPromptLogProbs func([]LogProbs)
	// OnLogProbs gets those of each token, after OnToken, with LogProbs.
	OnLogProbs func(LogProbs)
}

// Prefiller prefills prompts on another machine: package transfer/prefill has one.
type Prefiller = session.Prefiller

// LogProbs are the natural logarithms of the probabilities of a token and of the most probable
// ones: at temperature 1, before biases, penalties and filters.
type LogProbs = sampling.LogProbs

// Reason is why a generation ended.
type Reason string

// The reasons.
const (
	ReachedEOS  Reason = "end of text"
	ReachedStop Reason = "stop string"
	ReachedMax  Reason = "token limit"
)

// Generation is a continued prompt, with an error as far as it got.
type Generation struct {
	Text string // without the prompt; empty without a tokenizer
	IDs  []int  // without the token that ended the text
	// LogProbs are those of IDs, with Generate.LogProbs.
	LogProbs []LogProbs
	// PromptLogProbs are those of the prompt's tokens from the second on, with
	// Generate.PromptLogProbs.
	PromptLogProbs []LogProbs
	Reason         Reason // empty with an error

	PromptTokens int
	CachedTokens int                    // of these, hits in the prefix cache
	Drafter      string                 // kind of the drafts; empty: there were none
	Drafts       int                    // tokens drafted, with speculative decoding
	Accepted     int                    // of these, tokens of the text
	DraftError   error                  // why there were no more drafts; nil: the drafter did not fail
	Remote       *session.RemotePrefill // of Generate.Prefill; nil: this machine prefilled the prompt
	Fallback     error                  // why this machine prefilled the prompt and not Generate.Prefill
	TTFT         time.Duration          // from the call to the first token
	Total        time.Duration
}

// TokensPerSecond returns the rate after the first token, 0 without a second one.
func (g *Generation) TokensPerSecond() float64 {
	if len(g.IDs) < 2 || g.Total <= g.TTFT {
		return 0
	}
	return float64(len(g.IDs)-1) / (g.Total - g.TTFT).Seconds()
}

// Generate continues a text. An error of a step, or of a context that is done, comes with the text
// generated before.
//
// Generations of several goroutines share steps, one per slot; others are queued, those of a Tenant
// in order. Each returns what it would return alone.
func (m *Model) Generate(ctx context.Context, prompt string, o Generate) (*Generation, error) {
	ids, err := m.encode(prompt)
	if err != nil {
		return nil, err
	}
	return m.GenerateIDs(ctx, ids, o)
}

// encode returns a prompt as token ids, with the special tokens that the tokenizer adds.
func (m *Model) encode(prompt string) ([]int, error) {
	t, err := m.Tokenizer()
	if err != nil {
		return nil, err
	}
	return t.Encode(prompt, true)
}

// GenerateIDs continues token ids, as Generate does. Stop strings need a tokenizer.
func (m *Model) GenerateIDs(ctx context.Context, prompt []int, o Generate) (*Generation, error) {
	g, err := m.newGenerator(prompt, o)
	if err != nil {
		return nil, err
	}
	g.finish(g.run(ctx, prompt))
	return g.out, g.err
}

// GenerateChoices continues token ids several times, each as GenerateIDs would, and prefills them
// once. Salt, Tenant and PromptLogProbs must be the same in all. A goroutine per choice calls its
// functions, and done when it ends. The first that fails ends the others, and its error is
// returned.
func (m *Model) GenerateChoices(ctx context.Context, prompt []int, list []Generate, done func(i int, g *Generation, err error)) error {
	all := make([]*generator, len(list))
	for i, o := range list {
		var err error
		if all[i], err = m.newGenerator(prompt, o); err != nil {
			return err
		}
		if a := &list[0]; o.Salt != a.Salt || o.Tenant != a.Tenant || o.PromptLogProbs != a.PromptLogProbs {
			return fmt.Errorf("choice %d has another Salt, Tenant or PromptLogProbs than the first; those of one prompt must agree", i)
		}
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	streams, err := m.streams(ctx, prompt, all)
	if err != nil {
		return err
	}
	var wait sync.WaitGroup
	var once sync.Once
	for i, g := range all {
		wait.Go(func() {
			if g.finish(g.take(streams[i])); g.err != nil {
				once.Do(func() { err = g.err })
				stop()
			}
			done(i, g.out, g.err)
		})
	}
	wait.Wait()
	return err
}

// generator is an active generation.
type generator struct {
	o       *Generate
	m       *Model
	sampler *sampling.Sampler
	w       *writer
	stops   *stopFinder // nil: there are no stop strings
	out     *Generation
	start   time.Time
	eos     []int
	yield   func(Token) (more bool) // nil: no stream
	drafter draft.Drafter           // nil: none
	eager   bool                    // for tests: drafts that do not pay, too
	err     error

	complete bool // Accept returned true; read after the last token

	mu    sync.Mutex // guards probs: one goroutine chooses tokens, another reads them
	probs []LogProbs // of tokens chosen but not read
	last  LogProbs   // of the last token read

	scored []LogProbs // of the prompt's tokens; each is written once, before the first token
}

func (m *Model) newGenerator(prompt []int, o Generate) (*generator, error) {
	start := time.Now()
	if o.MaxTokens == 0 {
		o.MaxTokens = 200
	}
	if o.MaxTokens < 0 {
		return nil, fmt.Errorf("MaxTokens is %d; it must be at least 1", o.MaxTokens)
	}
	sampler, err := sampling.New(o.Sampling(), m.Vocab())
	if err != nil {
		return nil, err
	}
	w, err := m.newWriter(&o)
	if err != nil {
		return nil, err
	}
	stops, err := m.newStopFinder(&o)
	if err != nil {
		return nil, err
	}
	g := &generator{o: &o, m: m, sampler: sampler, w: w, stops: stops, out: &Generation{PromptTokens: len(prompt)}, start: start, eos: m.EOS()}
	g.drafter, err = m.newDrafter(&o)
	return g, err
}

// newDrafter returns the drafter of a generation; nil: none.
func (m *Model) newDrafter(o *Generate) (draft.Drafter, error) {
	kind := cmp.Or(o.Speculate, m.speculate)
	if err := m.CheckSpeculate(kind); err != nil || kind == draft.Off {
		return nil, err
	}
	return m.Drafter(kind, o.Salt), nil
}

// Drafter returns a drafter for requests of the session's scheduler, of a kind that CheckSpeculate
// allows and a salt. A model that drafts goes before n-grams.
func (m *Model) Drafter(kind, salt string) draft.Drafter {
	if m.drafts != nil && kind != "ngram" {
		return m.drafts.session.Drafter()
	}
	return m.session.NGrams(salt)
}

// CheckSpeculate returns an error unless [Generate.Speculate] may have a value.
func (m *Model) CheckSpeculate(value string) error {
	switch err := draft.Check(value); {
	case err != nil:
		return fmt.Errorf("Generate.Speculate is %w", err)
	case (strings.HasPrefix(value, draft.ModelPrefix) || value == draft.MTP) && value != m.speculate:
		return fmt.Errorf("Generate.Speculate is %s, but the model was opened with %s: models that draft are set in Options.Speculate", value, m.speculate)
	case value != draft.Off && m.speculate == draft.Off:
		return fmt.Errorf("Generate.Speculate is %s, but the model was opened without speculative decoding: set Options.Speculate, or leave it out here", value)
	}
	return nil
}

// Speculates reports whether generations may have drafts.
func (m *Model) Speculates() bool { return m.speculate != draft.Off }

// finish sets the end of the generation.
func (g *generator) finish(reason Reason, err error) {
	g.out.Reason, g.err = reason, err
	g.out.Text = g.w.flush()
	g.out.Total = time.Since(g.start)
	if d, ok := g.drafter.(draft.Failing); ok {
		g.out.DraftError = d.Err()
	}
}

// Sampling returns the sampling options, for callers that sample from the logits of a sequence.
func (o *Generate) Sampling() sampling.Config {
	return sampling.Config{
		Temperature: o.Temperature, TopK: o.TopK, TopP: o.TopP, MinP: o.MinP,
		RepetitionPenalty: o.RepetitionPenalty, PresencePenalty: o.PresencePenalty, FrequencyPenalty: o.FrequencyPenalty,
		LogitBias: o.LogitBias, Mask: o.Mask, LogProbs: o.LogProbs, TopLogProbs: o.TopLogProbs, Seed: o.Seed,
	}
}

// run generates.
func (g *generator) run(ctx context.Context, prompt []int) (Reason, error) {
	streams, err := g.m.streams(ctx, prompt, []*generator{g})
	if err != nil {
		return "", err
	}
	return g.take(streams[0])
}

// streams returns the tokens of generations of a prompt, which is prefilled once. Each must be
// read.
func (m *Model) streams(ctx context.Context, prompt []int, all []*generator) ([]iter.Seq2[schedule.Token, error], error) {
	if err := m.session.CheckTokens(prompt); err != nil {
		return nil, err
	}
	list := make([]schedule.Request, len(all))
	for i, g := range all {
		g.sampler.Read(prompt...)
		r := g.request(prompt)
		switch {
		case g.o.PromptLogProbs && g.o.Prefill != nil && g.o.Prefill.Strict():
			return nil, errors.New("PromptLogProbs needs the prompt prefilled here, which a strict Prefill forbids: leave one out")
		case g.o.PromptLogProbs:
			g.score(&r)
			r.OnFork = func(i int) { g.scored = all[i].scored }
		case g.o.Prefill != nil:
			r.Fetch = func() (schedule.Beginning, error) { return g.prefill(ctx, prompt) }
		}
		list[i] = r
	}
	return m.session.Scheduler().Streams(ctx, list), nil
}

// take adds tokens to the generation until it ends.
func (g *generator) take(tokens iter.Seq2[schedule.Token, error]) (Reason, error) {
	for token, err := range tokens {
		if err != nil {
			return "", err
		}
		g.reportScored()
		if g.o.PromptOnly {
			g.out.TTFT = token.At.Sub(g.start)
			return ReachedMax, nil
		}
		if reason := g.add(token); !g.report(token.ID, reason) || reason != "" && reason != ReachedMax {
			return reason, nil
		}
	}
	if g.complete {
		return ReachedEOS, nil
	}
	return ReachedMax, nil
}

// prefill has the prompt prefilled on another machine; a nil result means here.
func (g *generator) prefill(ctx context.Context, prompt []int) (schedule.Beginning, error) {
	progress := func(int) {}
	if all := len(prompt); g.o.OnPrompt != nil {
		progress = func(done int) { g.o.OnPrompt(done, all) }
	}
	state, r, err := g.askPrefiller(ctx, prompt, progress)
	if state != nil {
		g.out.Remote = &r
	}
	if g.out.Fallback = r.Fallback; r.Fallback != nil && g.o.OnFallback != nil {
		g.o.OnFallback(r.Fallback)
	}
	return state, err
}

// askPrefiller calls the Prefiller. Its panic, such as that of most nil pointers, is an error that
// names its type.
func (g *generator) askPrefiller(ctx context.Context, prompt []int, progress func(int)) (state schedule.Beginning, r session.RemotePrefill, err error) {
	defer func() {
		if p := recover(); p != nil {
			state, r, err = nil, session.RemotePrefill{}, fmt.Errorf("the prefiller, a %T, panics: %v", g.o.Prefill, p)
			if v := reflect.ValueOf(g.o.Prefill); v.Kind() == reflect.Pointer && v.IsNil() {
				err = fmt.Errorf("the prefiller is a nil %T, which panics: %v", g.o.Prefill, p)
			}
		}
	}()
	return g.o.Prefill.Prefill(ctx, g.m.session, g.o.Salt, prompt, progress)
}

// request makes the scheduler's request. Tokens are chosen on the device that has the logits.
func (g *generator) request(prompt []int) schedule.Request {
	r := schedule.Request{
		Prompt:      prompt,
		Tenant:      g.o.Tenant,
		Salt:        g.o.Salt,
		Breakpoints: g.o.Breakpoints,
		Messages:    g.o.Messages,
		MaxTokens:   g.o.MaxTokens,
		OnBegin:     g.o.OnBegin,
		Choose:      g.choose,
		Draft:       g.drafter,
		Eager:       g.eager,
		OnDrafts: func(drafts, accepted int) {
			g.out.Drafter = g.drafter.Kind()
			g.out.Drafts += drafts
			g.out.Accepted += accepted
		},
		Accept: func(id int) (last bool) {
			g.sampler.Accept(id)
			g.complete = g.o.Accept != nil && g.o.Accept(id)
			if g.complete || g.ends(id) {
				g.stops.flush()
				return true
			}
			return g.stops.push(id)
		},
	}
	if g.stops != nil {
		r.Final = func() int { return g.stops.final }
	}
	if g.o.PromptOnly { // a request ends with a token, which is dropped
		r.MaxTokens = 1
		r.Choose = func([]int) exec.Choice { return exec.Choice{} }
		r.Accept = func(int) bool { return true }
	}
	r.OnCached = func(tokens int) { g.out.CachedTokens = tokens }
	if all := len(prompt); g.o.OnPrompt != nil && all > session.PrefillChunk {
		g.o.OnPrompt(0, all)
		r.OnPrompt = func(read int) { g.o.OnPrompt(read, all) }
	}
	return r
}

// score requests the log-probabilities of the prompt's tokens. Each goroutine writes its own
// elements.
func (g *generator) score(r *schedule.Request) {
	prompt, top := r.Prompt, g.o.TopLogProbs
	g.scored = make([]LogProbs, len(prompt)-1)
	r.Score = func(at int) exec.Choice {
		return exec.Choice{Pick: func(logits []float32, chosen int32) int32 {
			g.scored[at] = sampling.LogProbsOf(logits, prompt[at+1], top)
			return chosen
		}}
	}
}

// reportScored reports them with the first token.
func (g *generator) reportScored() {
	if g.scored == nil {
		return
	}
	g.out.PromptLogProbs, g.scored = g.scored, nil
	if g.o.OnPromptLogProbs != nil {
		g.o.OnPromptLogProbs(g.out.PromptLogProbs)
	}
}

// choose returns how the token after drafts is chosen.
func (g *generator) choose(drafts []int) exec.Choice {
	c := exec.Choice{Choice: g.sampler.Choice(drafts...), Seen: g.sampler.Seen(drafts...)}
	if g.sampler.OnHost() {
		c.Pick = g.pick
	}
	return c
}

// pick chooses a token on the host, and queues its log-probabilities for the reader.
func (g *generator) pick(logits []float32, chosen int32) int32 {
	id := g.sampler.Pick(logits, chosen)
	if g.o.LogProbs && id >= 0 {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.probs = append(g.probs, g.sampler.LogProbs())
	}
	return id
}

// picked returns the log-probabilities of the next token read.
func (g *generator) picked() LogProbs {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.probs[0]
	g.probs = g.probs[1:]
	return p
}

// ends reports whether a token ends the text.
func (g *generator) ends(id int) bool {
	return !g.o.IgnoreEOS && slices.Contains(g.eos, id) || slices.Contains(g.o.StopIDs, id)
}

// add adds a token, and returns why it is the last, if it is.
func (g *generator) add(token schedule.Token) Reason {
	out := g.out
	if out.TTFT == 0 {
		out.TTFT = token.At.Sub(g.start)
	}
	if g.o.LogProbs {
		g.last = g.picked()
	}
	if g.ends(token.ID) {
		return ReachedEOS
	}
	out.IDs = append(out.IDs, token.ID)
	if g.o.OnToken != nil {
		g.o.OnToken(token.ID, token.At)
	}
	if g.o.LogProbs {
		out.LogProbs = append(out.LogProbs, g.last)
		if g.o.OnLogProbs != nil {
			g.o.OnLogProbs(g.last)
		}
	}
	switch {
	case g.w.push(token.ID):
		return ReachedStop
	case len(out.IDs) == g.o.MaxTokens:
		return ReachedMax
	}
	return ""
}

// report yields a token to the stream, and reports whether its reader wants more.
func (g *generator) report(id int, end Reason) bool {
	if g.yield == nil {
		return true
	}
	if end != "" {
		g.w.flush()
	}
	return g.yield(Token{ID: id, Text: g.w.take(), LogProbs: g.last, End: end})
}

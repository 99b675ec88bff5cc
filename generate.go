package krait

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/session/schedule"
	"github.com/krait-ml/krait/text/sampling"
)

// Generate says how to continue a prompt. The zero value is greedy, for 200
// tokens, until the model ends the text.
type Generate struct {
	MaxTokens int // 0: 200

	Temperature       float64 // 0: greedy
	TopK              int     // keep the k most probable tokens; 0: all
	TopP              float64 // keep the most probable tokens up to this probability; 0: all
	MinP              float64 // keep tokens with at least this share of the highest probability; 0: all
	RepetitionPenalty float64 // of tokens that were seen, as in transformers; 0 or 1: none
	PresencePenalty   float64 // taken off the logits of tokens that were generated, as by OpenAI; 0: none
	FrequencyPenalty  float64 // the same, for each time that they were
	Seed              uint64  // the same seed gives the same text

	// LogitBias is added to the logits of tokens, by id: from -100, which excludes the token, to
	// 100, which excludes all others.
	LogitBias map[int]float64
	// Mask is asked before each token which may be chosen: [sampling.Config].
	Mask func() []int32
	// Accept is told each token that was chosen, by the goroutine that asks Mask, before it asks for the
	// next; true ends the text behind it ([ReachedEOS]). It may be nil.
	Accept func(id int) (last bool)

	// LogProbs asks for the log-probability of each token, TopLogProbs for those of as many
	// most probable tokens beside it. They change no text.
	LogProbs    bool
	TopLogProbs int

	// PromptLogProbs asks for those of the prompt's tokens, too, each given the tokens before it, with as
	// many most probable ones beside it as TopLogProbs says. The prompt is read here, from its beginning: not by Prefill, and not from what Options.PrefixCache
	// has of it, which it may come to have. They change no text.
	PromptLogProbs bool
	// PromptOnly ends the generation where the prompt is read (ReachedMax), whatever MaxTokens is.
	PromptOnly bool

	Stop      []string // ends before any of these texts
	IgnoreEOS bool     // go on where the model would end the text

	// Salt keeps what [Options.PrefixCache] has apart: a prompt goes on from those of the same salt
	// only, and so learns of no others, neither by time nor by CachedTokens. Empty is a salt, too.
	// It changes no text. A machine that reads the prompt (Prefill) is told of it, 4096 bytes at most.
	Salt string

	// Tenant is who the generation is for. Slots, time and the memory of caches are shared among
	// tenants: a generation of one that has more is paused where one of another waits, which
	// changes no text.
	Tenant string

	// Prefill has the prompt read elsewhere, but for its last token; nil: it is read here. Where
	// that fails it is read here, too, and [Generation.Fallback] says why.
	Prefill *Prefill
	// OnFallback is told why, before the prompt is read here. It may be nil.
	OnFallback func(why error)

	// OnBegin is called when the prompt is about to be read. It may be nil.
	OnBegin func()
	// OnPrompt is told how much of a long prompt has been read, from 0 on.
	OnPrompt func(done, all int)
	// OnText gets the text as soon as it is certain, whole characters only.
	OnText func(text string)
	// OnToken gets each token; it is what there is without a tokenizer.
	OnToken func(id int)
	// OnPromptLogProbs gets [Generation.PromptLogProbs], before the first token. It may be nil.
	OnPromptLogProbs func([]LogProbs)
	// OnLogProbs gets those of each token, after OnToken, where LogProbs asks for them.
	OnLogProbs func(LogProbs)
}

// LogProbs are natural logarithms of the probabilities that the model gives to a token, and
// to the most probable ones: at temperature 1, before biases, penalties and filters.
type LogProbs = sampling.LogProbs

// Reason says why a generation ended.
type Reason string

// The reasons.
const (
	ReachedEOS  Reason = "end of text"
	ReachedStop Reason = "stop string"
	ReachedMax  Reason = "token limit"
)

// Generation is a continued prompt, or with an error as much of it as there is.
type Generation struct {
	Text string // without the prompt; empty without a tokenizer
	IDs  []int  // without the token that ended the text
	// LogProbs are those of IDs, where Generate.LogProbs asks for them.
	LogProbs []LogProbs
	// PromptLogProbs are those of the prompt's tokens from the second on, where
	// Generate.PromptLogProbs asks for them.
	PromptLogProbs []LogProbs
	Reason         Reason // empty with an error

	PromptTokens int
	CachedTokens int           // of these, which Options.PrefixCache had
	Fetched      *Fetched      // what Generate.Prefill brought; nil: nothing
	Fallback     error         // why the prompt was read here, and not by Generate.Prefill; nil: it was not asked
	TTFT         time.Duration // from the call to the first token
	Total        time.Duration
}

// Fetched is what came of a prompt that was read elsewhere.
type Fetched struct {
	Tokens  int           // that were read there
	Held    int           // of these, whose rows of caches were here and did not travel
	Bytes   int64         // that traveled
	Pieces  int           // that they came in
	Prefill time.Duration // from the question to the answer that the prompt is read
	Reading time.Duration // of the bytes
}

// TokensPerSecond is the rate after the first token, 0 where there was no other.
func (g *Generation) TokensPerSecond() float64 {
	if len(g.IDs) < 2 || g.Total <= g.TTFT {
		return 0
	}
	return float64(len(g.IDs)-1) / (g.Total - g.TTFT).Seconds()
}

// Generate continues a text. An error of a step, and a context that is done, comes with
// what was generated before.
//
// Generations from several goroutines share steps, as many as there are slots; others wait for
// theirs, those of one Tenant first come, first served. What each gives is what it would give
// alone.
func (m *Model) Generate(ctx context.Context, prompt string, o Generate) (*Generation, error) {
	ids, err := m.encode(prompt)
	if err != nil {
		return nil, err
	}
	return m.GenerateIDs(ctx, ids, o)
}

// encode is a prompt as token ids, with those that the tokenizer puts around texts.
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

// GenerateChoices continues token ids several times, each as GenerateIDs would, and reads them
// once. Salt, Tenant and PromptLogProbs must be the same in all, and each has functions of its own,
// which are called by a goroutine of its own; so is ended, when a choice has ended. The first that
// fails ends the others, and its error is returned.
func (m *Model) GenerateChoices(ctx context.Context, prompt []int, list []Generate, ended func(i int, g *Generation, err error)) error {
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
			ended(i, g.out, g.err)
		})
	}
	wait.Wait()
	return err
}

// generator is a generation under way.
type generator struct {
	o       *Generate
	m       *Model
	sampler *sampling.Sampler
	w       *writer
	stops   *stopFinder // nil: there are no stop strings
	out     *Generation
	start   time.Time
	eos     []int
	tell    func(Token) (more bool) // nil: nobody asks
	err     error

	complete bool // Accept said so; it is read once no tokens come any more

	mu    sync.Mutex // of probs: tokens are chosen by one goroutine and read by another
	probs []LogProbs // of the tokens chosen that were not read
	last  LogProbs   // of the token read last

	scored []LogProbs // of the prompt's tokens; each is written once, before a token comes
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
	stops, err := m.newStopFinder(o.Stop)
	if err != nil {
		return nil, err
	}
	return &generator{o: &o, m: m, sampler: sampler, w: w, stops: stops, out: &Generation{PromptTokens: len(prompt)}, start: start, eos: m.EOS()}, nil
}

// finish writes down how the generation ended.
func (g *generator) finish(reason Reason, err error) {
	g.out.Reason, g.err = reason, err
	g.out.Text = g.w.flush()
	g.out.Total = time.Since(g.start)
}

// Sampling is how tokens are chosen, for those who choose them from the logits of a sequence.
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

// streams are the tokens of generations of a prompt, which is read once. Each must be read.
func (m *Model) streams(ctx context.Context, prompt []int, all []*generator) ([]iter.Seq2[schedule.Token, error], error) {
	if err := m.check(prompt); err != nil {
		return nil, err
	}
	list := make([]schedule.Request, len(all))
	for i, g := range all {
		g.sampler.Read(prompt...)
		r := g.request(prompt)
		switch {
		case g.o.PromptLogProbs && g.o.Prefill != nil && g.o.Prefill.strict:
			return nil, errors.New("PromptLogProbs: they come of a prompt that is read here, and by Prefill, which is Strict, none may be")
		case g.o.PromptLogProbs:
			g.score(&r)
			r.OnFork = func(i int) { g.scored = all[i].scored }
		case g.o.Prefill != nil:
			r.Fetch = func() (schedule.Beginning, error) { return g.fetch(ctx, prompt) }
		}
		list[i] = r
	}
	return m.requests.Streams(ctx, list), nil
}

// take adds tokens to the generation until there is a reason to end.
func (g *generator) take(tokens iter.Seq2[schedule.Token, error]) (Reason, error) {
	for token, err := range tokens {
		if err != nil {
			return "", err
		}
		g.tellScored()
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

// fetch has the prompt read elsewhere, if that can be.
func (g *generator) fetch(ctx context.Context, prompt []int) (schedule.Beginning, error) {
	if g.o.Prefill.m != g.m {
		return nil, errors.New("Prefill is another model's: make it with this one's NewPrefill")
	}
	tell := func(int) {}
	if all := len(prompt); g.o.OnPrompt != nil {
		tell = func(read int) { g.o.OnPrompt(read, all) }
	}
	a, why, err := g.o.Prefill.fetch(ctx, g.o.Salt, prompt, tell)
	if a != nil {
		g.out.Fetched = &Fetched{a.tokens, a.Rows.From, a.Bytes, a.Pieces, a.Prefill, a.Reading}
	}
	if g.out.Fallback = why; why != nil && g.o.OnFallback != nil {
		g.o.OnFallback(why)
	}
	if a == nil {
		return nil, err
	}
	return a, err
}

// request is what the scheduler is asked for. Tokens are chosen where the logits are,
// which need not travel then.
func (g *generator) request(prompt []int) schedule.Request {
	r := schedule.Request{
		Prompt:    prompt,
		Tenant:    g.o.Tenant,
		Salt:      g.o.Salt,
		MaxTokens: g.o.MaxTokens,
		OnBegin:   g.o.OnBegin,
		Choose:    g.choose,
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
		r.Seen = func() int { return g.stops.whole }
	}
	if g.o.PromptOnly { // a token is chosen all the same: it is what ends a request
		r.MaxTokens = 1
		r.Choose = func() exec.Choice { return exec.Choice{} }
		r.Accept = func(int) bool { return true }
	}
	r.OnCached = func(tokens int) { g.out.CachedTokens = tokens }
	if all := len(prompt); g.o.OnPrompt != nil && all > prefillChunk {
		g.o.OnPrompt(0, all)
		r.OnPrompt = func(read int) { g.o.OnPrompt(read, all) }
	}
	return r
}

// score asks for the log-probabilities of the prompt's tokens. Their goroutines have an element each.
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

// tellScored gives them to who asked, once they are there: with the first token.
func (g *generator) tellScored() {
	if g.scored == nil {
		return
	}
	g.out.PromptLogProbs, g.scored = g.scored, nil
	if g.o.OnPromptLogProbs != nil {
		g.o.OnPromptLogProbs(g.out.PromptLogProbs)
	}
}

// choose says how the next token is chosen.
func (g *generator) choose() exec.Choice {
	c := exec.Choice{Choice: g.sampler.Choice(), Seen: g.sampler.Seen()}
	if g.sampler.OnHost() {
		c.Pick = g.pick
	}
	return c
}

// pick does what is left of choosing a token, and keeps its log-probabilities for who reads it.
func (g *generator) pick(logits []float32, chosen int32) int32 {
	id := g.sampler.Pick(logits, chosen)
	if g.o.LogProbs && id >= 0 {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.probs = append(g.probs, g.sampler.LogProbs())
	}
	return id
}

// picked is the log-probabilities of the next token that is read.
func (g *generator) picked() LogProbs {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.probs[0]
	g.probs = g.probs[1:]
	return p
}

// ends reports whether a token ends the text.
func (g *generator) ends(id int) bool { return !g.o.IgnoreEOS && slices.Contains(g.eos, id) }

// add adds a token, and says whether it is the last, and why.
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
		g.o.OnToken(token.ID)
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

// report tells who reads the stream of a token, and says whether there is more to tell.
func (g *generator) report(id int, end Reason) bool {
	if g.tell == nil {
		return true
	}
	if end != "" {
		g.w.flush()
	}
	return g.tell(Token{ID: id, Text: g.w.took(), LogProbs: g.last, End: end})
}

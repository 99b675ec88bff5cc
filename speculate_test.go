package krait

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/krait-ml/krait/internal/covering"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/internal/prop"
	"github.com/krait-ml/krait/passes"
	"github.com/krait-ml/krait/session/draft"
	"github.com/krait-ml/krait/text/constrain"
	"github.com/krait-ml/krait/text/tokenizer"
)

// Ways in which an oracle drafts, beside n-grams.
const (
	wrongDrafts = iota
	rightDrafts
	rightButLast
	mixedDrafts
	longDrafts // more than asked for
	ngramDrafts
	mtpDrafts
	faultyMTPDrafts
	waysToDraft
)

// oracle is a drafter that knows the text.
type oracle struct {
	text []int // with its prompt
	way  int
	read int
	rng  *rand.Rand
}

func (o *oracle) Kind() string       { return "oracle" }
func (o *oracle) Read(tokens ...int) { o.read += len(tokens) }
func (o *oracle) Grade() int         { return o.rng.IntN(6) - 1 }
func (o *oracle) Close()             {}
func (o *oracle) Draft(dst []int, n int) []int {
	if o.way == longDrafts {
		n += 5
	}
	for i := range n {
		token := o.rng.IntN(tokenizer.ByteVocab) // beyond the text
		if at := o.read + i; at < len(o.text) {
			token = o.text[at]
		}
		if o.way == wrongDrafts || o.way == rightButLast && i == n-1 || o.way == mixedDrafts && o.rng.IntN(4) == 0 {
			token = (token + 1 + o.rng.IntN(tokenizer.ByteVocab-1)) % tokenizer.ByteVocab
		}
		dst = append(dst, token)
	}
	return dst
}

// speculation draws generations of a model, and compares them with drafts and without.
type speculation struct {
	t     *testing.T
	m     *Model
	r     *rand.Rand
	vocab *constrain.Vocabulary
	small bool // the prefix cache evicts, and a second text may find another prefix than without drafts

	mu               sync.Mutex
	drafts, accepted int
	compared         int // second texts of a small cache
}

// drawn is a generation: its text without drafts, and one more that continues it.
type drawn struct {
	prompt  []int
	o       Generate
	schema  *constrain.Grammar // of the text; nil: any
	cancel  int                // after this token; 0: not
	way     int
	seed    uint64
	choices int // texts of the prompt
}

var spoken = []string{`[a-z]{3,9}( [a-z]{1,5})*\.`, `(ab|ba)+c?`, `\{"a": \[[0-9]{1,3}(, [0-9]{1,3})*\]\}`}

func (s *speculation) draw() drawn {
	r := s.r
	d := drawn{seed: r.Uint64(), way: r.IntN(waysToDraft), choices: 1}
	for range 1 + r.IntN(30) {
		d.prompt = append(d.prompt, 'a'+r.IntN(4))
	}
	o := &d.o
	o.MaxTokens, o.Seed, o.IgnoreEOS = 1+r.IntN(30), r.Uint64(), r.IntN(2) == 0
	o.Temperature = []float64{0, 0, 0.5, 1, 1.5}[r.IntN(5)]
	o.LogProbs = r.IntN(2) == 0
	if o.LogProbs {
		o.TopLogProbs = r.IntN(3)
	}
	some := func() bool { return r.IntN(4) == 0 }
	if some() {
		o.TopK = 1 + r.IntN(50)
	}
	if some() {
		o.TopP = r.Float64()
	}
	if some() {
		o.MinP = 0.2 * r.Float64()
	}
	if some() {
		o.RepetitionPenalty = 1 + r.Float64()
	}
	if some() {
		o.PresencePenalty, o.FrequencyPenalty = r.Float64(), r.Float64()
	}
	if some() {
		o.LogitBias = map[int]float64{'a' + r.IntN(26): 3, r.IntN(256): -100}
	}
	if some() {
		d.schema, _ = constrain.Regex(spoken[r.IntN(len(spoken))])
		o.LogitBias = nil
	}
	if some() {
		d.cancel = 1 + r.IntN(10)
	}
	if r.IntN(5) == 0 {
		d.choices, d.cancel = 1+r.IntN(3), 0
	}
	if s.m.session.PrefixCacheBytes() == 0 { // a paused one may leave nothing in the cache
		o.Tenant = []string{"a", "b"}[r.IntN(2)]
	}
	return d
}

// generate runs a generation, each of its choices with a drafter of the text given; nil: without.
func (s *speculation) generate(d drawn, prompt []int, salt string, texts [][]int) ([]*Generation, error) {
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	var all []*generator
	for i := range d.choices {
		o := d.o
		o.Salt, o.Speculate = salt, draft.Off
		o.Seed += uint64(i)
		if d.schema != nil {
			m := d.schema.Match(s.vocab, nil)
			o.Mask, o.Accept = m.Mask, m.Accept
		}
		if n := 0; d.cancel > 0 && texts != nil {
			o.OnToken = func(int, time.Time) {
				if n++; n == d.cancel {
					cancel()
				}
			}
		}
		g, err := s.m.newGenerator(prompt, o)
		if err != nil {
			return nil, err
		}
		if texts != nil {
			g.eager = true
			switch {
			case d.way == mtpDrafts:
				g.drafter = s.m.Drafter("auto", salt) // n-grams without a head
			case d.way == faultyMTPDrafts && s.m.head != nil:
				g.drafter = &shifted{HiddenReader: s.m.Drafter("mtp", salt).(draft.HiddenReader)}
			case d.way >= ngramDrafts:
				g.drafter = s.m.session.NGrams(salt)
			default:
				g.drafter = &oracle{text: slices.Concat(prompt, texts[i]), way: d.way, rng: rand.New(rand.NewPCG(d.seed, 1))}
			}
		}
		all = append(all, g)
	}
	streams, err := s.m.streams(ctx, prompt, all)
	if err != nil {
		return nil, err
	}
	var out []*Generation
	var wait sync.WaitGroup
	for i, g := range all {
		out = append(out, g.out)
		wait.Go(func() { g.finish(g.take(streams[i])) })
	}
	wait.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range all {
		err = errors.Join(err, g.err)
		s.drafts, s.accepted = s.drafts+g.out.Drafts, s.accepted+g.out.Accepted
	}
	return out, err
}

// same reports what differs between a generation with drafts and without.
func same(got, want *Generation) string {
	if !slices.Equal(got.IDs, want.IDs) || got.Text != want.Text || got.Reason != want.Reason || got.CachedTokens != want.CachedTokens {
		return fmt.Sprintf("%q, %v, ended by %s, cached %d; want %q, %v, ended by %s, cached %d", got.Text, got.IDs, got.Reason, got.CachedTokens, want.Text, want.IDs, want.Reason, want.CachedTokens)
	}
	if !reflect.DeepEqual(got.LogProbs, want.LogProbs) {
		return fmt.Sprintf("log-probabilities %v, want %v", got.LogProbs, want.LogProbs)
	}
	return ""
}

// check compares generations in company with what they are alone without drafts. A second one
// continues the text of the first, from the prefix cache if the model has one.
func (s *speculation) check(n int) {
	t := s.t
	type case_ struct {
		drawn
		first, second []*Generation
		err           string
	}
	var list []*case_
	for i := range n {
		c := &case_{drawn: s.draw()}
		salt := fmt.Sprint("without ", i)
		var err error
		if c.first, err = s.generate(c.drawn, c.prompt, salt, nil); err == nil && s.r.IntN(3) == 0 && len(c.first[0].Text) > 2 {
			at := s.r.IntN(len(c.first[0].Text) - 2)
			c.o.Stop = []string{"never", strings.ToValidUTF8(c.first[0].Text[at:][:1+s.r.IntN(2)], "x")}
			c.first, err = s.generate(c.drawn, c.prompt, salt+"stop", nil)
			salt += "stop"
		}
		if err != nil {
			c.err = err.Error()
		} else if c.cancel == 0 {
			if c.second, err = s.generate(c.drawn, slices.Concat(c.prompt, c.first[0].IDs, []int{'.'}), salt, nil); err != nil {
				t.Fatal(err)
			}
		}
		list = append(list, c)
	}
	var all sync.WaitGroup
	for i, c := range list {
		all.Go(func() {
			salt := fmt.Sprint("with ", i)
			got, err := s.generate(c.drawn, c.prompt, salt, idsOf(c.first))
			switch {
			case c.cancel > 0 && errors.Is(err, context.Canceled):
				if g, w := got[0].IDs, c.first[0].IDs; len(g) > len(w) || !slices.Equal(g, w[:len(g)]) {
					t.Errorf("%+v, cancelled: %v, want %v", c.drawn, g, w)
				}
				return
			case fmt.Sprint(err) != c.err && (err != nil || c.err != ""):
				t.Errorf("%+v: %v, want %s", c.drawn, err, c.err)
				return
			case err != nil:
				return
			}
			for k := range got {
				if wrong := same(got[k], c.first[k]); wrong != "" {
					t.Errorf("%+v: choice %d: %s", c.drawn, k, wrong)
					return
				}
			}
			if c.second == nil {
				return
			}
			got, err = s.generate(c.drawn, slices.Concat(c.prompt, c.first[0].IDs, []int{'.'}), salt, idsOf(c.second))
			if err != nil {
				t.Error(err)
				return
			}
			if s.small && (c.choices > 1 || got[0].CachedTokens != c.second[0].CachedTokens) {
				return // another history; forks do not tell theirs
			}
			if s.small {
				s.mu.Lock()
				s.compared++
				s.mu.Unlock()
			}
			for k := range got {
				if wrong := same(got[k], c.second[k]); wrong != "" {
					t.Errorf("%+v: continued: choice %d: %s", c.drawn, k, wrong)
				}
			}
		})
	}
	all.Wait()
}

func idsOf(list []*Generation) (ids [][]int) {
	for _, g := range list {
		ids = append(ids, g.IDs)
	}
	return ids
}

// TestSpeculation: with drafts that are always wrong, always right, right but for the last, or more
// than fit, of n-grams, or of MTP heads, also with hidden states of other tokens, every text, its
// log-probabilities and its end are those without, to the bit: for all families, in company, at any
// temperature, with penalties, masks, stop strings, forks, a prefix cache and cancellation. Where
// the cache evicts, that holds of texts with equal hits. By default it is for families with MTP
// heads and one of twelve others.
func TestSpeculation(t *testing.T) {
	models, texts := 1, 8
	if goldens.All() {
		models, texts = 29, 15 // more would evict each other's prefixes
	}
	vocab, err := constrain.NewVocabulary(tokenizer.ByteVocab, func(id int) []byte { return []byte{byte(id)} })
	if err != nil {
		t.Fatal(err)
	}
	drafts, accepted, compared := 0, 0, 0
	dirs := goldens.Folders(t, ".")
	few := goldens.Few(t)
	if few {
		texts = 4
		dirs = covering.Drawn(t, dirs)
	}
	for _, golden := range slices.Sorted(maps.Keys(headedGoldens)) {
		dirs = append(dirs, headed(t, golden, nil))
	}
	for i, dir := range slices.Repeat(dirs, models) {
		t.Run(fmt.Sprint(filepath.Base(dir), i), func(t *testing.T) {
			r := rand.New(rand.NewPCG(prop.Seed(t), 1))
			o := Options{Speculate: "ngram", Slots: 1 + r.IntN(4), Sharding: passes.Sharding{Ranks: 1 + r.IntN(3)/2}}
			o.Sharding.Prefill = []string{"", "context"}[r.IntN(2)] // on two ranks
			o.PageTokens = []int{0, 4, 16}[r.IntN(3)]
			if r.IntN(3) > 0 {
				o.PrefixCache, o.PrefixGrain = 64<<20, 32
			}
			small := o.PrefixCache > 0 && r.IntN(3) == 0
			if small {
				o.PrefixCache = 1 << 20
			}
			if r.IntN(3) == 0 {
				o.Sharding.States = "ssm=bf16"
			}
			if strings.HasSuffix(dir, "-mtp") {
				o.Speculate = "mtp"
			}
			if strings.Contains(dir, "lfm2") && o.Sharding.States != "" {
				o.Sharding.States = "conv=bf16" // it has no others
			}
			m, err := Open(dir, o)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			m.tokens = tokenizer.Bytes{}
			s := &speculation{t: t, m: m, r: r, vocab: vocab, small: small}
			s.check(texts)
			drafts, accepted, compared = drafts+s.drafts, accepted+s.accepted, compared+s.compared
		})
	}
	t.Logf("%d drafts, %d accepted; %d texts beside evictions", drafts, accepted, compared)
	if compared == 0 && !few {
		t.Error("no text of a small cache is compared")
	}
	least := 500 * models
	if few {
		least /= 10
	}
	if accepted < least || drafts < accepted+least {
		t.Errorf("%d drafts, %d accepted; there must be more, and both right ones and wrong ones", drafts, accepted)
	}
}

// TestDraftModel: a model drafts for itself, which at temperature 0 is always right, and changes no
// text at others; one of another vocabulary is refused.
func TestDraftModel(t *testing.T) {
	const dir = "internal/embedded/tiny-mamba"
	m, err := Open(dir, Options{Slots: 2, Speculate: "draft:" + dir})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	generate := func(temperature float64) *Generation {
		o := Generate{MaxTokens: 60, Temperature: temperature, Speculate: draft.Off}
		want, err := m.Generate(t.Context(), "In the beginning", o)
		if err != nil {
			t.Fatal(err)
		}
		g, err := m.newGenerator([]int{'x'}, o)
		if err != nil {
			t.Fatal(err)
		}
		prompt, err := m.encode("In the beginning")
		if err != nil {
			t.Fatal(err)
		}
		g.drafter, g.eager = m.Drafter("auto", ""), true
		g.finish(g.run(t.Context(), prompt))
		if g.err != nil || g.out.Text != want.Text {
			t.Errorf("temperature %v: %q (%v), want %q", temperature, g.out.Text, g.err, want.Text)
		}
		return g.out
	}
	for _, temperature := range []float64{0, 0.7} {
		g := generate(temperature)
		if g.Drafter != "draft" || g.DraftError != nil || temperature == 0 && g.Accepted != g.Drafts {
			t.Errorf("temperature %v: accepted %d of %d of %q (%v)", temperature, g.Accepted, g.Drafts, g.Drafter, g.DraftError)
		}
	}
	if n := m.drafts.engine.Slots(); n != 2 {
		t.Errorf("%d slots", n)
	}
	for range m.drafts.engine.Slots() {
		if _, err := m.drafts.engine.Alloc(); err != nil {
			t.Errorf("a drafter has kept its slot: %v", err)
		}
	}
	if g := generate(0); g.DraftError == nil || g.Drafts > 0 {
		t.Errorf("%d drafts of a model without a slot for them (%v)", g.Drafts, g.DraftError)
	}
	if _, err := m.Generate(t.Context(), "a", Generate{Speculate: "draft:elsewhere"}); err == nil || !strings.Contains(err.Error(), "models that draft are set in Options.Speculate") {
		t.Error(err)
	}
	if _, err := Embedded(Options{Speculate: "draft:nowhere"}); err == nil || !strings.Contains(err.Error(), "Speculate is draft:nowhere: ") {
		t.Error(err)
	}
}

package krait

import (
	"encoding/binary"
	"encoding/json"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/krait-ml/krait/checkpoint/safetensors"
	"github.com/krait-ml/krait/checkpoint/synth"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/internal/prop"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/session"
	"github.com/krait-ml/krait/session/draft"
	"github.com/krait-ml/krait/text/tokenizer"
)

// headed writes a checkpoint like a golden with random weights and an MTP head, in f32.
func headed(t *testing.T, golden string, keys map[string]any) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata/golden", golden, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var config map[string]any
	if err := json.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	in := config
	if nested, ok := config["text_config"].(map[string]any); ok {
		in = nested
	}
	in["mtp_num_hidden_layers"] = 1
	if golden == "nemotron-h-latent" {
		delete(in, "mtp_num_hidden_layers")
		in["num_nextn_predict_layers"] = 1
	}
	for k, v := range keys {
		in[k] = v
	}
	if text, err = json.Marshal(config); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), golden+"-mtp")
	if _, err := synth.Write(t.Context(), dir, synth.Options{Config: text, From: golden, DType: "f32"}); err != nil {
		t.Fatal(err)
	}
	return dir
}

// generateMTP generates with all drafts that fit, by a drafter; nil: without.
func generateMTP(t *testing.T, m *Model, prompt []int, o Generate, d draft.Drafter) *Generation {
	t.Helper()
	o.Speculate = draft.Off
	g, err := m.newGenerator(prompt, o)
	if err != nil {
		t.Error(err)
		return &Generation{}
	}
	g.drafter, g.eager = d, true
	if g.finish(g.run(t.Context(), prompt)); g.err != nil {
		t.Error(g.err)
	}
	return g.out
}

// recorder is an MTP drafter that remembers what it was given, and its drafts.
type recorder struct {
	draft.HiddenReader
	tokens []int
	hidden map[int][]float32
	drafts []recordedDraft
}

type recordedDraft struct {
	tokens int // of the text before
	drafts []int
}

func (r *recorder) Read(tokens ...int) {
	r.tokens = append(r.tokens, tokens...)
	r.HiddenReader.Read(tokens...)
}

func (r *recorder) ReadHidden(at int, row []float32) {
	r.hidden[at] = slices.Clone(row)
	r.HiddenReader.ReadHidden(at, row)
}

func (r *recorder) Draft(dst []int, n int) []int {
	out := r.HiddenReader.Draft(dst, n)
	r.drafts = append(r.drafts, recordedDraft{len(r.tokens), slices.Clone(out[len(dst):])})
	return out
}

// TestMTP: drafts are, token for token, those of a head that never drafted before and reads the
// whole text at once: earlier drafts leave nothing behind. Hidden states come for every token, in
// prompts of several chunks, and from the first that is no prefix hit on. No text changes.
func TestMTP(t *testing.T) {
	few := goldens.Few(t)
	for golden := range headedGoldens {
		if few && golden != "qwen3-next" {
			continue
		}
		t.Run(golden, func(t *testing.T) {
			m, err := Open(headed(t, golden, nil), Options{Slots: 2, Speculate: "mtp", PageTokens: 16, PrefixCache: 64 << 20, Sharding: Sharding{Ranks: 2}})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			m.tokens = tokenizer.Bytes{}
			for _, w := range m.Warnings {
				t.Error(w)
			}
			r := rand.New(rand.NewPCG(prop.Seed(t), 1))
			prompt := make([]int, session.PrefillChunk+40)
			for i := range prompt {
				prompt[i] = r.IntN(256)
			}
			for text, first := range []int{0, session.PrefillChunk} { // the second hits the first's prompt
				o := Generate{MaxTokens: 30, Temperature: 0.7, Seed: uint64(text), IgnoreEOS: true, Salt: "with"}
				d := &recorder{HiddenReader: m.Drafter("mtp", "").(draft.HiddenReader), hidden: map[int][]float32{}}
				got := generateMTP(t, m, prompt, o, d)
				o.Salt = "without"
				if wrong := same(got, generateMTP(t, m, prompt, o, nil)); wrong != "" {
					t.Error(wrong)
				}
				if got.Drafter != "mtp" || got.Drafts < 200 || len(d.drafts) < 20 {
					t.Errorf("%d drafts of %s in %d steps", got.Drafts, got.Drafter, len(d.drafts))
				}
				if got.CachedTokens < first {
					t.Errorf("%d tokens cached", got.CachedTokens)
				}
				for i, c := range d.drafts {
					if i%8 != 5 {
						continue
					}
					fresh := m.Drafter("mtp", "").(draft.HiddenReader)
					fresh.Read(d.tokens[:c.tokens]...)
					for at := got.CachedTokens; at < c.tokens-1; at++ {
						fresh.ReadHidden(at, d.hidden[at])
					}
					if again := fresh.Draft(nil, len(c.drafts)); !slices.Equal(again, c.drafts) {
						t.Fatalf("after %d tokens: drafts %v; a fresh head's are %v", c.tokens, c.drafts, again)
					}
					fresh.Close()
				}
			}
			for range m.drafts.engine.Slots() {
				if _, err := m.drafts.engine.Alloc(); err != nil {
					t.Errorf("a drafter has kept its slot: %v", err)
				}
			}
		})
	}
}

// cycled changes a checkpoint with a head: 16 tokens have embeddings of their own, no block changes
// the residual stream, and after token i comes 5i+3. The head reads the hidden state alone.
func cycled(t *testing.T, dir string) {
	t.Helper()
	set, err := safetensors.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	const alphabet = 16
	next := func(i int) int { return (5*i + 3) % alphabet }
	var list []safetensors.Tensor
	for _, name := range set.Names() {
		x, _ := set.Tensor(name)
		x.Data = slices.Clone(x.Data)
		one := func(row, col int) {
			binary.LittleEndian.PutUint32(x.Data[4*(row*x.Shape[len(x.Shape)-1]+col):], math.Float32bits(1))
		}
		plain := strings.HasPrefix(name, "mtp.layers.") || strings.Contains(name, ".layers.")
		switch {
		case strings.HasSuffix(name, "embed_tokens.weight"):
			clear(x.Data)
			for i := range alphabet {
				one(i, i)
			}
		case name == "lm_head.weight":
			clear(x.Data)
			for i := range alphabet {
				one(next(i), i)
			}
		case name == "mtp.fc.weight":
			clear(x.Data)
			for i := range alphabet {
				one(next(i), x.Shape[0]+i)
			}
		case !plain, strings.HasSuffix(name, "o_proj.weight"), strings.HasSuffix(name, "out_proj.weight"), strings.HasSuffix(name, "down_proj.weight"), strings.HasSuffix(name, "down_proj"):
			clear(x.Data) // zero-centred norms, too
		}
		list = append(list, x)
	}
	if err := safetensors.WriteFile(filepath.Join(dir, "model.safetensors"), list, nil); err != nil {
		t.Fatal(err)
	}
}

// shifted gives the head the hidden state of the token before.
type shifted struct {
	draft.HiddenReader
	last []float32
}

func (s *shifted) ReadHidden(at int, row []float32) {
	if s.last == nil {
		s.last = make([]float32, len(row))
	}
	s.HiddenReader.ReadHidden(at, s.last)
	copy(s.last, row)
}

// TestMTPAccepts: a head that is right, if it reads the hidden state of the right token, has all of
// its drafts accepted, also those from its own hidden states; with another's it has few.
func TestMTPAccepts(t *testing.T) {
	for i, golden := range []string{"qwen3-next", "qwen3-5", "qwen3-5-moe"} {
		if i > 0 && goldens.Few(t) {
			continue
		}
		t.Run(golden, func(t *testing.T) {
			dir := headed(t, golden, nil)
			cycled(t, dir)
			m, err := Open(dir, Options{Slots: 2, Speculate: "mtp"})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			m.tokens = tokenizer.Bytes{}
			var both sync.WaitGroup
			for _, prompt := range [][]int{{3, 1, 4, 1, 5, 9, 2, 6}, {2, 7, 1}} { // in company
				both.Go(func() {
					o := Generate{MaxTokens: 100, IgnoreEOS: true}
					want := generateMTP(t, m, prompt, o, nil)
					for i, id := range want.IDs[1:] {
						if id != (5*want.IDs[i]+3)%16 {
							t.Errorf("the text is %v", want.IDs)
							return
						}
					}
					got := generateMTP(t, m, prompt, o, m.Drafter("mtp", ""))
					if wrong := same(got, want); wrong != "" || got.Drafts < 90 || got.Accepted != got.Drafts {
						t.Errorf("%d of %d drafts accepted; %s", got.Accepted, got.Drafts, wrong)
					}
					got = generateMTP(t, m, prompt, o, &shifted{HiddenReader: m.Drafter("auto", "").(draft.HiddenReader)})
					if wrong := same(got, want); wrong != "" || got.Drafts < 90 || got.Accepted > got.Drafts/10 {
						t.Errorf("hidden states of other tokens: %d of %d drafts accepted; %s", got.Accepted, got.Drafts, wrong)
					}
				})
			}
			both.Wait()
		})
	}
}

// TestMTPRefused: a checkpoint without a head, or with one that Krait does not run, is refused by
// name, and only where its drafts are asked for.
func TestMTPRefused(t *testing.T) {
	for _, c := range []struct {
		golden string
		keys   map[string]any
		want   string
	}{
		{"qwen3-next", map[string]any{"mtp_num_hidden_layers": 0}, "Options.Speculate is mtp: the checkpoint has no MTP head (tensor mtp.fc.weight): use ngram or draft:DIR"},
		{"qwen3-5", map[string]any{"mtp_num_hidden_layers": 2}, "mtp_num_hidden_layers is 2; Krait drafts with one MTP layer"},
		{"qwen3-5-moe", map[string]any{"mtp_use_dedicated_embeddings": true}, "mtp_use_dedicated_embeddings is true; "},
		{"nemotron-h-latent", map[string]any{"num_nextn_predict_layers": 0}, "the checkpoint has no MTP head (tensor mtp.layers.0.eh_proj.weight)"},
		{"mamba-a", nil, "the family mamba has no MTP heads that Krait runs"},
	} {
		dir := headed(t, c.golden, c.keys)
		if _, err := Open(dir, Options{Speculate: "mtp"}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %v: %v, want %s", c.golden, c.keys, err, c.want)
		}
		m, err := Open(dir, Options{Speculate: "ngram"})
		if err != nil {
			t.Errorf("%s %v: %v", c.golden, c.keys, err)
			continue
		}
		if _, err := m.GenerateIDs(t.Context(), []int{1}, Generate{Speculate: "mtp"}); err == nil || !strings.Contains(err.Error(), "the model was opened with ngram") {
			t.Errorf("%s: %v", c.golden, err)
		}
		m.Close()
	}
}

// TestMTPMemory: the memory plan counts the head's own weights, pages beside the model's, a step of
// the head, and what its drafters hold; embedding and head of the model count once.
func TestMTPMemory(t *testing.T) {
	const slots, pageTokens = 2, 16
	for _, golden := range slices.Sorted(maps.Keys(headedGoldens)) {
		dir := headed(t, golden, nil)
		var plans []MemoryPlan
		var constants int64
		for _, kind := range []string{"ngram", "mtp"} {
			m, err := Open(dir, Options{Slots: slots, PageTokens: pageTokens, Memory: 64 << 20, Speculate: kind})
			if err != nil {
				t.Fatal(err)
			}
			plans = append(plans, m.MemoryPlan())
			if m.head != nil {
				constants = m.drafts.engine.Schedules()[0].Bytes[lowering.Constant]
			}
			m.Close()
		}
		set, err := safetensors.OpenDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var weights int64
		for _, name := range set.Names() {
			if x, _ := set.Tensor(name); strings.HasPrefix(name, "mtp.") {
				weights += int64(len(x.Data))
			}
		}
		set.Close()
		a, b := plans[0], plans[1]
		const page = 2 * 2 * 16 * 4 * pageTokens // keys and values of two groups of 16 channels
		const hidden = 2 * session.PrefillChunk * 48 * 4
		if got := b.Weights - a.Weights - constants; got != weights {
			t.Errorf("%s: weights of the head are planned with %d bytes, and have %d", golden, got, weights)
		}
		if got := b.Page - a.Page; got != page {
			t.Errorf("%s: a page of the head is planned with %d bytes, and has %d", golden, got, page)
		}
		if got := b.States - a.States; got != slots*(page+hidden) {
			t.Errorf("%s: drafters are planned with %d bytes, and hold %d", golden, got, slots*(page+hidden))
		}
		if b.Activations <= a.Activations || b.Room >= a.Room {
			t.Errorf("%s: the plan without a head is %v, with it %v", golden, a, b)
		}
	}
}

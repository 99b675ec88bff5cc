package tokenizer

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// VocabularyOf is the inverse of [Vocabulary.JSON], for what a Vocabulary can say: config
// is the tokenizer_config.json, or nil. Other models and other pre-tokenizers are
// errors. Normalizing forms are lost, as llama.cpp has none.
func VocabularyOf(tokenizer, config []byte) (*Vocabulary, error) {
	p, err := ParseConfigured(tokenizer, config)
	if err != nil {
		return nil, err
	}
	var file tokenizerFile
	if err := json.Unmarshal(tokenizer, &file); err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	v := &Vocabulary{BOS: -1, EOS: -1, Unknown: -1, Pad: -1}
	if err := v.list(p); err != nil {
		return nil, err
	}
	for role, id := range map[string]*int{"bos_token": &v.BOS, "eos_token": &v.EOS, "unk_token": &v.Unknown, "pad_token": &v.Pad} {
		if n, ok := p.roles[role]; ok {
			*id = n
		}
	}
	if file.Model.ByteFallback && file.spaces() {
		v.Model, v.Pre = "llama", "default"
		v.score(p, file.Model.Merges)
		prefix := file.prefix()
		v.SpacePrefix = &prefix
		if v.Unknown < 0 && file.Model.Unknown != "" {
			v.Unknown = int(p.model.vocab[file.Model.Unknown])
		}
	} else if err := v.cuts(&file); err != nil {
		return nil, err
	}
	return v, v.around(p)
}

// tokenizerFile is what of a tokenizer.json tells how texts are cut and merged.
type tokenizerFile struct {
	Normalizer *stage `json:"normalizer"`
	Pre        *stage `json:"pre_tokenizer"`
	Model      struct {
		Merges       []merge `json:"merges"`
		ByteFallback bool    `json:"byte_fallback"`
		IgnoreMerges bool    `json:"ignore_merges"`
		Unknown      string  `json:"unk_token"`
	} `json:"model"`
}

// stage is a part of a tokenizer.json, of any kind.
type stage struct {
	Type        string  `json:"type"`
	Normalizers []stage `json:"normalizers"`
	Pres        []stage `json:"pretokenizers"`
	Pattern     struct{ Regex, String string }
	Behavior    string `json:"behavior"`
	Invert      bool   `json:"invert"`
	UseRegex    *bool  `json:"use_regex"`
	PrefixSpace bool   `json:"add_prefix_space"`
	Individual  bool   `json:"individual_digits"`
	Content     string `json:"content"`
	Prepend     string `json:"prepend"`
	Scheme      string `json:"prepend_scheme"`
	Split       *bool  `json:"split"`
}

// parts are the stages of a sequence, or the one.
func (s *stage) parts() []stage {
	switch {
	case s == nil:
		return nil
	case s.Type == "Sequence":
		return append(slices.Clone(s.Normalizers), s.Pres...)
	}
	return []stage{*s}
}

// spaces reports whether spaces become ▁, and texts are not cut.
func (f *tokenizerFile) spaces() bool {
	for _, s := range append(f.Normalizer.parts(), f.Pre.parts()...) {
		switch {
		case s.Type == "Replace" && s.Pattern.String == " " && s.Content == "▁", s.Type == "Prepend" && s.Prepend == "▁":
		case s.Type == "Metaspace" && s.Split != nil && !*s.Split:
		default:
			return false
		}
	}
	return true
}

// prefix reports whether a text gets a space before it.
func (f *tokenizerFile) prefix() bool {
	return slices.ContainsFunc(append(f.Normalizer.parts(), f.Pre.parts()...), func(s stage) bool {
		return s.Type == "Prepend" || s.Type == "Metaspace" && s.Scheme != "never"
	})
}

// list fills the lists of tokens, with names for ids that no token has.
func (v *Vocabulary) list(p *Pipeline) error {
	n := 0
	for id := range p.pieces {
		n = max(n, id+1)
	}
	if n > 2*len(p.pieces)+1000 {
		return fmt.Errorf("tokenizer: the largest id is %d, of %d tokens", n-1, len(p.pieces))
	}
	for id := range n {
		t, ok := p.pieces[id]
		special, added := p.special[id]
		kind := NormalToken
		switch {
		case !ok:
			t, kind = fmt.Sprintf("[PAD%d]", id), UnusedToken
		case special:
			kind = ControlToken
		case added:
			kind = UserToken
		case len(t) == 6 && strings.HasPrefix(t, "<0x") && p.model.byteFallback:
			kind = ByteToken
		}
		v.Tokens, v.Types = append(v.Tokens, t), append(v.Types, kind)
	}
	return nil
}

// score gives tokens scores by the first merge that makes them.
func (v *Vocabulary) score(p *Pipeline, merges []merge) {
	v.Scores = make([]float32, len(v.Tokens))
	for id := range v.Scores {
		v.Scores[id] = -1e6
	}
	for rank, m := range slices.Backward(merges) {
		if id, ok := p.model.vocab[m[0]+m[1]]; ok {
			v.Scores[id] = -float32(rank)
		}
	}
}

// cuts finds the name for how a text is cut.
func (v *Vocabulary) cuts(f *tokenizerFile) error {
	v.Model = "gpt2"
	var patterns []string
	level := false
	for _, s := range f.Pre.parts() {
		switch {
		case s.Type == "Split" && s.Behavior == "Isolated" && !s.Invert && s.Pattern.Regex != "" && !level:
			patterns = append(patterns, s.Pattern.Regex)
		case s.Type == "Digits" && s.Individual && !level:
			patterns = append(patterns, `\p{N}`)
		case s.Type == "Punctuation" && s.Behavior == "Contiguous" && !level:
			patterns = append(patterns, pres[falconPre].patterns[0])
		case s.Type == "ByteLevel" && !s.PrefixSpace && !level:
			if level = true; s.UseRegex == nil || *s.UseRegex {
				patterns = append(patterns, gpt2Pattern)
			}
		case s.Type == "Digits" && level: // the falcon's, which does nothing before the next
		case s.Type == "Split" && level && s.Pattern.Regex == `[0-9][0-9][0-9]`:
			patterns = append(patterns, s.Pattern.Regex)
		default:
			return fmt.Errorf("tokenizer: the pre_tokenizer's %s is none that GGUF has a name for", s.Type)
		}
	}
	for _, m := range f.Model.Merges {
		v.Merges = append(v.Merges, m[0]+" "+m[1])
	}
	for _, p := range pres {
		if level && slices.Equal(p.patterns, patterns) && p.ignoreMerges == f.Model.IgnoreMerges {
			v.Pre, _, _ = strings.Cut(p.names, " ")
			return nil
		}
	}
	return fmt.Errorf("tokenizer: GGUF has no name for a text that is cut by %q (ignore_merges %t)", patterns, f.Model.IgnoreMerges)
}

// falconPre is the place in pres of the one that begins with punctuation.
var falconPre = slices.IndexFunc(pres, func(p pre) bool { return p.names == "falcon" })

// around says which tokens are put around a text; others than bos and eos are an error.
func (v *Vocabulary) around(p *Pipeline) error {
	one := func(ids []int, role *int, what string) (*bool, error) {
		has := len(ids) == 1
		if has && *role < 0 {
			*role = ids[0]
		}
		if len(ids) > 1 || has && *role != ids[0] {
			return nil, fmt.Errorf("tokenizer: tokens %v are put around a text, of which GGUF has only the %s token", ids, what)
		}
		return &has, nil
	}
	var err error
	if v.AddBOS, err = one(p.template.before, &v.BOS, "first"); err == nil {
		v.AddEOS, err = one(p.template.after, &v.EOS, "last")
	}
	return err
}

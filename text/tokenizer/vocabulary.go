package tokenizer

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// A Vocabulary is a tokenizer as GGUF files have it: lists of tokens and merges, and names
// for the rest. Pipeline makes a tokenizer of it, JSON the files that Hugging Face has.
type Vocabulary struct {
	Model  string    // gpt2: merges of bytes that are spelled; llama: scores of pieces, with ▁ for spaces
	Pre    string    // how a text is cut before merging, for gpt2: see Pres
	Tokens []string  // by id
	Types  []int     // by id, of which the constants below are two; nil: all are normal
	Scores []float32 // by id, for llama: the highest is merged first
	Merges []string  // for gpt2: two tokens with a space between them, the first merged first

	BOS, EOS, Unknown, Pad int // ids; -1: none

	AddBOS, AddEOS *bool // whether they are put around a text; nil: as the model's kind has it
	SpacePrefix    *bool // for llama: whether a text gets a space before it; nil: yes

	ChatTemplate string // how turns of a conversation become a text, in Jinja
}

// Types of tokens.
const (
	NormalToken  = 1
	UnknownToken = 2
	ControlToken = 3 // of no text: looked for before anything else, and skipped by decoders
	UserToken    = 4 // a text that is looked for before anything else
	UnusedToken  = 5
	ByteToken    = 6
)

// A pre says how llama.cpp cuts a text before merging: by patterns, one after another.
type pre struct {
	names        string // in the files; the first is what we write
	patterns     []string
	ignoreMerges bool // a word that is a token is one
	bos          bool // the text begins with one
}

const (
	caseless   = `(?i:'s|'t|'re|'ve|'m|'ll|'d)`
	llama3Rest = `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	qwen2Rest  = `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	qwen35Rest = `|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	upperLower = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+`
	upper      = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*`
	signsRest  = `| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// pres are those of llama.cpp that the models of our families and their like have.
var pres = []pre{
	{names: "gpt-2 mpt olmo phi-2 jais trillion granite-docling jina-es jina-de jina-v2-es jina-v2-de gigachat a.x-4.0 mellum modern-bert", patterns: []string{gpt2Pattern}},
	{names: "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano", patterns: []string{caseless + llama3Rest}, ignoreMerges: true, bos: true},
	{names: "dbrx smaug-bpe chatglm-bpe glm4", patterns: []string{caseless + llama3Rest}},
	{names: "qwen2 stablelm2 hunyuan solar-open deepseek-r1-qwen kormo grok-2", patterns: []string{caseless + qwen2Rest}},
	{names: "qwen35", patterns: []string{caseless + qwen35Rest}},
	{names: "tekken", patterns: []string{upperLower + "|" + upper + `|\p{N}` + signsRest}, ignoreMerges: true, bos: true},
	{names: "gpt-4o llama4 kanana2 talkie minimax-m2", patterns: []string{upperLower + caseless + "?|" + upper + caseless + `?|\p{N}{1,3}` + signsRest}},
	{names: "starcoder refact command-r smollm codeshell exaone minerva-7b", patterns: []string{`\p{N}`, gpt2Pattern}},
	{names: "falcon", patterns: []string{"[\\p{P}\\$\\+<=>\\^~\\|`]+", gpt2Pattern, `[0-9][0-9][0-9]`}},
	{names: "default", patterns: []string{`[\p{P}\$\+<=>\^~\|]+`, gpt2Pattern, `\p{N}+`, `[0-9][0-9][0-9]`}},
}

// Pres are the names of ways to cut a text that a Vocabulary may have, sorted.
func Pres() []string {
	var names []string
	for _, p := range pres {
		names = append(names, strings.Fields(p.names)...)
	}
	slices.Sort(names)
	return names
}

// Pipeline makes the tokenizer. It is an error when lists do not fit together, and when
// Model or Pre is a name that Krait does not know: the error lists those it does.
func (v *Vocabulary) Pipeline() (*Pipeline, error) {
	data, config, err := v.JSON()
	if err != nil {
		return nil, err
	}
	return ParseConfigured(data, config)
}

// ParseConfigured reads the contents of a tokenizer.json and of a tokenizer_config.json; config is
// nil if there is no such file.
func ParseConfigured(data, config []byte) (*Pipeline, error) {
	p, err := parse(data)
	if err == nil && config != nil {
		err = p.configure(config)
	}
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	return p, nil
}

type fields = map[string]any

// JSON writes the tokenizer.json and the tokenizer_config.json that mean the same.
func (v *Vocabulary) JSON() (tokenizer, config []byte, err error) {
	model, rest, addBOS, err := v.parts()
	if err != nil {
		return nil, nil, fmt.Errorf("tokenizer: %w", err)
	}
	file := fields{"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": v.added(), "model": model, "post_processor": nil}
	maps.Copy(file, rest)
	settings := fields{"add_bos_token": addBOS && v.BOS >= 0, "add_eos_token": v.AddEOS != nil && *v.AddEOS && v.EOS >= 0}
	for role, id := range map[string]int{"bos_token": v.BOS, "eos_token": v.EOS, "unk_token": v.Unknown, "pad_token": v.Pad} {
		if id >= 0 {
			settings[role] = v.Tokens[id]
		}
	}
	if v.ChatTemplate != "" {
		settings["chat_template"] = v.ChatTemplate
	}
	if tokenizer, err = json.Marshal(file); err == nil {
		config, err = json.MarshalIndent(settings, "", "  ")
	}
	return tokenizer, config, err
}

// parts is the model, and the stages around it.
func (v *Vocabulary) parts() (model, rest fields, addBOS bool, err error) {
	if err := v.check(); err != nil {
		return nil, nil, false, err
	}
	switch v.Model {
	case "gpt2":
		var p *pre
		if p, err = findPre(v.Pre); err == nil {
			model, rest, addBOS = v.bytes(p), p.stages(), p.bos
		}
	case "llama":
		model, err = v.pieces()
		rest, addBOS = v.spaces(), true
	default:
		err = fmt.Errorf("the model is %q; Krait reads gpt2 and llama", v.Model)
	}
	if v.AddBOS != nil {
		addBOS = *v.AddBOS
	}
	return model, rest, addBOS, err
}

// mostTokens bounds a vocabulary, ten times above the largest.
const mostTokens = 1 << 21

func (v *Vocabulary) check() error {
	n := len(v.Tokens)
	if n > mostTokens || len(v.Merges) > 2*mostTokens {
		return fmt.Errorf("there are %d tokens and %d merges; Krait reads at most %d and %d", n, len(v.Merges), mostTokens, 2*mostTokens)
	}
	if v.Types != nil && len(v.Types) != n || v.Scores != nil && len(v.Scores) != n {
		return fmt.Errorf("there are %d tokens, and %d types and %d scores of tokens", n, len(v.Types), len(v.Scores))
	}
	for what, id := range map[string]int{"bos": v.BOS, "eos": v.EOS, "unknown": v.Unknown, "padding": v.Pad} {
		if id < -1 || id >= n {
			return fmt.Errorf("the %s token is %d, and there are %d tokens", what, id, n)
		}
	}
	for id, t := range v.Tokens {
		if !utf8.ValidString(t) {
			return fmt.Errorf("token %d is not UTF-8", id)
		}
	}
	return nil
}

func findPre(name string) (*pre, error) {
	if name == "" {
		name = "default"
	}
	for i := range pres {
		if slices.Contains(strings.Fields(pres[i].names), name) {
			return &pres[i], nil
		}
	}
	return nil, fmt.Errorf("the way to cut a text, %q (pre), is not known; Krait knows %s", name, strings.Join(Pres(), ", "))
}

func (v *Vocabulary) kind(id int) int {
	if v.Types == nil {
		return NormalToken
	}
	return v.Types[id]
}

// ids are those of the tokens; of several alike the first.
func (v *Vocabulary) ids() map[string]int {
	ids := make(map[string]int, len(v.Tokens))
	for id, t := range v.Tokens {
		if _, ok := ids[t]; !ok {
			ids[t] = id
		}
	}
	return ids
}

// added are the tokens that are looked for before anything else.
func (v *Vocabulary) added() []fields {
	out := []fields{}
	ids := v.ids()
	for id, t := range v.Tokens {
		kind := v.kind(id)
		if kind != ControlToken && kind != UserToken && kind != UnknownToken || t == "" || ids[t] != id {
			continue
		}
		out = append(out, fields{"id": id, "content": t, "special": kind != UserToken,
			"single_word": false, "lstrip": false, "rstrip": false, "normalized": false})
	}
	return out
}

// bytes is the model whose merges are given. Merges of what is no token have no use.
func (v *Vocabulary) bytes(p *pre) fields {
	ids := v.ids()
	merges := [][2]string{}
	for _, m := range v.Merges {
		a, b, ok := cutMerge(m)
		_, is1 := ids[a]
		_, is2 := ids[b]
		_, is3 := ids[a+b]
		if ok && is1 && is2 && is3 {
			merges = append(merges, [2]string{a, b})
		}
	}
	return fields{"type": "BPE", "vocab": ids, "merges": merges, "ignore_merges": p.ignoreMerges}
}

// cutMerge takes a merge apart at a space, before which there must be something.
func cutMerge(m string) (a, b string, ok bool) {
	if m == "" {
		return "", "", false
	}
	_, size := utf8.DecodeRuneInString(m)
	i := strings.IndexByte(m[size:], ' ')
	if i < 0 {
		return "", "", false
	}
	return m[:size+i], m[size+i+1:], true
}

func (p *pre) stages() fields {
	var cuts []fields
	for _, pattern := range p.patterns {
		cuts = append(cuts, fields{"type": "Split", "pattern": fields{"Regex": pattern}, "behavior": "Isolated", "invert": false})
	}
	level := fields{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}
	return fields{"normalizer": nil, "pre_tokenizer": fields{"type": "Sequence", "pretokenizers": append(cuts, level)}, "decoder": level}
}

// mostCuts bounds what is tried to find merges: the squares of the lengths of tokens.
const mostCuts = 1 << 30

// pieces is the model of scores: every way to cut a token in two tokens is a merge.
func (v *Vocabulary) pieces() (fields, error) {
	if v.Scores == nil {
		return nil, fmt.Errorf("there are no scores of tokens, by which llama merges")
	}
	ids := v.ids()
	type merge struct{ a, b, to int }
	var merges []merge
	cuts, fallback := 0, false
	for id, t := range v.Tokens {
		fallback = fallback || v.kind(id) == ByteToken
		if v.kind(id) != NormalToken || ids[t] != id {
			continue
		}
		if cuts += len(t) * len(t); cuts > mostCuts {
			return nil, fmt.Errorf("tokens are too long, such as number %d with %d bytes", id, len(t))
		}
		var ways []merge
		for i := range t {
			a, is1 := ids[t[:i]]
			b, is2 := ids[t[i:]]
			if i > 0 && is1 && is2 && v.kind(a) == NormalToken && v.kind(b) == NormalToken {
				ways = append(ways, merge{a, b, id})
			}
		}
		slices.SortFunc(ways, func(x, y merge) int { return cmp.Or(cmp.Compare(x.a, y.a), cmp.Compare(x.b, y.b)) })
		merges = append(merges, ways...)
	}
	slices.SortStableFunc(merges, func(x, y merge) int { return cmp.Compare(v.Scores[y.to], v.Scores[x.to]) })
	list := make([][2]string, len(merges))
	for i, m := range merges {
		list[i] = [2]string{v.Tokens[m.a], v.Tokens[m.b]}
	}
	model := fields{"type": "BPE", "vocab": ids, "merges": list, "byte_fallback": fallback, "fuse_unk": true}
	if v.Unknown >= 0 {
		model["unk_token"] = v.Tokens[v.Unknown]
	}
	return model, nil
}

// spaces are the stages of llama: a space is ▁, and one begins the text.
func (v *Vocabulary) spaces() fields {
	normalizers := []fields{{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": fields{"String": " "}, "content": "▁"}}
	decoders := []fields{{"type": "Replace", "pattern": fields{"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
		{"type": "Strip", "content": " ", "start": 1, "stop": 0}}
	if v.SpacePrefix != nil && !*v.SpacePrefix {
		normalizers, decoders = normalizers[1:], decoders[:3]
	}
	return fields{"normalizer": fields{"type": "Sequence", "normalizers": normalizers}, "pre_tokenizer": nil, "decoder": fields{"type": "Sequence", "decoders": decoders}}
}

// Fill appends unused tokens up to the size of the model's vocabulary.
func (v *Vocabulary) Fill(vocab int) {
	for id := len(v.Tokens); id < vocab; id++ {
		v.Tokens = append(v.Tokens, fmt.Sprintf("[PAD%d]", id))
		if v.Types != nil {
			v.Types = append(v.Types, UnusedToken)
		}
		if v.Scores != nil {
			v.Scores = append(v.Scores, -1e6)
		}
	}
}

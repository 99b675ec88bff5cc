package tokenizer

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

const (
	smallModel = `"model": {"type": "BPE", "vocab": {"<s>": 0, "</s>": 1, "a": 2, "b": 3, "ab": 4}, "merges": ["a b"]}`
	smallAdded = `"added_tokens": [
		{"id": 0, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true},
		{"id": 1, "content": "</s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}]`
	smallTemplate = `"post_processor": {"type": "TemplateProcessing",
		"single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
		"pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}}}`
)

func TestLoadErrors(t *testing.T) {
	model := func(fields string) string { return `{"model": {` + fields + `}}` }
	with := func(stage, json string) string { return `{` + smallModel + `, "` + stage + `": ` + json + `}` }
	parts := strings.TrimSuffix(strings.Repeat(`{"type": "Prepend", "prepend": ""},`, 70), ",")
	doubling := strings.TrimSuffix(strings.Repeat(`{"type": "Replace", "pattern": {"String": "a"}, "content": "aa"},`, 40), ",")
	byteLevels := strings.TrimSuffix(strings.Repeat(`{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false},`, 40), ",")
	for _, test := range []struct{ json, want string }{
		{"", "the file is not a JSON object"},
		{"[]", "the file is not a JSON object"},
		{"\xff", "not UTF-8"},
		{`{}`, `no "model"`},
		{`{"version": "2.0", ` + smallModel + `}`, `version": "2.0" is not supported (supported: 1.0)`},
		{`{"extra": 1, ` + smallModel + `}`, `has "extra", which is not supported`},

		{model(`"type": "Unigram", "vocab": []`), `model has type "Unigram", which is not supported (supported: BPE)`},
		{model(`"merges": []`), `model has no "vocab"`},
		{model(`"vocab": {}`), `model has no "merges"`},
		{model(`"vocab": {"a": -1}, "merges": []`), "-1 is not an id"},
		{model(`"vocab": {"a": 1.5}, "merges": []`), "1.5 is not an id"},
		{model(`"vocab": {"a": null}, "merges": []`), "null is not an id"},
		{model(`"vocab": {"a": 4294967296}, "merges": []`), "4294967296 is not an id"},
		{model(`"vocab": {"a": 1, "b": 1}, "merges": []`), `"a" and "b" have the same id 1`},
		{model(`"vocab": {"a": 0}, "merges": ["a b"]`), `number 0, "a" and "b": "b" is not in the vocabulary`},
		{model(`"vocab": {"a": 0, "b": 1}, "merges": [["a", "b"]]`), `"ab" is not in the vocabulary`},
		{model(`"vocab": {}, "merges": ["abc"]`), "is not two tokens"},
		{model(`"vocab": {}, "merges": [["a"]]`), "is not two tokens"},
		{model(`"vocab": {}, "merges": [1]`), `1 is neither ["a", "b"] nor "a b"`},
		{model(`"vocab": {}, "merges": [], "unk_token": "<unk>"`), `"<unk>" is not in the vocabulary`},
		{model(`"vocab": {}, "merges": [], "dropout": 0.1`), "dropout 0.1"},
		{model(`"vocab": {}, "merges": [], "new_option": true`), `has "new_option", which is not supported`},
		{model(`"vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"], "continuing_subword_prefix": "##"`), `lacks continuing_subword_prefix "##"`},

		{with("normalizer", `{"type": "BertNormalizer"}`), `normalizer has type "BertNormalizer", which is not supported (supported: Sequence, NFC,`},
		{with("normalizer", `{"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]}`), `normalizer.normalizers[1] has type "Lowercase"`},
		{with("normalizer", `{"type": "Sequence", "normalizers": [`+parts+`]}`), "more than 64 parts"},
		{with("normalizer", `{"type": "Sequence", "normalizers": [`+doubling+`]}`), "more than 10000 times as long"},
		{with("normalizer", `{"type": "Prepend", "prepend": "`+strings.Repeat("x", 20000)+`"}`), "more than 10000 times as long"},
		{with("pre_tokenizer", `{"type": "Sequence", "pretokenizers": [`+byteLevels+`]}`), "more than 10000 times as long"},
		{with("normalizer", `{"type": "Prepend"}`), `normalizer (Prepend) has no "prepend"`},
		{with("normalizer", `{"type": "NFC", "lang": "de"}`), `normalizer (NFC) has "lang", which is not supported`},
		{with("normalizer", `{"type": "Replace", "pattern": {"String": ""}, "content": ""}`), "empty text"},
		{with("normalizer", `{"type": "Replace", "pattern": {"Glob": "*"}, "content": ""}`), "neither {"},
		{with("pre_tokenizer", `{"type": "UnicodeScripts"}`), `pre_tokenizer has type "UnicodeScripts"`},
		{with("pre_tokenizer", `{"type": "Punctuation", "behavior": "Fancy"}`), `"behavior": "Fancy" is not supported (supported: Contiguous, Isolated,`},
		{with("pre_tokenizer", `{"type": "Split", "pattern": {"Regex": "(?<=a)b"}, "behavior": "Isolated", "invert": false}`), `pattern "(?<=a)b" has group "(?<=" at byte 0`},
		{with("pre_tokenizer", `{"type": "Split", "pattern": {"String": "a"}, "behavior": "Isolated"}`), `has no "invert"`},
		{with("pre_tokenizer", `{"type": "Metaspace", "replacement": "__"}`), `"__" is not one character`},
		{with("pre_tokenizer", `{"type": "Metaspace", "replacement": "_", "prepend_scheme": "last"}`), `"last" is not supported (supported: always, first, never)`},
		{with("pre_tokenizer", `{"type": "Metaspace", "replacement": "_", "add_prefix_space": false, "prepend_scheme": "first"}`), "contradicts"},
		{with("decoder", `{"type": "Reverse"}`), `decoder has type "Reverse"`},
		{with("decoder", `{"type": "Strip", "content": " ", "start": -1, "stop": 0}`), `"start"`},
		{with("pre_tokenizer", `{"type": "Sequence", "pretokenizers": [{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true},
			{"type": "Metaspace", "replacement": "_", "prepend_scheme": "first"}]}`), `"first" after pre_tokenizer.pretokenizers[0] (ByteLevel) is not supported`},
		{with("post_processor", `{"type": "Sequence", "processors": [{"type": "BertProcessing", "sep": ["x", 1], "cls": ["y", 0]},
			{"type": "BertProcessing", "sep": ["x", 1], "cls": ["y", 0]}]}`), "two processors that add tokens"},
		{with("post_processor", `{"type": "Other"}`), `post_processor has type "Other"`},
		{with("post_processor", `{"type": "BertProcessing", "sep": ["x", 99], "cls": ["y", 0]}`), "uses id 99, which no token has"},
		{with("post_processor", `{"type": "BertProcessing", "sep": ["x"], "cls": ["y", 0]}`), "not a token and its id"},
		{with("post_processor", `{"type": "TemplateProcessing", "single": [], "special_tokens": {}}`), "the text is there 0 times"},
		{with("post_processor", `{"type": "TemplateProcessing", "single": [{"Sequence": {"id": "B"}}], "special_tokens": {}}`), "neither the text A nor a special token"},
		{with("post_processor", `{"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x"}}], "special_tokens": {}}`), `"x" is not among its special_tokens`},
	} {
		_, err := Parse([]byte(test.json))
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.HasPrefix(err.Error(), "tokenizer.json: ") {
			t.Errorf("Parse(%s)\n got %v\nwant an error with %q", test.json, err, test.want)
		}
	}
}

func TestLoadConfig(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("tokenizer.json", `{`+smallModel+`, `+smallAdded+`, `+smallTemplate+`, "truncation": null, "padding": null}`)
	for _, test := range []struct {
		config   string
		want     []int
		bos, eos bool
	}{
		{`{}`, []int{0, 4}, false, false},
		{`{"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false}}`, []int{0, 4}, true, true},
		{`{"bos_token": null, "eos_token": "<missing>", "add_eos_token": false}`, []int{0, 4}, false, false},
		{`{"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": true, "add_eos_token": true}`, []int{0, 4, 1}, true, true},
		{`{"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": false, "add_eos_token": null}`, []int{4}, true, true},
	} {
		write("tokenizer_config.json", test.config)
		for _, path := range []string{dir, filepath.Join(dir, "tokenizer.json")} {
			tok, err := Load(path)
			if err != nil {
				t.Fatal(err)
			}
			bos, hasBOS := tok.BOS()
			eos, hasEOS := tok.EOS()
			if hasBOS != test.bos || hasEOS != test.eos || bos != 0 || hasEOS && eos != 1 {
				t.Errorf("%s: bos %d %v, eos %d %v", test.config, bos, hasBOS, eos, hasEOS)
			}
			if got := encode(t, tok, "ab", true); !slices.Equal(got, test.want) {
				t.Errorf("%s: Encode = %v, want %v", test.config, got, test.want)
			}
			if got := encode(t, tok, "ab", false); !slices.Equal(got, []int{4}) {
				t.Errorf("%s: Encode without special tokens = %v", test.config, got)
			}
		}
	}
	for config, want := range map[string]string{
		`[]`:                      "tokenizer_config.json",
		`{"bos_token": 1}`:        `"bos_token"`,
		`{"bos_token": {}}`:       "neither a string nor",
		`{"add_bos_token": "no"}`: `"add_bos_token"`,
		`{"add_eos_token": true}`: `the vocabulary has no "eos_token"`,
	} {
		write("tokenizer_config.json", config)
		if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Load with %s = %v, want an error with %q", config, err, want)
		}
	}
	if _, err := Load(filepath.Join(dir, "nowhere")); !os.IsNotExist(err) && !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("Load of nothing = %v", err)
	}
}

func TestConfigRoles(t *testing.T) {
	tok, err := Parse([]byte(`{` + smallModel + `}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := tok.configure([]byte(`{"unk_token": "a", "pad_token": "b"}`)); err != nil {
		t.Fatal(err)
	}
	unk, hasUnk := tok.UNK()
	pad, hasPad := tok.PAD()
	if unk != 2 || pad != 3 || !hasUnk || !hasPad {
		t.Errorf("unk %d, pad %d", unk, pad)
	}
}

// TestParseMemory holds the memory of a load to a small multiple of the file.
func TestParseMemory(t *testing.T) {
	files := map[string]string{
		"a huge id":           `{"model": {"vocab": {"a": 4294967295}, "merges": []}}`,
		"many empty merges":   `{"model": {"vocab": {}, "merges": [` + strings.Repeat(`"",`, 1<<18) + `""]}}`,
		"many empty pairs":    `{"model": {"vocab": {}, "merges": [` + strings.Repeat(`[],`, 1<<18) + `[]]}}`,
		"many empty tokens":   `{` + smallModel + `, "added_tokens": [` + strings.Repeat(`{},`, 1<<18) + `{}]}`,
		"many classes":        `{` + smallModel + `, "normalizer": {"type": "Replace", "content": "", "pattern": {"Regex": "` + strings.Repeat(`\\p{L}`, 800) + `"}}}`,
		"nested repeats":      `{` + smallModel + `, "normalizer": {"type": "Replace", "content": "", "pattern": {"Regex": "((a{999}){999}){999}"}}}`,
		"deeply nested":       `{` + smallModel + `, "normalizer": ` + strings.Repeat(`{"type": "Sequence", "normalizers": [`, 5000) + strings.Repeat(`]}`, 5000) + `}`,
		"deeply nested lists": `{"model": ` + strings.Repeat(`[`, 1<<18) + strings.Repeat(`]`, 1<<18) + `}`,
	}
	for _, folder := range goldenFolders(t) {
		data, err := os.ReadFile(filepath.Join(folder, "tokenizer.json"))
		if err != nil {
			t.Fatal(err)
		}
		files[folder] = string(data)
	}
	for name, text := range files {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Parse([]byte(text))
		runtime.ReadMemStats(&after)
		used := after.TotalAlloc - before.TotalAlloc
		if limit := uint64(1<<20 + 64*len(text)); used > limit {
			t.Errorf("%s: %d bytes for a file of %d (error %v)", name, used, len(text), err)
		}
		t.Logf("%s: %.1f times the %d bytes of the file", name, float64(used)/float64(len(text)), len(text))
	}
}

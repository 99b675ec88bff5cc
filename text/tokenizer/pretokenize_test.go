package tokenizer

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestPreTokenizers(t *testing.T) {
	split := func(behavior string, invert string) string {
		return `{"type": "Split", "pattern": {"String": "-"}, "behavior": "` + behavior + `", "invert": ` + invert + `}`
	}
	const dashes = "the-final--countdown"
	const metaspace = `{"type": "Metaspace", "replacement": "_", `
	for _, test := range []struct{ name, json, text, want string }{
		{"removed", split("Removed", "false"), dashes, "the|final|countdown"},
		{"isolated", split("Isolated", "false"), dashes, "the|-|final|-|-|countdown"},
		{"merged with previous", split("MergedWithPrevious", "false"), dashes, "the-|final-|-|countdown"},
		{"merged with next", split("MergedWithNext", "false"), dashes, "the|-final|-|-countdown"},
		{"contiguous", split("Contiguous", "false"), dashes, "the|-|final|--|countdown"},
		{"edges", split("MergedWithNext", "false"), "-a--", "-a|-|-"},
		{"edges", split("MergedWithPrevious", "false"), "-a--", "-|a-|-"},
		{"invert and remove", split("Removed", "true"), dashes, "-|-|-"},
		{"invert and merge", split("MergedWithNext", "true"), dashes, "the-|final-|-|countdown"},
		{"digits", `{"type": "Digits", "individual_digits": false}`, "a12½b", "a|12½|b"},
		{"single digits", `{"type": "Digits", "individual_digits": true}`, "a12½b", "a|1|2|½|b"},
		{"punctuation", `{"type": "Punctuation"}`, "a!?$b", "a|!|?|$|b"},
		{"byte-level", `{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true}`, "a é\n", "Ġa|ĠÃ©|Ċ"},
		{"byte-level with a space", `{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true}`, " a", "Ġa"},
		{"byte-level without a pattern", `{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}`,
			"a b", "aĠb"},
		{"metaspace", metaspace + `"prepend_scheme": "always", "split": true}`, "a  b", "_a|_|_b"},
		{"metaspace unsplit", metaspace + `"prepend_scheme": "always", "split": false}`, "a  b", "_a__b"},
		{"metaspace first", metaspace + `"prepend_scheme": "first"}`, "a b", "_a|_b"},
		{"metaspace never", metaspace + `"prepend_scheme": "never"}`, "a b", "a|_b"},
		{"metaspace with a space", metaspace + `"prepend_scheme": "always"}`, " a", "_a"},
		{"older metaspace", metaspace + `"add_prefix_space": true, "str_rep": "_"}`, "a b", "_a|_b"},
		{"older metaspace without prefix", metaspace + `"add_prefix_space": false}`, "a b", "a|_b"},
		{"metaspace with both", metaspace + `"add_prefix_space": true, "prepend_scheme": "first"}`, "a", "_a"},
		{"first within a sequence", `{"type": "Sequence", "pretokenizers": [` + split("Removed", "false") + `, ` +
			metaspace + `"prepend_scheme": "first"}]}`, "a-b", "_a|b"},
		{"empty sequence", `{"type": "Sequence", "pretokenizers": []}`, "a b", "a b"},
	} {
		preTokenize, err := parsePreTokenizer(json.RawMessage(test.json), &chain{})
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		var got []string
		preTokenize(nil, test.text, true, func(piece string, first bool) { got = append(got, piece) })
		if got := strings.Join(got, "|"); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

func TestNormalizers(t *testing.T) {
	for _, test := range []struct{ json, text, want string }{
		{`{"type": "Prepend", "prepend": "_"}`, "a", "_a"},
		{`{"type": "Prepend", "prepend": "_"}`, "", ""},
		{`{"type": "Replace", "pattern": {"String": "ab"}, "content": "c"}`, "aabab", "acc"},
		{`{"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}`, "a  b   c ", "a b c "},
		{`{"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "Replace", "pattern": {"Regex": "\\p{M}"}, "content": ""},
			{"type": "Sequence", "normalizers": [{"type": "NFKC"}]}]}`, "éﬁ", "efi"},
		{`{"type": "NFKD"}`, "é½", "e\u03011\u20442"},
	} {
		normalize, err := parseNormalizer(json.RawMessage(test.json), &chain{})
		if err != nil {
			t.Errorf("%s: %v", test.json, err)
			continue
		}
		if got := normalize(nil, test.text); got != test.want {
			t.Errorf("%s: %q, want %q", test.json, got, test.want)
		}
	}
}

func TestPostProcessors(t *testing.T) {
	template := func(first, last string) string {
		return `{"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "` + first + `", "type_id": 0}},
			{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "` + last + `", "type_id": 0}}], "pair": [],
			"special_tokens": {"a": {"id": "a", "ids": [1, 2], "tokens": ["x", "y"]}, "b": {"id": "b", "ids": [3], "tokens": ["z"]}}}`
	}
	const offsets = `{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true}`
	for _, test := range []struct {
		name, json    string
		before, after int
	}{
		{"template", template("a", "b"), 2, 1},
		{"sequence", `{"type": "Sequence", "processors": [` + offsets + `, ` + template("a", "b") + `, ` + offsets + `]}`, 2, 1},
		{"bert", `{"type": "BertProcessing", "sep": ["[SEP]", 2], "cls": ["[CLS]", 1]}`, 1, 1},
		{"roberta", `{"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0], "trim_offsets": true, "add_prefix_space": false}`, 1, 1},
	} {
		got, err := parsePostProcessor(json.RawMessage(test.json))
		if err != nil || len(got.before) != test.before || len(got.after) != test.after {
			t.Errorf("%s: %v and error %v, want %d ids before and %d after", test.name, got, err, test.before, test.after)
		}
	}
}

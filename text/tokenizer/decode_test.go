package tokenizer

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/krait-ml/krait/internal/prop"
	"pgregory.net/rapid"
)

// A naiveDecoder is a decoder as it is defined: from all tokens to new ones.
type naiveDecoder func(tokens []string) []string

func naiveEach(rewrite func(i, n int, token string) string) naiveDecoder {
	return func(tokens []string) []string {
		var result []string
		for i, token := range tokens {
			result = append(result, rewrite(i, len(tokens), token))
		}
		return result
	}
}

func naiveFuse(tokens []string) []string { return []string{strings.Join(tokens, "")} }

func naiveByteLevel(tokens []string) []string {
	var all []byte
	for _, token := range tokens {
		all = append(all, readBytes(token)...)
	}
	return []string{validUTF8(all)}
}

func naiveByteFallback(tokens []string) (result []string) {
	for len(tokens) > 0 {
		var run []byte
		for len(tokens) > 0 {
			var b byte
			if n, _ := fmt.Sscanf(tokens[0], "<0x%02X>", &b); n == 0 || len(tokens[0]) != 6 || tokens[0][5] != '>' {
				break
			}
			run, tokens = append(run, b), tokens[1:]
		}
		if len(run) == 0 {
			// no bytes here
		} else if utf8.Valid(run) {
			result = append(result, string(run))
		} else {
			result = append(result, slices.Repeat([]string{"\uFFFD"}, len(run))...) // a token per byte, as in the library
		}
		if len(tokens) > 0 {
			result, tokens = append(result, tokens[0]), tokens[1:]
		}
	}
	return result
}

func naiveCTC(tokens []string) (result []string) {
	for i, token := range tokens {
		if i > 0 && token == tokens[i-1] {
			continue
		}
		token = strings.ReplaceAll(token, "<p>", "")
		if token = strings.ReplaceAll(cleanup(token), "|", " "); token != "" {
			result = append(result, token)
		}
	}
	return result
}

// naiveDecoders are decoders as a file has them and as they are defined.
var naiveDecoders = map[string]naiveDecoder{
	`{"type": "Fuse"}`:         naiveFuse,
	`{"type": "ByteLevel"}`:    naiveByteLevel,
	`{"type": "ByteFallback"}`: naiveByteFallback,
	`{"type": "CTC", "pad_token": "<p>", "word_delimiter_token": "|", "cleanup": true}`: naiveCTC,
	`{"type": "Replace", "pattern": {"String": "aab"}, "content": "Xa"}`: naiveEach(func(_, _ int, token string) string {
		return strings.ReplaceAll(token, "aab", "Xa")
	}),
	`{"type": "Replace", "pattern": {"Regex": "a+"}, "content": "b"}`: naiveEach(func(_, _ int, token string) string {
		for strings.Contains(token, "aa") {
			token = strings.ReplaceAll(token, "aa", "a")
		}
		return strings.ReplaceAll(token, "a", "b")
	}),
	`{"type": "Strip", "content": "a", "start": 1, "stop": 2}`: naiveEach(func(_, _ int, token string) string {
		token = strings.TrimPrefix(token, "a")
		return strings.TrimSuffix(strings.TrimSuffix(token, "a"), "a")
	}),
	`{"type": "Metaspace", "replacement": "_", "prepend_scheme": "always"}`: naiveEach(func(i, _ int, token string) string {
		if i == 0 {
			return strings.ReplaceAll(token, "_", "")
		}
		return strings.ReplaceAll(token, "_", " ")
	}),
	`{"type": "BPEDecoder", "suffix": "</w>"}`: naiveEach(func(i, n int, token string) string {
		if i == n-1 {
			return strings.ReplaceAll(token, "</w>", "")
		}
		return strings.ReplaceAll(token, "</w>", " ")
	}),
	`{"type": "WordPiece", "prefix": "##", "cleanup": true}`: naiveEach(func(i, _ int, token string) string {
		if i > 0 && strings.HasPrefix(token, "##") {
			token = token[2:]
		} else if i > 0 {
			token = " " + token
		}
		return cleanup(token)
	}),
}

// TestDecodersAreNaiveDecoders runs random sequences of decoders.
func TestDecodersAreNaiveDecoders(t *testing.T) {
	var configs []string
	for config := range naiveDecoders {
		configs = append(configs, config)
	}
	slices.Sort(configs)
	token := rapid.SampledFrom([]string{"a", "aa", "aab", "b", "_a", "_", "b</w>", "##a", ".", " ", "é", "Ã", "©", "ã", "|",
		"<p>", "<0xC3>", "<0xA9>", "<0x61>", "<0xZZ>", "<0x61>>", "Ġ"})
	prop.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(rapid.SampledFrom(configs), 1, 4).Draw(t, "decoders")
		tokens := rapid.SliceOfN(token, 0, 12).Draw(t, "tokens")
		d, err := parseDecoder(json.RawMessage(`{"type": "Sequence", "decoders": [` + strings.Join(parts, ",") + `]}`))
		if err != nil {
			t.Fatal(err)
		}
		var text textSink
		chain := d.sink(&text, false)
		want := tokens
		for _, part := range parts {
			want = naiveDecoders[part](want)
		}
		for range 2 { // a chain can be used again after flush
			for _, token := range tokens {
				chain.push(token)
			}
			chain.flush()
			if got := text.take(); got != strings.Join(want, "") {
				t.Fatalf("%v of %q = %q, want %q", parts, tokens, got, want)
			}
		}
	})
}

// TestStreamIsPrompt requires each character as soon as it is certain.
func TestStreamIsPrompt(t *testing.T) {
	for _, test := range []struct{ name, tokens, decoder, want string }{
		{"half characters", "Ã © Ġ Ã a", `{"type": "ByteLevel"}`, "|é| ||\uFFFDa|"},
		{"rows of bytes", "a <0xC3> <0xA9> b", `{"type": "ByteFallback"}`, "a|||éb|"},
		{"llama", "_a _b <0x61>",
			`{"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "_"}, "content": " "},
			{"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}`,
			"a| b||a"},
		{"replaced across tokens", "x a a b a",
			`{"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "Replace", "pattern": {"String": "aab"}, "content": "!"}]}`,
			"x|||!||a"},
		{"end", "a b aa a b a",
			`{"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "Strip", "content": "a", "start": 0, "stop": 2}]}`,
			"|ab||a|aab||"},
		{"no decoder", "a b", "null", "a| b|"},
	} {
		raw := json.RawMessage(test.decoder)
		if test.decoder == "null" {
			raw = nil
		}
		d, err := parseDecoder(raw)
		if err != nil {
			t.Fatal(err)
		}
		var text textSink
		chain := d.sink(&text, false)
		var got []string
		for _, token := range strings.Fields(test.tokens) {
			chain.push(token)
			got = append(got, text.take())
		}
		chain.flush()
		if got := strings.Join(append(got, text.take()), "|"); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

package tokenizer

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// hostile is a tokenizer.json of a BPE with parts of its own.
func hostile(normalizer, preTokenizer, added string) string {
	return fmt.Sprintf(`{"added_tokens": [%s], "normalizer": %s, "pre_tokenizer": %s, "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}`,
		added, normalizer, preTokenizer)
}

func replaces(n int, from, to string) string {
	one := fmt.Sprintf(`{"type": "Replace", "pattern": %s, "content": %q}`, from, to)
	return `{"type": "Sequence", "normalizers": [` + strings.TrimSuffix(strings.Repeat(one+", ", n), ", ") + "]}"
}

// TestMeter: what would take minutes or gigabytes is an error after some of either.
func TestMeter(t *testing.T) {
	var words, tails []string
	for i := range 80 {
		words = append(words, fmt.Sprintf("a%dx", i))
		tails = append(tails, strings.Repeat("a", 30)+string(rune('b'+i%20)))
	}
	split := func(pattern string) string {
		return fmt.Sprintf(`{"type": "Split", "pattern": {"Regex": %q}, "behavior": "Isolated", "invert": false}`, pattern)
	}
	long := fmt.Sprintf(`{"id": 1, "content": %q, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}`,
		strings.Repeat("a", 1<<15)+"b")
	for name, c := range map[string]struct {
		file  string
		fails bool
	}{
		"three tenfold":      {hostile(replaces(3, `{"String": "a"}`, "aaaaaaaaaa"), "null", ""), true},
		"three by a pattern": {hostile(replaces(3, `{"Regex": "a"}`, "aaaaaaaaaa"), "null", ""), true},
		"a thousandfold":     {hostile(replaces(1, `{"String": "a"}`, strings.Repeat("a", 1000)), "null", ""), true},
		"often the same":     {hostile(replaces(60, `{"String": "a"}`, "a"), "null", ""), true},
		"once":               {hostile(replaces(1, `{"String": "a"}`, "aaa"), "null", ""), false},
		"80 words":           {hostile("null", split(strings.Join(words, "|")), ""), true},
		"80 of others":       {hostile("null", split(strings.ReplaceAll(strings.Join(words, "|"), "a", "b")), ""), false},
		"80 long words":      {hostile("null", split(strings.Join(tails, "|")), ""), true},
		"a long added token": {hostile("null", "null", long), true},
	} {
		p, err := Parse([]byte(c.file))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		ids, err := p.Encode(strings.Repeat("a", 1<<16), false)
		if c.fails && (err == nil || !strings.Contains(err.Error(), "asks for too much") || ids != nil) || !c.fails && err != nil {
			t.Errorf("%s: %d ids, %v", name, len(ids), err)
		}
		if _, err := p.Encode("aa", false); err != nil {
			t.Errorf("%s: a short text: %v", name, err)
		}
	}
}

// TestMeterIsFar: tokenizers that are meant well take a share of what they may.
func TestMeterIsFar(t *testing.T) {
	texts := map[string]string{}
	for _, s := range []string{" ", "\n", "a ", "1", "é", "'", "ﷺ", "ｶﾞ", "\u0344", "<s>", "word word, 12 words. "} {
		texts[s] = strings.Repeat(s, 10_000/len(s))
	}
	folders, err := filepath.Glob("testdata/golden/*/tokenizer.json")
	if err != nil || len(folders) == 0 {
		t.Fatal(folders, err)
	}
	for _, path := range folders {
		p, err := Load(path)
		if err != nil {
			t.Fatal(err)
		}
		for name, text := range texts {
			m := newMeter(len(text))
			p.encode(m, text)
			if left := float64(m.left-unitsAtLeast) / float64(unitsPerByte*len(text)); left < 0.5 {
				t.Errorf("%s, %q: %.0f of %d units for a byte", path, name, unitsPerByte*(1-left), unitsPerByte)
			}
		}
	}
}

// TestDecoderBounds: what decodes is bounded when it is read.
func TestDecoderBounds(t *testing.T) {
	for content, fails := range map[string]bool{"b": false, strings.Repeat("b", 101): true} {
		file := fmt.Sprintf(`{"decoder": {"type": "Replace", "pattern": {"String": "a"}, "content": %q}, "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}`, content)
		if _, err := Parse([]byte(file)); (err != nil) != fails {
			t.Errorf("content of %d bytes: %v", len(content), err)
		}
	}
	file := fmt.Sprintf(`{"decoder": {"type": "Replace", "pattern": {"Regex": %q}, "content": ""}, "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}`, strings.Repeat("a", 200))
	if _, err := Parse([]byte(file)); err == nil || !strings.Contains(err.Error(), "too large: 201 steps") {
		t.Error(err)
	}
}

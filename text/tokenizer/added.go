package tokenizer

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// An addedToken is found in the text before anything else is done with it.
type addedToken struct {
	id      int
	content string

	singleWord     bool // only if no word character touches it
	lstrip, rstrip bool // takes the white space before it, or after it
	normalized     bool // is looked for in the normalized text
	special        bool // is left out when decoding without special tokens
}

// parseAdded reads the added tokens. One that the model does not have gets
// the next free id, whatever the file says: where the two differ, the library
// goes on and other programs may not, so that it is an error.
func parseAdded(raw json.RawMessage, vocab map[string]tokenID) ([]*addedToken, error) {
	var elements []json.RawMessage
	if raw != nil {
		if err := json.Unmarshal(raw, &elements); err != nil {
			return nil, fmt.Errorf("added_tokens: %w", err)
		}
	}
	seen := map[string]bool{}
	next := len(vocab)
	var tokens []*addedToken
	for i, raw := range elements {
		t, err := parseAddedToken(newObject(fmt.Sprintf("added_tokens[%d]", i), raw))
		if err != nil {
			return nil, err
		}
		id, inModel := vocab[t.content]
		want := int(id)
		if !inModel {
			want = next
			next++
		}
		switch {
		case t.content == "":
			return nil, fmt.Errorf("added_tokens[%d] has no content", i)
		case seen[t.content]:
			return nil, fmt.Errorf("added_tokens[%d]: %q is there twice", i, t.content)
		case t.id != want:
			return nil, fmt.Errorf("added_tokens[%d]: %q has id %d, where Hugging Face's library would use %d: "+
				"the ids of the vocabulary have gaps, or the tokens are not in their order", i, t.content, t.id, want)
		}
		seen[t.content] = true
		tokens = append(tokens, t)
	}
	return tokens, nil
}

func parseAddedToken(o *object) (*addedToken, error) {
	t := &addedToken{
		content:    o.text("content"),
		singleWord: o.flag("single_word"),
		lstrip:     o.flag("lstrip"),
		rstrip:     o.flag("rstrip"),
		normalized: o.flag("normalized"),
		special:    o.flag("special"),
	}
	var id tokenID
	o.required("id", &id)
	t.id = int(id)
	return t, o.done()
}

// A finder finds added tokens in a text.
type finder struct {
	patterns []string      // ascending
	tokens   []*addedToken // of the patterns
	starts   [257]int      // the first pattern that begins with a byte or a later one
}

// newFinder looks for tokens as write spells them.
func newFinder(tokens []*addedToken, write func(string) (string, error)) (*finder, error) {
	f := &finder{}
	byPattern := map[string]*addedToken{}
	for _, t := range tokens {
		pattern, err := write(t.content)
		if err != nil {
			return nil, fmt.Errorf("added_tokens: %.100q: %w", t.content, err)
		}
		if pattern == "" {
			return nil, fmt.Errorf("added_tokens: nothing is left of %q when it is normalized", t.content)
		}
		if other := byPattern[pattern]; other != nil {
			return nil, fmt.Errorf("added_tokens: %q and %q are the same when normalized", other.content, t.content)
		}
		byPattern[pattern] = t
		f.patterns = append(f.patterns, pattern)
	}
	slices.Sort(f.patterns)
	for _, pattern := range f.patterns {
		f.tokens = append(f.tokens, byPattern[pattern])
		f.starts[int(pattern[0])+1]++
	}
	for b := range 256 {
		f.starts[b+1] += f.starts[b]
	}
	return f, nil
}

// longest returns the longest token that text begins with, and its length.
func (f *finder) longest(m *meter, text string) (t *addedToken, length int) {
	low, high := f.starts[text[0]], f.starts[int(text[0])+1]
	// All patterns from low to high agree with text in their first n bytes.
	for n := 1; low < high; n++ {
		m.spend(1)
		if len(f.patterns[low]) == n {
			t, length = f.tokens[low], n
			low++
		}
		if n == len(text) {
			break
		}
		b := text[n]
		low += searchByte(f.patterns[low:high], n, int(b))
		high = low + searchByte(f.patterns[low:high], n, int(b)+1)
	}
	return t, length
}

// searchByte returns the number of patterns with less than b at position n.
func searchByte(patterns []string, n, b int) int {
	i, _ := slices.BinarySearchFunc(patterns, b, func(p string, b int) int { return int(p[n]) - b })
	return i
}

// split calls yield for each added token of text, and with a nil token for
// each stretch between them, which starts at a byte of text.
func (f *finder) split(m *meter, text string, yield func(t *addedToken, stretch string, start int)) {
	done := 0
	for pos := 0; pos < len(text) && len(f.patterns) > 0; {
		t, n := f.longest(m, text[pos:])
		if t == nil {
			pos++
			continue
		}
		start, stop := pos, pos+n
		pos = stop
		if t.singleWord && touchesWord(text, start, stop) {
			continue
		}
		// A token before it may have taken the space beyond its start, up to done.
		if t.lstrip {
			start = done + len(strings.TrimRightFunc(text[min(done, start):start], isSpace))
		}
		if t.rstrip {
			stop = len(text) - len(strings.TrimLeftFunc(text[max(done, stop):], isSpace))
		}
		if start >= stop {
			continue
		}
		if done < start {
			yield(nil, text[done:start], done)
		}
		yield(t, "", start)
		done = stop
	}
	if done < len(text) {
		yield(nil, text[done:], done)
	}
}

func isSpace(r rune) bool { return whiteSpace().contains(r) }

// touchesWord reports whether a word character is before start or after stop.
func touchesWord(text string, start, stop int) bool {
	before, _ := utf8.DecodeLastRuneInString(text[:start])
	after, _ := utf8.DecodeRuneInString(text[stop:])
	return start > 0 && wordChars().contains(before) || stop < len(text) && wordChars().contains(after)
}

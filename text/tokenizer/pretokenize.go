package tokenizer

import (
	"encoding/json"
	"strings"
)

// A preTokenizer cuts a text into pieces, within which the model merges, and may rewrite them.
// first tells that the text begins the input, and that a piece does.
type preTokenizer func(m *meter, text string, first bool, yield yieldPiece)

type yieldPiece func(piece string, first bool)

var preTokenizers = component[preTokenizer]{
	field:    "pretokenizers",
	sequence: func(_ *object, parts []preTokenizer) preTokenizer { return preTokenizeInTurn(parts) },
	read: map[string]func(o *object) preTokenizer{
		"ByteLevel":   readByteLevel,
		"Digits":      readDigits,
		"Metaspace":   readMetaspacePreTokenizer,
		"Punctuation": readPunctuation,
		"Split":       readSplit,
	},
}

func parsePreTokenizer(raw json.RawMessage, parts *chain) (preTokenizer, error) {
	if raw == nil {
		return preTokenizeInTurn(nil), nil
	}
	return preTokenizers.parse("pre_tokenizer", raw, parts)
}

func preTokenizeInTurn(parts []preTokenizer) preTokenizer {
	if len(parts) == 0 {
		return func(_ *meter, text string, first bool, yield yieldPiece) { yield(text, first) }
	}
	if len(parts) == 1 {
		return parts[0]
	}
	head, rest := parts[0], preTokenizeInTurn(parts[1:])
	return func(m *meter, text string, first bool, yield yieldPiece) {
		head(m, text, first, func(piece string, first bool) { rest(m, piece, first, yield) })
	}
}

// preTokenize makes a splitter a preTokenizer.
func (s splitter) preTokenize(m *meter, text string, first bool, yield yieldPiece) {
	s.split(m, text, func(start, end int) {
		yield(text[start:end], first && start == 0)
	})
}

func readSplit(o *object) preTokenizer {
	s := splitter{
		pattern:  o.pattern("pattern"),
		behavior: choice(o, "behavior", "", behaviors),
		invert:   o.flag("invert"),
	}
	return s.preTokenize
}

func readPunctuation(o *object) preTokenizer {
	class := newCharClass(false, classItem{set: punctuation()})
	return splitter{pattern: class, behavior: choice(o, "behavior", "Isolated", behaviors)}.preTokenize
}

func readDigits(o *object) preTokenizer {
	how := behaviors["Contiguous"]
	if o.flag("individual_digits") {
		how = behaviors["Isolated"]
	}
	class := newCharClass(false, classItem{set: digits()})
	return splitter{pattern: class, behavior: how}.preTokenize
}

// gpt2Pattern is what a ByteLevel splits by.
const gpt2Pattern = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

func readByteLevel(o *object) preTokenizer {
	prefixSpace := o.flag("add_prefix_space")
	o.flag("trim_offsets") // of no effect on ids
	o.grows(2)
	o.rewrites()
	useRegex := true
	o.optional("use_regex", &useRegex)

	words := preTokenizeInTurn(nil)
	if useRegex {
		re, err := compileRegex(gpt2Pattern)
		if err != nil {
			o.fail("%w", err)
		}
		words = splitter{pattern: re, behavior: behaviors["Isolated"]}.preTokenize
	}
	return func(m *meter, text string, first bool, yield yieldPiece) {
		m.write(2 * len(text)) // at most
		if prefixSpace && !strings.HasPrefix(text, " ") {
			text = " " + text
		}
		words(m, text, first, func(piece string, first bool) { yield(spellBytes(piece), first) })
	}
}

// A metaspace writes spaces as another character, so that a text and its
// pieces look the same. It is a pre-tokenizer and a decoder.
type metaspace struct {
	replacement string
	prepend     prependScheme
	split       bool
}

// A prependScheme says which texts get a space before them.
type prependScheme int

const (
	prependAlways prependScheme = iota
	prependFirst                // the one that begins the input
	prependNever
)

// readMetaspace accepts the older add_prefix_space beside or instead of the scheme.
func readMetaspace(o *object) metaspace {
	m := metaspace{replacement: string(o.char("replacement")), split: true}
	prefixSpace, fallback := true, "always"
	o.optional("add_prefix_space", &prefixSpace)
	if !prefixSpace {
		fallback = "never"
	}
	m.prepend = choice(o, "prepend_scheme", fallback, map[string]prependScheme{
		"always": prependAlways, "first": prependFirst, "never": prependNever,
	})
	if !prefixSpace && m.prepend != prependNever {
		o.failField("add_prefix_space", "false contradicts prepend_scheme")
	}
	o.optional("split", &m.split)
	o.grows(1 + len(m.replacement))
	o.ignore("str_rep") // an older copy of replacement
	return m
}

func readMetaspacePreTokenizer(o *object) preTokenizer {
	m := readMetaspace(o)
	if m.prepend == prependFirst && o.chain.rewrote != "" {
		o.failField("prepend_scheme", `"first" after %s is not supported`, o.chain.rewrote)
	}
	o.rewrites()
	return m.preTokenize
}

func (m metaspace) preTokenize(meter *meter, text string, first bool, yield yieldPiece) {
	text = replaceAll(meter, text, literal(" "), m.replacement)
	prepend := m.prepend == prependAlways || m.prepend == prependFirst && first
	if prepend && !strings.HasPrefix(text, m.replacement) {
		text = m.replacement + text
	}
	if !m.split {
		yield(text, first)
		return
	}
	words := splitter{pattern: literal(m.replacement), behavior: mergedWithNext}
	words.preTokenize(meter, text, first, yield)
}

package tokenizer

import (
	"fmt"
	"unicode/utf8"
)

// A bpe is the model of the pipeline: byte pair encoding. It writes a piece
// as the tokens of its characters, and merges pairs of them.
type bpe struct {
	vocab  map[string]tokenID
	few    [fewChars]maybeID // the first characters of vocab, quickly
	merges mergeTable

	prefix, suffix string // of characters after the first, and of the last
	ignoreMerges   bool   // take a piece that is a token as it is
	unk            maybeID
	fuseUnk        bool         // one unk for a run of unknown characters
	byteFallback   bool         // before unk, try the tokens of the bytes
	bytes          [256]maybeID // <0x00> to <0xFF>
}

// fewChars includes the byte-level alphabet.
const fewChars = 512

// A maybeID is the id of a token, or noID.
type maybeID int64

const noID maybeID = -1

// index fills the tables that are derived from the vocabulary.
func (m *bpe) index() {
	for r := range m.few {
		m.few[r] = m.lookup(string(rune(r)))
	}
	for b := range m.bytes {
		m.bytes[b] = m.lookup(fmt.Sprintf("<0x%02X>", b))
	}
}

func (m *bpe) lookup(token string) maybeID {
	if id, ok := m.vocab[token]; ok {
		return maybeID(id)
	}
	return noID
}

// encode appends the ids of piece to ids.
func (m *bpe) encode(ids []int, piece string, w *word) []int {
	if m.ignoreMerges {
		if id, ok := m.vocab[piece]; ok {
			return append(ids, int(id))
		}
	}
	w.reset(len(piece))
	m.spell(piece, w)
	w.merge(&m.merges)
	return w.appendIDs(ids)
}

// spell adds the tokens of the characters of piece to w.
func (m *bpe) spell(piece string, w *word) {
	unknown := false // whether an unk token is still to be added
	addUnknown := func() {
		if unknown {
			w.add(tokenID(m.unk))
			unknown = false
		}
	}
	for at, r := range piece {
		id, text := m.char(piece, at, r)
		if id != noID {
			addUnknown()
			w.add(tokenID(id))
			continue
		}
		// The order is that of the library: bytes come before an unk token
		// that waits. It matters only where the vocabulary lacks some bytes.
		if m.addBytes(text, w) || m.unk == noID {
			continue
		}
		if !m.fuseUnk {
			addUnknown()
		}
		unknown = true
	}
	addUnknown()
}

// char returns the token of the character r that piece has at a position,
// and how the vocabulary would spell it.
func (m *bpe) char(piece string, at int, r rune) (id maybeID, text string) {
	end := at + utf8.RuneLen(r)
	text = piece[at:end]
	if m.prefix == "" && m.suffix == "" && r < fewChars {
		return m.few[r], text
	}
	if at > 0 {
		text = m.prefix + text
	}
	if end == len(piece) {
		text += m.suffix
	}
	return m.lookup(text), text
}

// addBytes adds the tokens of the bytes of text, if all have one.
func (m *bpe) addBytes(text string, w *word) bool {
	if !m.byteFallback {
		return false
	}
	for i := range len(text) {
		if m.bytes[text[i]] == noID {
			return false
		}
	}
	for i := range len(text) {
		w.add(tokenID(m.bytes[text[i]]))
	}
	return true
}

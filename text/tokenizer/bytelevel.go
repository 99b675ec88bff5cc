package tokenizer

import "strings"

// Byte-level vocabularies spell each byte as a character: itself if it is a
// visible one of Latin-1, else one of those from U+0100 on, in turn.
var byteChars, charBytes = func() (chars [256]rune, bytes map[rune]byte) {
	bytes = make(map[rune]byte, len(chars))
	other := rune(256)
	for b := range rune(256) {
		visible := '!' <= b && b <= '~' || 0xA1 <= b && b <= 0xFF && b != 0xAD
		chars[b] = b
		if !visible {
			chars[b] = other
			other++
		}
		bytes[chars[b]] = byte(b)
	}
	return chars, bytes
}()

// spellBytes returns the byte-level spelling of text.
func spellBytes(text string) string {
	var spelled strings.Builder
	spelled.Grow(len(text) + 2) // most words are a space and ASCII
	for i := range len(text) {
		spelled.WriteRune(byteChars[text[i]])
	}
	return spelled.String()
}

// Spelled returns the bytes that a token's spelling stands for: a byte token such as <0x0A>, or
// one of a byte-level vocabulary, which may be part of a character.
func Spelled(piece string) []byte {
	if b, ok := byteToken(piece); ok {
		return []byte{b}
	}
	return readBytes(piece)
}

// readBytes returns the bytes that a byte-level token spells. A token that
// has a character of no byte stands for itself.
func readBytes(token string) []byte {
	spelled := make([]byte, 0, len(token))
	for _, r := range token {
		b, ok := charBytes[r]
		if !ok {
			return []byte(token)
		}
		spelled = append(spelled, b)
	}
	return spelled
}

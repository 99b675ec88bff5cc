package tokenizer

// ByteVocab is the vocabulary of a model whose tokens are bytes.
const ByteVocab = 256

// Bytes is the tokenizer without a vocabulary: the ids 0 to 255 are bytes.
type Bytes struct{}

// Encode returns the bytes of text. There are no special tokens to add.
func (Bytes) Encode(text string, special bool) ([]int, error) {
	ids := make([]int, len(text))
	for i := range ids {
		ids[i] = int(text[i])
	}
	return ids, nil
}

// Decode joins the bytes, with one U+FFFD for each maximal malformed part.
// Ids that are not bytes are skipped.
func (t Bytes) Decode(ids []int, skipSpecial bool) string {
	b := make([]byte, 0, len(ids))
	for _, id := range ids {
		if isByte(id) {
			b = append(b, byte(id))
		}
	}
	return validUTF8(b)
}

// NewStream returns a decoder that takes one byte at a time.
func (Bytes) NewStream(skipSpecial bool) Stream { return &byteStream{} }

// Piece returns the byte id as a string of length 1.
func (Bytes) Piece(id int) (piece string, ok bool) {
	if !isByte(id) {
		return "", false
	}
	return string([]byte{byte(id)}), true
}

// ID returns the byte of a piece of length 1.
func (Bytes) ID(piece string) (id int, ok bool) {
	if len(piece) != 1 {
		return 0, false
	}
	return int(piece[0]), true
}

// Size returns 256.
func (Bytes) Size() int { return 256 }

// BOS reports that no token begins a text.
func (Bytes) BOS() (id int, ok bool) { return 0, false }

// EOS reports that no token ends a text.
func (Bytes) EOS() (id int, ok bool) { return 0, false }

type byteStream struct{ text utf8Buffer }

func (s *byteStream) Push(id int) string {
	if !isByte(id) {
		return ""
	}
	return s.text.push(byte(id))
}

func (s *byteStream) Flush() string { return s.text.flush() }

func isByte(id int) bool { return 0 <= id && id <= 255 }

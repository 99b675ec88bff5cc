// Package tokenizer turns text into token ids and back.
//
// A [Pipeline] is read from the tokenizer.json that Hugging Face writes, and gives the ids of that
// library. A [Bytes] needs no file: its ids are bytes. Whatever has the methods of [Tokenizer] can
// be a model's; one that also has EOS() (id int, ok bool) says which token ends a text.
//
//	t, err := tokenizer.Load("path/to/folder") // tokenizer.json, and what tokenizer_config.json adds
//	if err != nil { … }                        // names the file, and the place in it
//	ids, err := t.Encode("In the beginning", true)
//	text := t.Decode(ids, true)
//
// Ids begin at 0. Texts are UTF-8; invalid bytes become U+FFFD. A [Stream] decodes a text token by
// token.
package tokenizer

// A Tokenizer turns text into ids and back.
// Its methods may be called from several goroutines at once.
type Tokenizer interface {
	// Encode returns the ids of text. With special, those that the
	// tokenizer puts around every text (such as bos) are added. It is an
	// error where a tokenizer.json asks for far more work than a text is worth.
	Encode(text string, special bool) ([]int, error)

	// Decode returns the text of ids, without special tokens if skipSpecial. An id that no token
	// has is skipped. Bytes that are not UTF-8 become U+FFFD.
	Decode(ids []int, skipSpecial bool) string

	// NewStream returns a decoder that takes one id at a time.
	NewStream(skipSpecial bool) Stream

	// Piece returns the token of id, as the vocabulary spells it.
	Piece(id int) (piece string, ok bool)

	// Size returns the number of tokens, added ones included.
	Size() int
}

// A Stream decodes ids as they come. What its calls return, joined, is what
// [Tokenizer.Decode] returns for all the ids.
// A Stream belongs to one goroutine.
type Stream interface {
	// Push takes the next id and returns the text that has become certain.
	// It is empty while a character is incomplete.
	Push(id int) string

	// Flush ends the text and returns the rest of it. The stream is then ready for another text.
	Flush() string
}

var (
	_ Tokenizer = Bytes{}
	_ Tokenizer = (*Pipeline)(nil)
)

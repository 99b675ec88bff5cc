package tokenizer

import "fmt"

// A meter bounds what encoding a text may cost, since a tokenizer.json decides it: a unit is a step
// of a pattern, or a byte compared with an added token; a byte that a part writes is more.
// Tokenizers that are meant well take some 40 units for a byte. A nil one bounds nothing.
type meter struct {
	text, left int // bytes, and units
}

const (
	unitsPerByte    = 128
	unitsPerWritten = 8       // so that a text becomes at most 16 times as long
	unitsAtLeast    = 1 << 20 // for short texts
)

func newMeter(text int) *meter { return &meter{text, unitsPerByte*text + unitsAtLeast} }

// tooMuch is what a meter panics with, for end.
type tooMuch struct{}

func (m *meter) spend(units int) {
	if m == nil {
		return
	}
	if m.left -= units; m.left < 0 {
		panic(tooMuch{})
	}
}

// write spends what a part is about to write.
func (m *meter) write(bytes int) {
	if m != nil {
		m.spend(unitsPerWritten * min(bytes, m.left+1))
	}
}

// end, deferred, makes an error of a meter that ran out.
func (m *meter) end(err *error) {
	switch p := recover(); p {
	case nil:
	case tooMuch{}:
		*err = fmt.Errorf("the tokenizer takes more than %d steps for each of the text's %d bytes, or makes it more than %d times as long: its tokenizer.json asks for too much",
			unitsPerByte, m.text, unitsPerByte/unitsPerWritten)
	default:
		panic(p)
	}
}

package tokenizer

import (
	"slices"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// A normalForm is NFC, NFD, NFKC or NFKD as Unicode 9 defines it.
//
// Package norm gives the properties of the characters. It does not give the
// forms: it knows later characters, and puts U+034F into long runs of marks.
type normalForm struct {
	form      norm.Form
	decompose norm.Form
	compose   bool
	inert     func() runeSet // the later characters
	growth    int            // how many times as long a character may become
}

var (
	nfc  = normalForm{form: norm.NFC, decompose: norm.NFD, compose: true, inert: inert, growth: 3}
	nfd  = normalForm{form: norm.NFD, decompose: norm.NFD, inert: inert, growth: 3}
	nfkc = normalForm{form: norm.NFKC, decompose: norm.NFKD, compose: true, inert: inertCompatibility, growth: 11}
	nfkd = normalForm{form: norm.NFKD, decompose: norm.NFKD, inert: inertCompatibility, growth: 11}
)

func (f normalForm) read(o *object) normalizer {
	o.grows(f.growth)
	if f.form != norm.NFC {
		o.rewrites()
	}
	return f.normalize
}

func (f normalForm) normalize(m *meter, text string) string {
	m.write(len(text))
	// A text that is normal by the later tables is also normal by those of
	// Unicode 9: to make a character inert only divides the text.
	if f.form.IsNormalString(text) {
		return text
	}
	chars := f.decomposed(m, text)
	sortMarks(chars)
	if f.compose {
		chars = f.composed(chars)
	}
	result := make([]rune, len(chars))
	for i, c := range chars {
		result[i] = c.rune
	}
	return string(result)
}

// A markedRune is a character and its combining class, which is 0 for a starter.
type markedRune struct {
	rune  rune
	class uint8
}

// decomposed returns the full decompositions of the characters.
func (f normalForm) decomposed(m *meter, text string) []markedRune {
	chars := make([]markedRune, 0, len(text))
	later := f.inert()
	var buf []byte
	for _, r := range text {
		if r < 0x80 || later.contains(r) {
			chars = append(chars, markedRune{rune: r})
			continue
		}
		buf = f.decompose.AppendString(buf[:0], string(r))
		m.write(max(0, len(buf)-utf8.RuneLen(r)))
		for _, d := range string(buf) {
			chars = append(chars, markedRune{d, norm.NFD.PropertiesString(string(d)).CCC()})
		}
	}
	return chars
}

// sortMarks puts each run of marks in the order of their classes.
func sortMarks(chars []markedRune) {
	for i := 0; i < len(chars); i++ {
		from := i
		for i < len(chars) && chars[i].class != 0 {
			i++
		}
		slices.SortStableFunc(chars[from:i], func(a, b markedRune) int {
			return int(a.class) - int(b.class)
		})
	}
}

// composed replaces a starter and a mark, or two starters, by the character
// that they make, unless a mark of the same or a higher class is between them.
func (f normalForm) composed(chars []markedRune) []markedRune {
	starter := -1 // where the last starter is in result
	result := chars[:0]
	for _, c := range chars {
		last := len(result) - 1
		blocked := starter < 0 || last > starter && result[last].class >= c.class
		if !blocked {
			if r, ok := f.compound(result[starter].rune, c.rune); ok {
				result[starter].rune = r
				continue
			}
		}
		if c.class == 0 {
			starter = len(result)
		}
		result = append(result, c)
	}
	return result
}

// compound returns the character that a and b make.
func (f normalForm) compound(a, b rune) (rune, bool) {
	if norm.NFC.PropertiesString(string(b)).BoundaryBefore() {
		return 0, false
	}
	var buf [16]byte
	made := []rune(string(norm.NFC.AppendString(buf[:0], string([]rune{a, b}))))
	later := f.inert()
	if len(made) != 1 || later.contains(a) || later.contains(b) || later.contains(made[0]) {
		return 0, false
	}
	return made[0], true
}

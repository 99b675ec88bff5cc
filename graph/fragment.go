package graph

import (
	"fmt"

	"github.com/krait-ml/krait/internal/bail"
)

// What other texts have of graph text: schedules write types, storage and
// attributes in the same way. Names are absolute there.

// ParseType reads what [Type.String] writes.
func ParseType(text string) (t Type, err error) {
	defer bail.Catch(&err)
	s := &scanner{text}
	t = s.typ()
	s.end()
	return t, nil
}

// ParseStored reads a type, and after it where the checkpoint has the value, or of
// which state it is a field; nil where the text does not say.
func ParseStored(text string) (t Type, storage *Storage, part *Part, err error) {
	defer bail.Catch(&err)
	s := &scanner{text}
	t, storage, part = s.stored("")
	s.end()
	return t, storage, part, nil
}

// ParseAttrs reads the attributes of an operation, {eps=1e-05}, or nothing, and
// completes them by its row.
func ParseAttrs(op *Op, text string) (_ Attrs, err error) {
	defer bail.Catch(&err)
	defer bail.In(func() string { return op.Name })
	s := &scanner{text}
	a := s.attrs(op)
	s.end()
	return bail.Of(op.complete(a)), nil
}

// ValidName reports whether a value may be called so.
func ValidName(name string) bool { return validPath(name) }

// stored reads what follows the name of a leaf of a block.
func (s *scanner) stored(block string) (Type, *Storage, *Part) {
	return s.typ(), s.storage(), s.part(block)
}

// end fails where text is left.
func (s *scanner) end() {
	if s.blank(); s.rest != "" {
		panic(fmt.Errorf("unexpected %q", s.rest))
	}
}

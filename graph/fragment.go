package graph

import "fmt"

// What other texts have of graph text: schedules write types, storage and
// attributes in the same way. Names are absolute there.

// ParseType reads what [Type.String] writes.
func ParseType(text string) (Type, error) {
	s := &scanner{text}
	t, err := s.typ()
	return t, s.end(err)
}

// ParseStored reads a type, and after it where the checkpoint has the value, or of
// which state it is a field; nil where the text does not say.
func ParseStored(text string) (Type, *Storage, *Part, error) {
	s := &scanner{text}
	t, storage, part, err := s.stored("")
	return t, storage, part, s.end(err)
}

// ParseAttrs reads the attributes of an operation, {eps=1e-05}, or nothing, and
// completes them by its row.
func ParseAttrs(op *Op, text string) (Attrs, error) {
	s := &scanner{text}
	a, err := s.attrs(op)
	if err = s.end(err); err == nil {
		a, err = op.complete(a)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", op.Name, err)
	}
	return a, nil
}

// ValidName reports whether a value may be called so.
func ValidName(name string) bool { return validPath(name) }

// stored reads what follows the name of a leaf of a block.
func (s *scanner) stored(block string) (t Type, storage *Storage, part *Part, err error) {
	if t, err = s.typ(); err != nil {
		return
	}
	if storage, err = s.storage(); err != nil {
		return
	}
	part, err = s.part(block)
	return
}

// end is err, or an error where text is left.
func (s *scanner) end(err error) error {
	if s.blank(); err == nil && s.rest != "" {
		return fmt.Errorf("unexpected %q", s.rest)
	}
	return err
}

package graph

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// scanner walks one line of graph text. Its methods skip blanks first.
type scanner struct {
	rest string
}

func (s *scanner) blank() { s.rest = strings.TrimLeft(s.rest, " \t") }

// eat takes the token when it comes next.
func (s *scanner) eat(token string) bool {
	s.blank()
	rest, ok := strings.CutPrefix(s.rest, token)
	if ok {
		s.rest = rest
	}
	return ok
}

func (s *scanner) expect(token string) error {
	if !s.eat(token) {
		return fmt.Errorf("expected %q at %q", token, s.rest)
	}
	return nil
}

// word takes the longest run of characters of a path, with extra ones allowed.
func (s *scanner) word(extra string) string {
	s.blank()
	n := 0
	for n < len(s.rest) && (validName(s.rest[n:n+1]) || strings.IndexByte(extra, s.rest[n]) >= 0) {
		n++
	}
	w := s.rest[:n]
	s.rest = s.rest[n:]
	return w
}

func (s *scanner) quoted() (string, error) {
	s.blank()
	q, err := strconv.QuotedPrefix(s.rest)
	if err != nil || q[0] != '"' {
		return "", fmt.Errorf("expected a quoted string at %q", s.rest)
	}
	s.rest = s.rest[len(q):]
	return strconv.Unquote(q)
}

func (s *scanner) int() (int, error) {
	w := s.word("-")
	n, err := strconv.Atoi(w)
	if err != nil {
		return 0, fmt.Errorf("expected a number, found %q", w+s.rest)
	}
	return n, nil
}

func (s *scanner) ints(closing string) ([]int, error) {
	list := []int{}
	for !s.eat(closing) {
		n, err := s.int()
		if err != nil {
			return nil, err
		}
		list = append(list, n)
	}
	return list, nil
}

// typ reads f32[t x:256|z:256] shard(1: x=split z=split), or int8/32[t 64].
func (s *scanner) typ() (Type, error) {
	var t Type
	w := s.word("/")
	d, ok := ParseDType(w)
	if !ok {
		return t, fmt.Errorf("unknown dtype %q", w)
	}
	t.DType = d
	if err := s.expect("["); err != nil {
		return t, err
	}
	for !s.eat("]") {
		w := s.word(":/|")
		d, err := parseDim(w)
		if err != nil {
			return t, err
		}
		if t.Dims = append(t.Dims, d); len(t.Dims) > MaxRank {
			return t, fmt.Errorf("more than %d axes", MaxRank)
		}
	}
	if s.eat("partial") {
		t.Layout.Kind = Partial
	} else if s.eat("shard(") {
		if err := s.shard(&t); err != nil {
			return t, err
		}
	}
	return t, t.Valid()
}

func parseDim(w string) (Dim, error) {
	if len(w) == 1 && Sym(w[0]).ofBatch() {
		return Symbol(Sym(w[0])), nil
	}
	var d Dim
	for part := range strings.SplitSeq(w, "|") {
		name, size, named := strings.Cut(part, ":")
		if !named {
			name, size = "", part
		}
		n, unit, cut := strings.Cut(size, "/")
		f := Field{Name: name}
		var err error
		if f.Size, err = strconv.Atoi(n); err == nil && cut {
			if f.Unit, err = strconv.Atoi(unit); f.Unit == 0 {
				named, name = true, "" // units of nothing
			}
		}
		if err != nil || named && name == "" {
			return d, fmt.Errorf("expected an axis such as t, 2560 or x:256/64|z:256, found %q", w)
		}
		d.Fields = append(d.Fields, f)
	}
	return d, nil
}

func (s *scanner) shard(t *Type) error {
	axis, err := s.int()
	if err != nil {
		return err
	}
	if err := s.expect(":"); err != nil {
		return err
	}
	if axis < 0 || axis >= len(t.Dims) {
		return fmt.Errorf("shard axis %d of a value with %d axes", axis, len(t.Dims))
	}
	t.Layout = Layout{Kind: Sharded, Axis: axis}
	if t.Dims[axis].Sym != 0 {
		place, ok := rowPlaces[s.word("")]
		if !ok {
			return fmt.Errorf("shard axis %d is the symbol %s, which lies even or by sequence", axis, t.Dims[axis])
		}
		t.Layout.Place = []Placement{{Kind: place}}
		return s.expect(")")
	}
	for _, f := range t.Dims[axis].Fields {
		if f.Name != "" {
			if err := s.expect(f.Name + "="); err != nil {
				return err
			}
		}
		p, err := s.placement()
		if err != nil {
			return err
		}
		t.Layout.Place = append(t.Layout.Place, p)
	}
	return s.expect(")")
}

// rowPlaces are the placements of the rows of a batch, by their names.
var rowPlaces = map[string]PlaceKind{"even": Even, "sequence": BySequence}

func (s *scanner) placement() (Placement, error) {
	switch w := s.word("/"); {
	case w == "whole":
		return Placement{}, nil
	case w == "split":
		return Placement{Kind: Split}, nil
	case strings.HasPrefix(w, "cover/"):
		n, err := strconv.Atoi(w[len("cover/"):])
		return Placement{Cover, n}, err
	default:
		return Placement{}, fmt.Errorf("expected whole, split or cover/N, found %q", w)
	}
}

// attrs reads {eps=1e-05 groups=2}; the row says which type a value has.
func (s *scanner) attrs(op *Op) (Attrs, error) {
	out := Attrs{}
	if !s.eat("{") {
		return out, nil
	}
	for !s.eat("}") {
		name := s.word("")
		if err := s.expect("="); err != nil {
			return nil, err
		}
		v, err := s.attr(op, name)
		if err != nil {
			return nil, fmt.Errorf("attribute %s: %w", name, err)
		}
		out[name] = v
	}
	return out, nil
}

func (s *scanner) attr(op *Op, name string) (any, error) {
	for _, spec := range op.Attrs {
		if spec.Name != name {
			continue
		}
		switch spec.Kind {
		case IntAttr:
			return s.int()
		case FloatAttr:
			v, err := strconv.ParseFloat(s.word("+-."), 64)
			if errors.Is(err, strconv.ErrRange) && !math.IsInf(v, 0) {
				err = nil // too small to hold: zero
			}
			return v, err
		}
		if s.blank(); strings.HasPrefix(s.rest, `"`) {
			return s.quoted()
		}
		return s.word("."), nil
	}
	return nil, fmt.Errorf("%s has no such attribute", op.Name)
}

// storage reads from "a"[0:2:128] "b" shape(256 1 4) perm(1 0), or nothing.
func (s *scanner) storage() (*Storage, error) {
	if !s.eat("from") {
		return nil, nil
	}
	st := &Storage{}
	for s.blank(); strings.HasPrefix(s.rest, `"`); s.blank() {
		p, err := s.piece()
		if err != nil {
			return nil, err
		}
		st.Pieces = append(st.Pieces, p)
	}
	var err error
	if s.eat("shape(") {
		st.Shape, err = s.ints(")")
	}
	if err == nil && s.eat("perm(") {
		st.Perm, err = s.ints(")")
	}
	if err == nil {
		err = st.valid()
	}
	return st, err
}

func (s *scanner) piece() (Piece, error) {
	var p Piece
	var err error
	if p.Tensor, err = s.quoted(); err != nil || !s.eat("[") {
		return p, err
	}
	for i, n := range []*int{&p.Start, &p.Step, &p.Count} {
		if *n, err = s.int(); err != nil {
			return p, err
		}
		if err := s.expect([]string{":", ":", "]"}[i]); err != nil {
			return p, err
		}
	}
	if p.Count < 1 {
		return p, fmt.Errorf("tensor %q: %d rows", p.Tensor, p.Count)
	}
	return p, nil
}

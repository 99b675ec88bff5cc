package graph

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/krait-ml/krait/internal/bail"
)

// scanner walks one line of graph text. Its methods skip blanks first, and panic with errors.
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

func (s *scanner) expect(token string) {
	if !s.eat(token) {
		panic(fmt.Errorf("expected %q at %q", token, s.rest))
	}
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

func (s *scanner) quoted() string {
	s.blank()
	q, err := strconv.QuotedPrefix(s.rest)
	if err != nil || q[0] != '"' {
		panic(fmt.Errorf("expected a quoted string at %q", s.rest))
	}
	s.rest = s.rest[len(q):]
	return bail.Of(strconv.Unquote(q))
}

func (s *scanner) int() int {
	w := s.word("-")
	n, err := strconv.Atoi(w)
	if err != nil {
		panic(fmt.Errorf("expected a number, found %q", w+s.rest))
	}
	return n
}

func (s *scanner) ints(closing string) []int {
	list := []int{}
	for !s.eat(closing) {
		list = append(list, s.int())
	}
	return list
}

// typ reads f32[t x:256|z:256] shard(1: x=split z=split), or int8/32[t 64].
func (s *scanner) typ() Type {
	var t Type
	w := s.word("/")
	d, ok := ParseDType(w)
	if !ok {
		panic(fmt.Errorf("unknown dtype %q", w))
	}
	t.DType = d
	s.expect("[")
	for !s.eat("]") {
		if t.Dims = append(t.Dims, parseDim(s.word(":/|*"))); len(t.Dims) > MaxRank {
			panic(fmt.Errorf("more than %d axes", MaxRank))
		}
	}
	s.layout(&t)
	if s.eat("cp ") {
		along := t
		s.layout(&along)
		t.Context = along.Layout
	}
	bail.If(t.Valid())
	return t
}

// layout reads partial, shard(1: x=split z=split), or nothing.
func (s *scanner) layout(t *Type) {
	if s.eat("partial") {
		t.Layout = Layout{Kind: Partial}
	} else if s.eat("shard(") {
		s.shard(t)
	}
}

func parseDim(w string) Dim {
	if len(w) == 1 && Sym(w[0]).ofBatch() {
		return Symbol(Sym(w[0]))
	}
	if times, ok := strings.CutPrefix(w, string(Seqs)+"*"); ok {
		return Dim{Sym: Seqs, Times: bail.Of(strconv.Atoi(times))}
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
			panic(fmt.Errorf("expected an axis such as t, 2560 or x:256/64|z:256, found %q", w))
		}
		d.Fields = append(d.Fields, f)
	}
	return d
}

func (s *scanner) shard(t *Type) {
	axis := s.int()
	s.expect(":")
	if axis < 0 || axis >= len(t.Dims) {
		panic(fmt.Errorf("shard axis %d of a value with %d axes", axis, len(t.Dims)))
	}
	t.Layout = Layout{Kind: Sharded, Axis: axis}
	if t.Dims[axis].Sym != 0 {
		place, ok := rowPlaces[s.word("")]
		if !ok {
			panic(fmt.Errorf("shard axis %d is the symbol %s, which lies even, by sequence or in parts", axis, t.Dims[axis]))
		}
		t.Layout.Place = []Placement{{Kind: place}}
		s.expect(")")
		return
	}
	for _, f := range t.Dims[axis].Fields {
		if f.Name != "" {
			s.expect(f.Name + "=")
		}
		t.Layout.Place = append(t.Layout.Place, s.placement())
	}
	s.expect(")")
}

// rowPlaces are the placements of the rows of a batch, by their names.
var rowPlaces = map[string]PlaceKind{"even": Even, "sequence": BySequence, "parts": InParts}

func (s *scanner) placement() Placement {
	switch w := s.word("/"); {
	case w == "whole":
		return Placement{}
	case w == "split":
		return Placement{Kind: Split}
	case strings.HasPrefix(w, "cover/"):
		return Placement{Cover, bail.Of(strconv.Atoi(w[len("cover/"):]))}
	default:
		panic(fmt.Errorf("expected whole, split or cover/N, found %q", w))
	}
}

// attrs reads {eps=1e-05 groups=2}; the row says which type a value has.
func (s *scanner) attrs(op *Op) Attrs {
	out := Attrs{}
	if !s.eat("{") {
		return out
	}
	for !s.eat("}") {
		name := s.word("")
		s.expect("=")
		out[name] = s.attr(op, name)
	}
	return out
}

func (s *scanner) attr(op *Op, name string) any {
	defer bail.In(func() string { return "attribute " + name })
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
			return bail.Of(v, err)
		}
		if s.blank(); strings.HasPrefix(s.rest, `"`) {
			return s.quoted()
		}
		return s.word(".")
	}
	panic(fmt.Errorf("%s has no such attribute", op.Name))
}

// storage reads from "a"[0:2:128] "b" shape(256 1 4) perm(1 0), or nothing.
func (s *scanner) storage() *Storage {
	if !s.eat("from") {
		return nil
	}
	st := &Storage{}
	for s.blank(); strings.HasPrefix(s.rest, `"`); s.blank() {
		st.Pieces = append(st.Pieces, s.piece())
	}
	if s.eat("shape(") {
		st.Shape = s.ints(")")
	}
	if s.eat("perm(") {
		st.Perm = s.ints(")")
	}
	bail.If(st.valid())
	return st
}

func (s *scanner) piece() Piece {
	p := Piece{Tensor: s.quoted()}
	if !s.eat("[") {
		return p
	}
	for i, n := range []*int{&p.Start, &p.Step, &p.Count} {
		*n = s.int()
		s.expect([]string{":", ":", "]"}[i])
	}
	if p.Count < 1 {
		panic(fmt.Errorf("tensor %q: %d rows", p.Tensor, p.Count))
	}
	return p
}

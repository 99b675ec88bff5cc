package graph

import (
	"fmt"
	"strconv"
	"strings"
)

// binding is what the letters of a rule mean for given operands.
type binding struct {
	rule    *Rule
	letters [32]letter // see at
	known   uint32     // a bit per letter whose size is fixed
	packs   []pack
	apart   bool // parts of sequences lie along another axis of the mesh
}

// letter is what one letter means.
type letter struct {
	size int
	dim  *Dim // nil: the letter is no axis by itself
}

// pack is the axis of a composite.
type pack struct {
	letters string
	dim     *Dim
}

// at is where the binding has the letter c.
func (b *binding) at(c byte) *letter { return &b.letters[c%32] }

// size is that of the letter c, 0 if it is not fixed.
func (b *binding) size(c byte) int { return b.at(c).size }

// fix sets the size of the letter c.
func (b *binding) fix(c byte, size int) { b.at(c).size, b.known = size, b.known|1<<(c%32) }

// fixed reports whether the size of the letter c is known, and no symbol.
func (b *binding) fixed(c byte) bool { return b.known>>(c%32)&1 != 0 }

// symbolic reports whether the letter c is an axis whose size only a batch gives.
func (b *binding) symbolic(c byte) bool { d := b.at(c).dim; return d != nil && d.Sym != 0 }

// packed is the axis of a composite, nil if no operand has it.
func (b *binding) packed(letters string) *Dim {
	for i := range b.packs {
		if b.packs[i].letters == letters {
			return b.packs[i].dim
		}
	}
	return nil
}

// bind finds the size of every letter of the rule, from the operands' shapes
// and from attributes that name a letter's size.
func (r *Rule) bind(in []Type, given map[byte]int) (*binding, error) {
	if len(in) != len(r.in) {
		return nil, fmt.Errorf("%d operands, the rule %q wants %d", len(in), r.text, len(r.in))
	}
	if r.any && len(in) > 0 {
		r = r.forRank(len(in[0].Dims))
	}
	b := &binding{rule: r}
	for c, n := range given {
		b.fix(c, n)
	}
	for i, t := range in {
		if len(t.Dims) != len(r.in[i]) {
			return nil, fmt.Errorf("operand %d has %d axes, the rule %q wants %d", i, len(t.Dims), r.text, len(r.in[i]))
		}
		for j, a := range r.in[i] {
			if err := b.axis(i, a, &t.Dims[j]); err != nil {
				return nil, err
			}
		}
	}
	return b, b.solve(in)
}

// axis binds one axis of operand i; composites are solved later.
func (b *binding) axis(i int, a axis, d *Dim) error {
	if len(a.letters) > 1 {
		if d.Sym != 0 {
			return fmt.Errorf("operand %d has the symbolic size %s, but %s needs a fixed size", i, d, a)
		}
		if old := b.packed(a.letters); old == nil {
			b.packs = append(b.packs, pack{a.letters, d})
		} else if !old.same(*d) {
			return fmt.Errorf("%s is %s in operand %d and %s before", a, d, i, old)
		}
		return nil
	}
	c := a.letters[0]
	l := b.at(c)
	if l.dim == nil {
		l.dim = d
	} else if !l.dim.same(*d) {
		return fmt.Errorf("%c is %s in operand %d and %s before", c, d, i, l.dim)
	}
	if d.Sym == 0 {
		if b.fixed(c) && l.size != d.Len() {
			return fmt.Errorf("%c is %d in operand %d and %d before", c, d.Len(), i, l.size)
		}
		b.fix(c, d.Len())
	}
	return nil
}

// solve works out the letters of composites: each whose other letters are known
// follows by division; where two are open, the fixed tail is the axis's unit.
func (b *binding) solve(in []Type) error {
	for {
		progress, open, err := b.divide(in)
		if err != nil || open == nil {
			return err
		}
		if !progress && !b.tailFromUnit(in) {
			return fmt.Errorf("cannot tell the sizes of %s from the operands", *open)
		}
	}
}

// divide makes one round over the composites and returns one that stays open.
func (b *binding) divide(in []Type) (progress bool, open *axis, err error) {
	for i := range in {
		for j, a := range b.rule.in[i] {
			if len(a.letters) < 2 {
				continue
			}
			product, unknown := b.product(a.letters)
			size := in[i].Dims[j].Len()
			switch {
			case len(unknown) == 0 && product != size:
				return false, nil, fmt.Errorf("%s is %d in operand %d, its letters give %d", a, size, i, product)
			case len(unknown) == 0:
			case product == 0 || size%product != 0:
				return false, nil, fmt.Errorf("%s is %d in operand %d, which %d does not divide", a, size, i, product)
			case len(unknown) == 1:
				b.fix(unknown[0], size/product)
				progress = true
			default:
				open = &b.rule.in[i][j]
			}
		}
	}
	return progress, open, nil
}

func (b *binding) tailFromUnit(in []Type) bool {
	for i := range in {
		for j, a := range b.rule.in[i] {
			if t := a.tail(); len(a.letters) > 1 && len(t) == 1 && !b.fixed(t[0]) {
				b.fix(t[0], in[i].Dims[j].Fields[0].Grain())
				return true
			}
		}
	}
	return false
}

// product multiplies the known letters and lists the others.
func (b *binding) product(letters string) (n int, unknown string) {
	n = 1
	for i := range len(letters) {
		if size := b.size(letters[i]); !b.fixed(letters[i]) {
			unknown += letters[i : i+1]
		} else if size > 0 && n > maxSize/size {
			n = maxSize + 1
		} else {
			n *= size
		}
	}
	return n, unknown
}

// resultType is the shape of a result.
func (b *binding) resultType(axes []axis) Type {
	var t Type
	if len(axes) > 0 {
		t.Dims = make([]Dim, len(axes))
	}
	for i, a := range axes {
		t.Dims[i] = b.result(a)
	}
	return t
}

// result is the axis of a result that the letters give.
func (b *binding) result(a axis) Dim {
	d := b.at(a.letters[0]).dim
	if len(a.letters) > 1 {
		d = b.packed(a.letters)
	}
	if d != nil {
		return *d
	}
	n, _ := b.product(a.letters)
	unit, _ := b.product(a.tail())
	return Units(n, unit)
}

// poly is the number of index points that the letters walk together.
func (b *binding) poly(letters string) Poly {
	p, fixed := Const(1), int64(1)
	for i := range len(letters) {
		if c := letters[i]; b.fixed(c) {
			fixed *= int64(b.size(c))
		} else {
			p = p.Times(b.at(c).dim.Poly())
		}
	}
	return p.Times(Const(fixed))
}

// cost reads a work term such as "2 t k n".
func (b *binding) cost(work string) Poly {
	f := strings.Fields(work)
	n, _ := strconv.ParseInt(f[0], 10, 64)
	return b.poly(strings.Join(f[1:], "")).Times(Const(n))
}

package graph

import (
	"fmt"
	"strings"
)

// binding is what the letters of a rule mean for given operands.
type binding struct {
	rule *Rule
	size map[byte]int // letters with a fixed size
	dim  map[byte]Dim // letters that are an axis by themselves
	pack map[string]Dim
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
	b := &binding{r, map[byte]int{}, map[byte]Dim{}, map[string]Dim{}}
	for c, n := range given {
		b.size[c] = n
	}
	for i, t := range in {
		if len(t.Dims) != len(r.in[i]) {
			return nil, fmt.Errorf("operand %d has %d axes, the rule %q wants %d", i, len(t.Dims), r.text, len(r.in[i]))
		}
		for j, a := range r.in[i] {
			if err := b.axis(i, a, t.Dims[j]); err != nil {
				return nil, err
			}
		}
	}
	return b, b.solve(in)
}

// axis binds one axis of operand i; composites are solved later.
func (b *binding) axis(i int, a axis, d Dim) error {
	if len(a.letters) > 1 {
		if d.Sym != 0 {
			return fmt.Errorf("operand %d has the symbolic size %s, but %s needs a fixed size", i, d, a)
		}
		if old, ok := b.pack[a.letters]; ok && !old.same(d) {
			return fmt.Errorf("%s is %s in operand %d and %s before", a, d, i, old)
		} else if !ok {
			b.pack[a.letters] = d
		}
		return nil
	}
	c := a.letters[0]
	if old, ok := b.dim[c]; ok && !old.same(d) {
		return fmt.Errorf("%c is %s in operand %d and %s before", c, d, i, old)
	} else if !ok {
		b.dim[c] = d
	}
	if d.Sym == 0 {
		if n, ok := b.size[c]; ok && n != d.Len() {
			return fmt.Errorf("%c is %d in operand %d and %d before", c, d.Len(), i, n)
		}
		b.size[c] = d.Len()
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
				b.size[unknown[0]] = size / product
				progress = true
			default:
				open = &a
			}
		}
	}
	return progress, open, nil
}

func (b *binding) tailFromUnit(in []Type) bool {
	for i := range in {
		for j, a := range b.rule.in[i] {
			if t := a.tail(); len(a.letters) > 1 && len(t) == 1 {
				if _, ok := b.size[t[0]]; !ok {
					b.size[t[0]] = in[i].Dims[j].Fields[0].Grain()
					return true
				}
			}
		}
	}
	return false
}

// product multiplies the known letters and lists the others.
func (b *binding) product(letters string) (n int, unknown string) {
	n = 1
	for i := range len(letters) {
		if v, ok := b.size[letters[i]]; !ok {
			unknown += letters[i : i+1]
		} else if v > 0 && n > maxSize/v {
			n = maxSize + 1
		} else {
			n *= v
		}
	}
	return n, unknown
}

// resultType is the shape of a result.
func (b *binding) resultType(axes []axis) Type {
	var t Type
	for _, a := range axes {
		t.Dims = append(t.Dims, b.result(a))
	}
	return t
}

// result is the axis of a result that the letters give.
func (b *binding) result(a axis) Dim {
	if len(a.letters) == 1 {
		if d, ok := b.dim[a.letters[0]]; ok {
			return d
		}
	} else if d, ok := b.pack[a.letters]; ok {
		return d
	}
	n, _ := b.product(a.letters)
	unit, _ := b.product(a.tail())
	return Units(n, unit)
}

// poly is the number of index points that the letters walk together.
func (b *binding) poly(letters string) Poly {
	p := Const(1)
	for i := range len(letters) {
		if n, ok := b.size[letters[i]]; ok {
			p = p.Times(Const(int64(n)))
		} else {
			p = p.Times(b.dim[letters[i]].Poly())
		}
	}
	return p
}

// cost reads a work term such as "2 t k n".
func (b *binding) cost(work string) Poly {
	var n int64
	var letters string
	fmt.Sscan(work, &n)
	for _, f := range strings.Fields(work)[1:] {
		letters += f
	}
	return Const(n).Times(b.poly(letters))
}

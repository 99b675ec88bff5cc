package graphgen

import (
	"strings"

	"github.com/krait-ml/krait/graph"
)

// shapes are sizes for the letters of a rule, and axes for the operands.
type shapes struct {
	size map[byte]int
	axes map[string]graph.Dim // by the letters that walk them
	dims [][]graph.Dim
}

// shapes draws sizes. Axes with the same letters are the same.
func (d *drawer) shapes(row *graph.Op) *shapes {
	s := &shapes{size: map[byte]int{}, axes: map[string]graph.Dim{"f": graph.Size(3)}}
	for c, sym := range map[string]graph.Sym{"t": graph.Tokens, "u": graph.Tokens, "s": graph.Seqs, "o": graph.Rows, "l": graph.Cached} {
		s.axes[c] = graph.Symbol(sym)
	}
	s.size['w'] = 1 + d.IntN(4)
	s.size['m'] = s.size['w'] - 1
	text := row.Rule.String()
	if strings.Contains(text, "*") {
		text = strings.ReplaceAll(text, "*", "t x")
		s.axes["x"] = d.pick().Type.Dims[1]
	}
	left, _, _ := strings.Cut(text, "->")
	heads := row.Name == "rotary" || row.Name == "attention" || row.Name == "head_l2norm"
	if heads {
		s.size['p'] = 2
	}
	for _, list := range strings.Split(left, ",") {
		var operand []graph.Dim
		for _, letters := range axesOf(list) {
			if _, ok := s.axes[letters]; !ok {
				s.axes[letters] = d.axis(s, letters, heads)
			}
			operand = append(operand, s.axes[letters])
		}
		s.dims = append(s.dims, operand)
	}
	return s
}

// axis draws the axis that letters walk. A unit may be any part of it, whatever
// the letters say: rules must refuse what they cannot cut.
func (d *drawer) axis(s *shapes, letters string, heads bool) graph.Dim {
	if n, ok := s.size[letters[0]]; len(letters) == 1 && !ok {
		dim := d.dim()
		if d.IntN(2) == 0 {
			dim = d.pick().Type.Dims[1]
		}
		if strings.Contains("eghpqn", letters) { // walked with others
			dim = d.units(1+d.IntN(6), 1)
		}
		s.size[letters[0]] = dim.Len()
		return dim
	} else if len(letters) == 1 {
		return d.units(n, 1)
	}
	size := 1
	for i := range len(letters) {
		if _, ok := s.size[letters[i]]; !ok {
			s.size[letters[i]] = 1 + d.IntN(4)
		}
		if letters[i] == 'r' && d.IntN(2) == 0 { // decays: one, or n
			s.size['r'] = 1
		} else if letters[i] == 'r' {
			s.size['r'] = s.size['n']
		}
		size *= s.size[letters[i]]
	}
	if heads {
		return graph.Units(size, s.size['p'])
	}
	return d.units(size, s.size[letters[len(letters)-1]])
}

// units is an axis of n elements whose unit is mostly likely, else any that divides n, or 0.
func (d *drawer) units(n, likely int) graph.Dim {
	switch d.IntN(4) {
	case 0:
		var divisors []int
		for u := range n + 1 {
			if u == 0 || n%u == 0 {
				divisors = append(divisors, u)
			}
		}
		return graph.Units(n, divisors[d.IntN(len(divisors))])
	case 1:
		return graph.Units(n, 1)
	}
	if n%max(likely, 1) != 0 {
		likely = 1
	}
	return graph.Units(n, likely)
}

// axesOf lists the axes of an operand as the letters that walk them.
func axesOf(list string) []string {
	list = strings.ReplaceAll(list, "!", "")
	var out []string
	for list = strings.TrimSpace(list); list != ""; list = strings.TrimSpace(list) {
		n := 1
		if list[0] == '(' {
			n = strings.IndexByte(list, ')') + 1
		}
		out = append(out, strings.Trim(strings.ReplaceAll(list[:n], " ", ""), "()"))
		list = list[n:]
	}
	return out
}

// attrs draws attributes that fit the shapes.
func (d *drawer) attrs(row *graph.Op, s *shapes) graph.Attrs {
	a := graph.Attrs{}
	for _, spec := range row.Attrs {
		switch spec.Name {
		default:
			a[spec.Name] = Attr(spec, func(letter byte) int { return s.size[letter] }, d.IntN)
		case "width":
			if a["width"] = s.size['e']; row.Name != "group_rms_scale" {
				a["width"] = s.axes["d"].Len()
			}
		case "groups":
			a["groups"] = s.size['g']
		case "min", "max":
			a["min"], a["max"] = -1.5, 1.5
		case "top":
			if n := s.size['e']; n > 0 {
				a["top"] = n
			} else {
				a["top"] = max(1, s.axes["e"].Len())
			}
		}
	}
	return a
}

package graph

import (
	"fmt"
	"slices"
	"strings"
)

// Rule is the einsum-like signature of an operation, the source of its arity,
// shapes, layouts and cost: "t k, n k -> t n" for a matmul.
//
// Operands and results are lists of axes. An axis is a letter, or a composite
// "(g q p!)": one axis that is walked by several letters, the last fastest.
//
//   - A letter that is split in the operands and present in a result is split
//     there. Split and absent, it is contracted by a sum: the result is partial.
//   - "!" forbids cutting a letter. In a composite only the tail may be fixed;
//     what is before it is the index of which a rank owns a range of units.
//   - An operand that carries only the beginning of that index, g, needs the
//     groups that the range touches: its cover is derived, never chosen.
//   - "*" as an axis list stands for any number of axes, the same everywhere.
type Rule struct {
	text    string
	in, out [][]axis
	any     bool    // the axis lists are "*"
	ranks   []*Rule // where they are: written out, by number of axes
}

// RowWise reports whether the operation computes each row of its results, an entry of their
// first axis, from the same row of all operands that have such an axis, so that rows may
// be computed some at a time. Where sequences are operands, a row must know which token it is.
func (op *Op) RowWise() bool {
	switch {
	case op.Class != Compute:
		return false
	case op.Rule == nil:
		return op.rows
	case op.Rule.any:
		return true
	}
	first := op.Rule.out[0][0]
	if len(first.letters) > 1 || first.fixed > 0 {
		return false
	}
	for _, list := range op.Rule.out {
		if list[0].letters != first.letters {
			return false
		}
	}
	for _, list := range op.Rule.in {
		if len(list) > 0 && list[0].letters == "s" {
			return false
		}
		for i, a := range list {
			if strings.Contains(a.letters, first.letters) && (i > 0 || a.letters != first.letters) {
				return false
			}
		}
	}
	return true
}

// axis is one axis of an operand: letters, of which the last fixed ones may not be cut.
type axis struct {
	letters string
	fixed   int
}

// lead is the part of the axis that a rank may own a range of.
func (a axis) lead() string { return a.letters[:len(a.letters)-a.fixed] }

// tail is the part that stays together.
func (a axis) tail() string { return a.letters[len(a.letters)-a.fixed:] }

func (a axis) String() string {
	var b strings.Builder
	for i := range len(a.letters) {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteByte(a.letters[i])
		if i >= len(a.letters)-a.fixed {
			b.WriteByte('!')
		}
	}
	if len(a.letters) > 1 {
		return "(" + b.String() + ")"
	}
	return b.String()
}

// String gives the rule as it was written.
func (r *Rule) String() string { return r.text }

// ParseRule reads a rule and checks that it means something.
func ParseRule(text string) (*Rule, error) {
	left, right, ok := strings.Cut(text, "->")
	if !ok {
		return nil, fmt.Errorf("rule %q: no ->", text)
	}
	r := &Rule{text: text}
	if strings.Contains(text, "*") {
		return r, r.parseAny(left, right)
	}
	fixed := ""
	for i := 1; i < len(text); i++ {
		if text[i] == '!' {
			fixed += string(text[i-1])
		}
	}
	var err error
	if r.in, err = parseSide(left, fixed); err == nil {
		r.out, err = parseSide(right, fixed)
	}
	if err == nil {
		err = r.valid()
	}
	if err != nil {
		return nil, fmt.Errorf("rule %q: %w", text, err)
	}
	return r, nil
}

// parseAny reads a rule all of whose axis lists are "*".
func (r *Rule) parseAny(left, right string) error {
	r.any = true
	count := func(side string) ([][]axis, bool) {
		parts := strings.Split(side, ",")
		bad := slices.ContainsFunc(parts, func(s string) bool { return strings.TrimSpace(s) != "*" })
		return make([][]axis, len(parts)), !bad
	}
	var ok1, ok2 bool
	r.in, ok1 = count(left)
	r.out, ok2 = count(right)
	if !ok1 || !ok2 {
		return fmt.Errorf("rule %q: * stands alone or not at all", r.text)
	}
	for n := range MaxRank + 1 {
		r.ranks = append(r.ranks, r.written(n))
	}
	return nil
}

// parseSide reads the comma-separated axis lists of one side of a rule.
func parseSide(side, fixed string) ([][]axis, error) {
	var out [][]axis
	for list := range strings.SplitSeq(side, ",") {
		axes, err := parseAxes(list, fixed)
		if err != nil {
			return nil, err
		}
		out = append(out, axes)
	}
	return out, nil
}

func parseAxes(list, fixed string) ([]axis, error) {
	var axes []axis
	open := false
	for i := range len(list) {
		switch c := list[i]; {
		case c == ' ' || c == '!':
		case c == '(' && !open:
			open = true
			axes = append(axes, axis{})
		case c == ')' && open && axes[len(axes)-1].letters != "":
			open = false
		case 'a' <= c && c <= 'z':
			if !open {
				axes = append(axes, axis{})
			}
			a := &axes[len(axes)-1]
			a.letters += string(c)
			if strings.IndexByte(fixed, c) >= 0 {
				a.fixed++
			} else if a.fixed > 0 {
				return nil, fmt.Errorf("%c follows a fixed letter in a composite", c)
			}
		default:
			return nil, fmt.Errorf("unexpected %q in %q", c, list)
		}
	}
	if open {
		return nil, fmt.Errorf("( without ) in %q", list)
	}
	return axes, nil
}

// valid checks that the letters of results come from operands and that the
// indices which begin with one letter extend each other.
func (r *Rule) valid() error {
	known := ""
	for _, a := range slices.Concat(r.in...) {
		known += a.letters
	}
	for _, a := range slices.Concat(r.out...) {
		if i := strings.IndexFunc(a.letters, func(c rune) bool { return !strings.ContainsRune(known, c) }); i >= 0 {
			return fmt.Errorf("result letter %c is in no operand", a.letters[i])
		}
	}
	for _, a := range slices.Concat(slices.Concat(r.in, r.out)...) {
		if lead := a.lead(); lead != "" && !strings.HasPrefix(r.index(lead[0]), lead) {
			return fmt.Errorf("(%s) and (%s) begin alike and do not extend each other", lead, r.index(lead[0]))
		}
	}
	return nil
}

// index is the longest lead that begins with letter c: the index of which ranks own ranges.
func (r *Rule) index(c byte) string {
	longest := ""
	for _, side := range [][][]axis{r.in, r.out} {
		for _, axes := range side {
			for _, a := range axes {
				if l := a.lead(); l != "" && l[0] == c && len(l) > len(longest) {
					longest = l
				}
			}
		}
	}
	return longest
}

// forRank is a rule of "*" written out for operands with n axes; any other rule is itself.
func (r *Rule) forRank(n int) *Rule {
	switch {
	case !r.any:
		return r
	case n < len(r.ranks):
		return r.ranks[n]
	}
	return r.written(n)
}

// written writes out a rule of "*" for operands with n axes.
func (r *Rule) written(n int) *Rule {
	var axes []axis
	for i := range n {
		axes = append(axes, axis{letters: string(rune('a' + i))})
	}
	return &Rule{text: r.text, any: true, in: slices.Repeat([][]axis{axes}, len(r.in)), out: slices.Repeat([][]axis{axes}, len(r.out))}
}

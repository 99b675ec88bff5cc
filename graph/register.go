package graph

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// RegisterOp adds an operation to the table, for all graphs of the process. Types, layouts, costs,
// proofs, drawings and text follow from the row, as they do of Krait's own; what computes it is
// registered with kernels/reference (float64, for validation), kernels/cpu and, if it is to run
// there, kernels/cuda. Package optest holds the row against the kernels.
//
//	graph.RegisterOp(graph.Op{
//		Name: "acme_softsign", Doc: "x / (1 + |x|)",
//		Rule: graph.MustParseRule("* -> *"), Operands: "a", InPlace: []int{0}, Work: []string{"3"},
//	})
//
// It is called from an init function, or where package variables get their values, before any graph
// is made: it does not wait for others that read the table. A row that is wrong panics and says
// what is wrong with it, and so does a name that is taken; begin names with something of your own.
//
// The row needs a name (a to z, digits and _), a Doc, a Rule and Operands; its class is [Compute]
// whether it says so or not.
func RegisterOp(row Op) *Op {
	op := &row
	if op.Class == Leaf {
		op.Class = Compute
	}
	if err := op.register(); err != nil {
		panic(fmt.Sprintf("graph.RegisterOp: operation %q: %v", op.Name, err))
	}
	return op
}

func (op *Op) register() error {
	if old := byName[op.Name]; old != nil {
		return fmt.Errorf("the name is taken, by %q", old.Doc)
	}
	switch {
	case op.Class != Compute:
		return errors.New("only operations of class Compute can be registered")
	case op.Rule == nil:
		return errors.New("there is no Rule")
	case op.Stands != "" || op.Launches:
		return errors.New("the fields Stands and Launches are for the table's own rows; what is registered is not fused of others")
	case op.Variadic || op.From != 0 || op.To != 0:
		return errors.New("the fields From, To and Variadic are for collectives and relayouts, which cannot be registered")
	}
	if op.Refuse != nil {
		op.check = func(n *Node, _ *binding) error { return op.Refuse(n) }
	}
	if op.Count != nil {
		op.cost = func(n *Node, _ *binding) Cost { return op.Count(n) }
	}
	for i := range op.Attrs {
		op.Attrs[i].Legal.describe()
	}
	if err := op.verify(); err != nil {
		return err
	}
	table, byName[op.Name] = append(table, op), op
	return nil
}

// MustParseRule is [ParseRule] for rules in a program's text: one that is wrong panics.
func MustParseRule(text string) *Rule {
	r, err := ParseRule(text)
	if err != nil {
		panic(err.Error())
	}
	return r
}

// verify holds a row against itself.
func (op *Op) verify() error {
	if op.Name == "" || strings.Trim(op.Name, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" || op.Name[0] < 'a' {
		return errors.New("a name has letters a to z, digits and _, and begins with a letter")
	}
	if op.Doc == "" || strings.Contains(op.Doc, "\n") {
		return errors.New("the row's Doc is to say in one line what is computed")
	}
	if err := op.verifyAttrs(); err != nil || op.Rule == nil {
		return err
	}
	if err := op.verifyOperands(); err != nil {
		return err
	}
	for _, w := range op.Work {
		f := strings.Fields(w)
		if len(f) == 0 {
			return errors.New("a term of Work is empty; one is a number and letters of the rule: 2 t k n")
		}
		if n, err := strconv.Atoi(f[0]); err != nil || n < 1 {
			return fmt.Errorf("the term %q of Work begins with no number above 0", w)
		}
		for _, l := range f[1:] {
			if len(l) != 1 || !op.Rule.has(l[0]) {
				return fmt.Errorf("the term %q of Work has %s, which is not a letter of the rule", w, l)
			}
		}
	}
	return nil
}

// verifyAttrs checks what attributes may be, and the letters that they name.
func (op *Op) verifyAttrs() error {
	known := map[string]AttrKind{}
	for _, a := range op.Attrs {
		if _, twice := known[a.Name]; twice || !validName(a.Name) {
			return fmt.Errorf("attribute %q is there twice, or its name is none", a.Name)
		}
		known[a.Name] = a.Kind
		if a.Default != nil && !a.Kind.holds(a.Default) {
			return fmt.Errorf("attribute %s: the default %v is of another type", a.Name, a.Default)
		}
		if l := a.Legal.MaxOf; l != 0 && (op.Rule == nil || !op.Rule.has(l)) {
			return fmt.Errorf("attribute %s is bounded by %c, which is not a letter of the rule", a.Name, l)
		}
	}
	for l, name := range op.Sizes {
		if k, ok := known[name]; !ok || k != IntAttr || op.Rule == nil || !op.Rule.has(l) {
			return fmt.Errorf("the row's Sizes binds %c to %s: that is to be a letter of the rule and an attribute that is an integer", l, name)
		}
	}
	return nil
}

// verifyOperands checks what the row says of operands and results by their numbers.
func (op *Op) verifyOperands() error {
	in, out := len(op.Rule.in), len(op.Rule.out)
	if op.Operands == "" && op.infer != nil {
		return nil
	}
	if len(op.Operands) != in || strings.Trim(op.Operands, "awfis") != "" {
		return fmt.Errorf("the row's Operands is %q; it has one of a, w, f, i and s for each of the rule's %d operands", op.Operands, in)
	}
	for _, group := range op.Linear {
		for _, i := range group {
			if i < 0 || i >= in || op.Operands[i] == 'i' || op.Operands[i] == 's' {
				return fmt.Errorf("the row's Linear names operand %d, which is none that could be a sum", i)
			}
		}
	}
	for _, i := range op.InPlace {
		if i < 0 || i >= in || op.Operands[i] != 'a' {
			return fmt.Errorf("the row's InPlace names operand %d, which is not an activation", i)
		}
	}
	return op.verifyStates(out)
}

func (op *Op) verifyStates(out int) error {
	paired := map[int]bool{}
	for _, p := range op.States {
		switch {
		case p.Operand < 0 || p.Operand >= len(op.Operands) || op.Operands[p.Operand] != 's' || paired[p.Operand]:
			return fmt.Errorf("the row's States names operand %d, which is to be an s, and there once", p.Operand)
		case p.Result < 0 || p.Result >= out:
			return fmt.Errorf("the row's States names result %d of %d", p.Result, out)
		case !slices.Contains(StateKinds, p.Kind):
			return fmt.Errorf("the row's States has the kind %q; it must be one of %v", p.Kind, StateKinds)
		case op.Rule.any || fmt.Sprint(op.Rule.in[p.Operand]) != fmt.Sprint(op.Rule.out[p.Result]):
			return fmt.Errorf("the row's States: operand %d and result %d have other axes in the rule", p.Operand, p.Result)
		}
		paired[p.Operand] = true
	}
	if n := strings.Count(op.Operands, "s"); n != len(paired) {
		return fmt.Errorf("%d operands are states, and States pairs %d with results", n, len(paired))
	}
	return nil
}

// has reports whether a letter is in the rule.
func (r *Rule) has(l byte) bool {
	for _, a := range slices.Concat(r.in...) {
		if strings.IndexByte(a.letters, l) >= 0 {
			return true
		}
	}
	return false
}

// describe says what is legal, for errors, unless the row says so.
func (l *Legal) describe() {
	if l.Any() || l.want != "" {
		return
	}
	if l.OneOf != nil {
		l.want = fmt.Sprint("one of ", l.OneOf)
		return
	}
	l.want = fmt.Sprintf("from %v to %v", l.Min, l.Max)
	if l.Above {
		l.want = fmt.Sprintf("above %v and at most %v", l.Min, l.Max)
	}
	if l.MaxOf != 0 {
		l.want = fmt.Sprintf("from %v to %%d, the size of %c", l.Min, l.MaxOf)
	}
	if l.Step > 1 {
		l.want += fmt.Sprintf(", a multiple of %d", l.Step)
	}
}

// inner are operations that only passes put into graphs, beside fused ones: parts of norms and
// scans.
var inner = []string{"sumsq", "rms_scale", "rms_rows", "group_sumsq", "group_rms_scale", "scan_terms", "scan_prefix", "scan_output"}

// Unknown is the error of an operation that is not in the table. It names the five nearest of those
// that models are built from.
func Unknown(name string) error {
	const most, names = 40, 5 // bytes of the name, and operations
	if len(name) > most {
		name = strings.ToValidUTF8(name[:most], "") + "…"
	}
	var list []string
	for _, op := range table {
		if (op.Class == Compute || op.Class == View) && op.Stands == "" && !slices.Contains(inner, op.Name) {
			list = append(list, op.Name)
		}
	}
	slices.SortStableFunc(list, func(a, b string) int { return cmp.Compare(unlike(name, a), unlike(name, b)) })
	return fmt.Errorf("no operation is called %q; the nearest are %s", name, strings.Join(list[:min(names, len(list))], ", "))
}

// unlike is small for an operation that a name may stand for: a typo in it, a part of it or its
// letters in their order, as scan and attn are.
func unlike(name, op string) int {
	const typo, far = 2, 100
	d := distance(name, op)
	switch {
	case d <= typo:
		return d
	case len(name) > typo && strings.Contains(op, name):
		return typo + 1
	case len(name) > typo && within(name, op):
		return typo + 2
	}
	return d + far
}

// within reports whether all letters of a are in b, in their order.
func within(a, b string) bool {
	for i := range len(a) {
		at := strings.IndexByte(b, a[i])
		if at < 0 {
			return false
		}
		b = b[at+1:]
	}
	return true
}

// distance is how many letters have to be put in, left out or changed (Levenshtein 1966).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

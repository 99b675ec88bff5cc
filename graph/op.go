package graph

import (
	"errors"
	"fmt"
	"slices"
)

// Op is one row of the operation table: [RegisterOp] adds others.
type Op struct {
	Name  string
	Doc   string // one line: what it computes
	Class Class
	Rule  *Rule // nil where Infer says it all

	// Operands has a letter per operand: a activation, w weight in any float format, f f32, i i32,
	// s state in a format of its kind. Activations share one format, which the results have.
	Operands string
	// Linear lists the groups of operands in which the operation is linear:
	// those of one group may be partial sums together.
	Linear [][]int
	// States pairs operands that are state with the results that replace them.
	States []StatePair
	// Gives is the format of the results where it is not that of the activations; NoDType: it is.
	Gives DType
	// Statistic says that results are numbers about rows, such as sums of squares:
	// small, of any magnitude, and travelling between ranks in f32 always.
	Statistic bool
	// InPlace lists operands whose memory a result of the same size may take: all kernels are done
	// with an element of them before they write the same element of a result.
	InPlace []int
	Attrs   []Attr
	// Sizes binds letters of the rule to integer attributes.
	Sizes map[byte]string
	// Work lists floating-point operations as terms such as "2 t k n".
	Work []string
	// From and To are the kinds of layout that a Collective or a Relayout takes and
	// gives. Types, bytes sent, and where passes may put it in follow from them.
	From, To LayoutKind
	// Variadic lets one launch of a Collective take several operands, and give as many
	// results: any, or where it splits or gathers, those of one [Joint].
	Variadic bool

	// Parts says that the operation is of recurrences over parts of sequences (parts.go).
	Parts bool

	// Stands says which operations a fused one stands for; see [Op.Apart]. Commutes says
	// that the two operands may change places to the last bit.
	Stands   string
	Commutes bool
	// Launches says that the fused operation is for devices where launches cost: some of
	// its kernels sum in another order than those of the operations apart.
	Launches bool

	apart *Apart
	// Refuse, of a row that was registered, is an error for operands that the rule lets pass
	// and the kernels cannot have. The node has its operands and attributes, and no results.
	Refuse func(n *Node) error
	// Count, of a row that was registered, is the cost where Work and the bytes of the operands
	// and results do not say it.
	Count func(n *Node) Cost

	rows  bool                               // without a rule: see RowWise
	infer func(*Node) ([]Type, error)        // instead of the rule
	check func(n *Node, b *binding) error    // beyond the rule
	cost  func(n *Node, b *binding) (c Cost) // instead of Work and operand bytes
}

// Class says what kind of operation a row is, and so at which stage it is legal.
type Class uint8

// The classes of operations.
const (
	Leaf       Class = iota // input, param, state
	View                    // another look at the same bytes
	Compute                 // a kernel
	Collective              // ranks exchange data
	Relayout                // a change of layout without any exchange
)

// Attr is an attribute that a row takes. Default is its value where it may be left out, nil where
// it must be given, and decides its type: int, float64 or string. Tests draw what is Legal.
type Attr struct {
	Name    string
	Kind    AttrKind
	Default any
	Legal   Legal
}

// AttrKind is the type of an attribute's value.
type AttrKind uint8

// The types of attribute values: int, float64 and string.
const (
	IntAttr AttrKind = iota
	FloatAttr
	StringAttr
)

// Attrs are a node's attributes by name.
type Attrs map[string]any

// Int returns an integer attribute, 0 when it is absent.
func (a Attrs) Int(name string) int { v, _ := a[name].(int); return v }

// Float returns a float attribute, 0 when it is absent.
func (a Attrs) Float(name string) float64 { v, _ := a[name].(float64); return v }

// Text returns a string attribute, "" when it is absent.
func (a Attrs) Text(name string) string { v, _ := a[name].(string); return v }

// Lookup finds a row by name.
func Lookup(name string) (*Op, bool) {
	op, ok := byName[name]
	return op, ok
}

// Ops lists the rows of the table in its order.
func Ops() []*Op { return slices.Clone(table) }

var byName = map[string]*Op{}

func init() {
	for _, op := range table {
		err := op.verify()
		if byName[op.Name] != nil {
			err = errors.New("it is listed twice")
		}
		if err != nil {
			panic("BUG: operation " + op.Name + ": " + err.Error())
		}
		byName[op.Name] = op
		if op.Class == Collective || op.Class == Relayout {
			addExchange(op)
		}
	}
	for _, op := range table {
		if op.Stands != "" {
			op.apart = readApart(op)
		}
	}
}

// rule reads a rule of the table.
func rule(text string) *Rule {
	r, err := ParseRule(text)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return r
}

// complete checks attributes against the row and fills in defaults.
func (op *Op) complete(a Attrs) (Attrs, error) {
	out := Attrs{}
	for _, spec := range op.Attrs {
		v, ok := a[spec.Name]
		if !ok {
			if v = spec.Default; v == nil {
				return nil, fmt.Errorf("attribute %s is missing", spec.Name)
			}
		}
		if !spec.Kind.holds(v) {
			return nil, fmt.Errorf("attribute %s = %v has the wrong type", spec.Name, v)
		}
		out[spec.Name] = v
	}
	for name := range a {
		if !slices.ContainsFunc(op.Attrs, func(s Attr) bool { return s.Name == name }) {
			return nil, fmt.Errorf("unknown attribute %s", name)
		}
	}
	return out, nil
}

func (k AttrKind) holds(v any) bool {
	switch v.(type) {
	case int:
		return k == IntAttr
	case float64:
		return k == FloatAttr
	case string:
		return k == StringAttr
	}
	return false
}

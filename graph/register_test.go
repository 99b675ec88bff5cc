package graph

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// row is an operation that is as it should be.
func row() Op {
	return Op{
		Name: "test_mix", Doc: "of a test", Rule: MustParseRule("t! c, c, s! c n!, s! f! -> t! c, s! c n!"), Operands: "afsi",
		States: []StatePair{{2, 1, SSMState}}, InPlace: []int{0}, Linear: [][]int{{0}},
		Attrs: []Attr{{"top", IntAttr, 1, Legal{Min: 1, MaxOf: 'n'}}, {"by", FloatAttr, nil, Legal{Above: true, Max: 2}}, {"how", StringAttr, "a", Legal{OneOf: []string{"a", "b"}}}},
		Work:  []string{"2 t c n", "1 t c"},
	}
}

// mixed is a graph of that operation.
func mixed(a Attrs) (*Graph, error) {
	b := New("own")
	x := b.Input("x", TypeOf(F32, Symbol(Tokens), Units(6, 2)))
	seg := b.Input("seg", TypeOf(I32, Symbol(Seqs), Size(3)))
	rate := b.Param("rate", TypeOf(F32, Units(6, 2)), nil)
	state := b.State("state", TypeOf(F32, Symbol(Seqs), Units(6, 2), Size(4)))
	b.Output("y", b.Apply("y", "test_mix", a, x, rate, state, seg)[0])
	return b.Graph()
}

// TestRegisterOp: a graph with a registered operation has types, a cost and a text,
// and what the row refuses is refused.
func TestRegisterOp(t *testing.T) {
	r := row()
	r.Refuse = func(n *Node) error {
		if n.Attrs.Float("by") == 1.5 {
			return errors.New("1.5 is refused")
		}
		return nil
	}
	op := RegisterOp(r)
	defer Unregister(op)
	g, err := mixed(Attrs{"by": 1.0})
	if err != nil {
		t.Fatal(err)
	}
	back, err := Parse(Print(g))
	if err != nil || !Equal(g, back) {
		t.Errorf("%v from\n%s", err, Print(g))
	}
	if got := g.Cost().FLOPs.At(Sizes{Tokens: 3}); got != 2*3*6*4+3*6 {
		t.Errorf("%d operations", got)
	}
	if v, _ := g.Value("y_state"); v == nil || v.Type.String() != "f32[s 6/2 4]" {
		t.Errorf("the new state: %v", v)
	}
	for want, a := range map[string]Attrs{
		"by is missing":  {},
		"1.5 is refused": {"by": 1.5},
		"by is 3; it must be above 0 and at most 2":       {"by": 3.0},
		"top is 5; it must be from 1 to 4, the size of n": {"by": 1.0, "top": 5},
		`how is "c"; it must be one of [a b]`:             {"by": 1.0, "how": "c"},
	} {
		if _, err := mixed(a); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestRegisterOpCount: a registered cost counts.
func TestRegisterOpCount(t *testing.T) {
	r := row()
	r.Count = func(n *Node) Cost { return Cost{FLOPs: Const(7)} }
	defer Unregister(RegisterOp(r))
	g, err := mixed(Attrs{"by": 1.0})
	if err != nil {
		t.Fatal(err)
	}
	if got := g.Cost().FLOPs.At(Sizes{}); got != 7 {
		t.Errorf("%d operations", got)
	}
}

// TestRegisterOpWrong: each thing that a row can have wrong panics, and says what.
func TestRegisterOpWrong(t *testing.T) {
	for want, change := range map[string]func(*Op){
		`the name is taken, by "x / (1 + exp(-x))"`: func(op *Op) { op.Name = "silu" },
		"a name has letters":                        func(op *Op) { op.Name = "Mix" },
		"and begins with a letter":                  func(op *Op) { op.Name = "3mix" },
		"Doc is to say":                             func(op *Op) { op.Doc = "" },
		"only operations of class Compute":          func(op *Op) { op.Class = Collective },
		"there is no Rule":                          func(op *Op) { op.Rule = nil },
		"Stands and Launches are for":               func(op *Op) { op.Stands = "x b h seg -> y new: y = silu x" },
		"is not fused of others":                    func(op *Op) { op.Launches = true },
		"From, To and Variadic are for":             func(op *Op) { op.To = Partial },
		"which cannot be registered":                func(op *Op) { op.Variadic = true },
		`Operands is "afs"`:                         func(op *Op) { op.Operands = "afs" },
		`Operands is "afsx"`:                        func(op *Op) { op.Operands = "afsx" },
		"Linear names operand 4":                    func(op *Op) { op.Linear = [][]int{{0, 4}} },
		"Linear names operand 3":                    func(op *Op) { op.Linear = [][]int{{3}} },
		"InPlace names operand 1":                   func(op *Op) { op.InPlace = []int{1} },
		"States names operand 0":                    func(op *Op) { op.States[0].Operand = 0 },
		"States names result 2 of 2":                func(op *Op) { op.States[0].Result = 2 },
		"have other axes":                           func(op *Op) { op.States[0].Result = 0 },
		`States has the kind "mine"`:                func(op *Op) { op.States[0].Kind = "mine" },
		"1 operands are states, and States pairs 0": func(op *Op) { op.States = nil },
		"begins with no number":                     func(op *Op) { op.Work = []string{"t c"} },
		"has z, which is not a letter":              func(op *Op) { op.Work = []string{"1 t z"} },
		"a term of Work is empty":                   func(op *Op) { op.Work = []string{""} },
		`attribute "by" is there twice`:             func(op *Op) { op.Attrs[0].Name = "by" },
		"the default 1.5 is of another type":        func(op *Op) { op.Attrs[0].Default = 1.5 },
		"bounded by z, which is not a letter":       func(op *Op) { op.Attrs[0].Legal.MaxOf = 'z' },
		"Sizes binds n to by":                       func(op *Op) { op.Sizes = map[byte]string{'n': "by"} },
		"Sizes binds z to top":                      func(op *Op) { op.Sizes = map[byte]string{'z': "top"} },
	} {
		op := row()
		change(&op)
		if said := said(func() { Unregister(RegisterOp(op)) }); !strings.Contains(said, want) {
			t.Errorf("%q, want %s", said, want)
		}
	}
	op := RegisterOp(row())
	defer Unregister(op)
	if said := said(func() { RegisterOp(row()) }); !strings.Contains(said, "the name is taken") {
		t.Errorf("the same twice: %q", said)
	}
}

// said is what a function panics with.
func said(f func()) (text string) {
	defer func() {
		if p := recover(); p != nil {
			text = fmt.Sprint(p)
		}
	}()
	f()
	return ""
}

// TestUnknown: the error names the five nearest operations that a model can be built from.
func TestUnknown(t *testing.T) {
	for name, want := range map[string]string{
		"sillu": "silu, ", "attn": "attention, ", "rms_norm": "rmsnorm, unit_rmsnorm, ", "mat_mul": "matmul, ", "scan": "scale, selective_scan, ssd_scan, ", "fields": "field, ", "": "add, mul, ",
	} {
		_, list, _ := strings.Cut(Unknown(name).Error(), "; the nearest are ")
		if !strings.HasPrefix(list, want) || strings.Count(list, ", ") != 4 {
			t.Errorf("%s: %s, want %s…", name, list, want)
		}
	}
	for _, op := range table {
		public := (op.Class == Compute || op.Class == View) && op.Stands == "" && !slices.Contains(inner, op.Name)
		if _, list, _ := strings.Cut(Unknown(op.Name).Error(), "are "); strings.HasPrefix(list, op.Name+",") != public {
			t.Errorf("%s: %s", op.Name, list)
		}
	}
	if text := Unknown(strings.Repeat("é", 1e6)).Error(); len(text) > 300 {
		t.Errorf("a long name makes an error of %d bytes", len(text))
	}
	b := New("g")
	x := b.Input("x", TypeOf(F32, Symbol(Tokens), Size(2)))
	b.Map("y", "sillu", x)
	if err := b.Err(); err == nil || !strings.Contains(err.Error(), `y: sillu: no operation is called "sillu"; the nearest are silu,`) {
		t.Error(err)
	}
}

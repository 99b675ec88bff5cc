package passes

import (
	"fmt"
	"slices"

	"github.com/krait-ml/krait/graph"
)

// unpack makes a tensor per field of every packed tensor with units (in_proj's x|z) that is used
// only field by field: a shard then never cuts across fields, and work on one field need not wait
// for another. It takes parameters apart in their storage map and repeats the operation per field.
// A packed value without units stays packed: x_proj's dt|B|C is one matmul, and one sum over ranks.
func unpack(g *graph.Graph, _ *Options) (*graph.Graph, error) {
	u := &unpacker{
		rewriter: rewrite(g, graph.UnpackedStage, g.Ranks),
		uses:     usesOf(g),
		apart:    map[*graph.Value]int{},
		fields:   map[fieldOf]*graph.Value{},
	}
	// A tensor can be taken apart once the runs of its fields are, so go backwards.
	for _, n := range slices.Backward(g.Nodes) {
		if n.Op.Name == "field" {
			u.consider(n.Args[0], n.Attrs.Int("axis"))
		}
	}
	for _, n := range g.Nodes {
		if err := u.node(n); err != nil {
			return nil, err
		}
	}
	if err := u.states(); err != nil {
		return nil, err
	}
	out, err := u.finish()
	if err != nil || len(out.Outputs) == 0 {
		return out, err
	}
	return withoutDead(out) // of values side by side only some fields may be used
}

type unpacker struct {
	*rewriter
	uses   map[*graph.Value][]*graph.Node
	apart  map[*graph.Value]int // values to take apart, and the axis
	fields map[fieldOf]*graph.Value
}

type fieldOf struct {
	v    *graph.Value
	name string
}

// consider marks v, and what it is made of, if it can be taken apart.
func (u *unpacker) consider(v *graph.Value, axis int) {
	if _, done := u.apart[v]; done || !hasUnits(v.Type.Dims[axis]) {
		return
	}
	for _, n := range u.uses[v] {
		_, apart := u.apart[n.Results[0]]
		if n.Op.Name != "field" || n.Attrs.Int("axis") != axis || len(n.Results[0].Type.Dims[axis].Fields) > 1 && !apart {
			return
		}
	}
	for _, o := range u.from.Outputs {
		if o.Value == v {
			return
		}
	}
	if made := u.madeOf(v, axis, map[*graph.Value]int{}); made != nil {
		for x, a := range made {
			u.apart[x] = a
		}
	}
}

func hasUnits(d graph.Dim) bool {
	for _, f := range d.Fields {
		if f.Unit > 0 {
			return true
		}
	}
	return false
}

// madeOf collects the values that carry the packed axis up to parameters and
// states, or nil where something else is on the way.
func (u *unpacker) madeOf(v *graph.Value, axis int, made map[*graph.Value]int) map[*graph.Value]int {
	n := v.Def
	made[v] = axis
	if n.Op.Name == "param" || n.Op.Name == "state" || n.Op.Name == "concat" || n.Op.Name == "field" && n.Attrs.Int("axis") == axis {
		return made
	}
	if v != n.Results[0] {
		return nil
	}
	operands, results, ok := graph.Follow(n, axis)
	if !ok {
		return nil
	}
	for i, a := range results {
		if a < 0 || i > 0 && len(u.uses[n.Results[i]]) > 0 {
			return nil
		}
	}
	for i, a := range operands {
		if a >= 0 && (len(u.uses[n.Args[i]]) != 1 || u.madeOf(n.Args[i], a, made) == nil) {
			return nil
		}
	}
	return made
}

func (u *unpacker) node(n *graph.Node) error {
	if _, ok := u.apart[n.Results[0]]; ok {
		return nil // made again, field by field, where fields are used
	}
	if n.Op.Name == "field" {
		if _, ok := u.apart[n.Args[0]]; ok { // of one field: runs are apart themselves
			v, err := u.field(n.Args[0], n.Attrs.Text("name"), n.Name())
			u.to[n.Results[0]] = v
			return err
		}
	}
	return u.copy(n)
}

// states makes the fields of what replaces a state that nothing reads: a state is kept whole.
func (u *unpacker) states() error {
	for _, n := range u.from.Nodes {
		axis, ok := u.apart[n.Results[0]]
		if !ok || len(n.Op.States) == 0 {
			continue
		}
		for _, f := range n.Results[0].Type.Dims[axis].Fields {
			if _, err := u.field(n.Results[0], f.Name, n.Name()+"."+f.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// field makes one field of v, called name.
func (u *unpacker) field(v *graph.Value, field, name string) (*graph.Value, error) {
	key := fieldOf{v, field}
	if made, ok := u.fields[key]; ok {
		return made, nil
	}
	made, err := u.make(v, field, name)
	u.fields[key] = made
	return made, err
}

func (u *unpacker) make(v *graph.Value, field, name string) (*graph.Value, error) {
	n, axis := v.Def, u.apart[v]
	f, _, start, ok := v.Type.Dims[axis].Field(field)
	if !ok {
		return nil, fmt.Errorf("%s has no field %s", v.Name, field)
	}
	switch n.Op.Name {
	case "field": // of a run
		return u.runField(n, axis, field, name)
	case "concat": // which had it as an operand
		_, i, _, _ := v.Type.Dims[axis].Field(field)
		return u.to[n.Args[i]], nil
	}
	if n.Op.Class == graph.Leaf {
		return u.leafField(v, axis, f, start)
	}
	operands, _, _ := graph.Follow(n, axis)
	args := make([]*graph.Value, len(n.Args))
	for i, a := range n.Args {
		if args[i] = u.to[a]; operands[i] < 0 {
			continue
		}
		var err error
		if args[i], err = u.field(a, field, a.Name+"."+field); err != nil {
			return nil, err
		}
	}
	m, err := u.rewriter.node(n, n.Op.Name, n.Attrs, n.Op.ResultNames(name), nil, args...)
	if err != nil {
		return nil, err
	}
	return m.Results[0], nil
}

// runField is a field of a run of fields: the same field of what the run is of.
func (u *unpacker) runField(n *graph.Node, axis int, field, name string) (*graph.Value, error) {
	if _, ok := u.apart[n.Args[0]]; ok {
		return u.field(n.Args[0], field, name)
	}
	m, err := u.rewriter.node(n, "field", graph.Attrs{"name": field, "axis": axis}, []string{name}, nil, u.to[n.Args[0]])
	if err != nil {
		return nil, err
	}
	return m.Results[0], nil
}

// leafField is a parameter or state for one field.
func (u *unpacker) leafField(v *graph.Value, axis int, f graph.Field, start int) (*graph.Value, error) {
	n := v.Def
	t := graph.TypeOf(v.Type.DType, append([]graph.Dim(nil), v.Type.Dims...)...)
	t.Dims[axis] = graph.Units(f.Size, f.Unit)
	var s *graph.Storage
	if n.Op.Name == "param" {
		var err error
		if s, err = n.Storage.Slice(v.Name, v.Type, axis, start, f.Size); err != nil {
			return nil, err
		}
	}
	made, err := u.out.AddLeaf(n.Op.Name, v.Name+"."+f.Name, t, s)
	if err == nil && n.Op.Name == "state" {
		made.Def.Part = &graph.Part{State: v.Name, Type: v.Type, Axis: axis, Field: f.Name}
	}
	return made, err
}

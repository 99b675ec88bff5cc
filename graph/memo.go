package graph

import (
	"encoding/binary"
	"fmt"
	"math"
)

// memo remembers what [infer] gave: most nodes of a model are as one of another block.
// It is not for several goroutines at the same time.
type memo struct {
	known map[string][]Type
	key   []byte
}

// infer is [infer], whose results must not be changed. Errors are not remembered, since
// they may name the node.
func (m *memo) infer(n *Node, over Mesh) ([]Type, error) {
	k := key(m.key[:0])
	k = append(k.int(over[TP]).int(over[CP]).text(n.Op.Name), byte(len(n.Attrs)))
	for i := range n.Op.Attrs {
		k = k.attr(n.Attrs[n.Op.Attrs[i].Name])
	}
	for _, v := range n.Args {
		k = k.typ(&v.Type)
	}
	m.key = k
	if types, ok := m.known[string(k)]; ok {
		return types, nil
	}
	types, err := inferOver(n, over)
	if err == nil {
		if m.known == nil {
			m.known = map[string][]Type{}
		}
		for i := range types {
			types[i] = types[i].clone() // of no graph, which may change
		}
		m.known[string(k)] = types
	}
	return types, err
}

// key is all that infer looks at, no two nodes the same that are not.
type key []byte

func (k key) int(n int) key { return binary.AppendVarint(k, int64(n)) }

func (k key) text(s string) key { return append(k.int(len(s)), s...) }

func (k key) attr(v any) key {
	switch v := v.(type) {
	case nil:
		return append(k, 0)
	case int:
		return append(k, 1).int(v)
	case float64:
		return binary.BigEndian.AppendUint64(append(k, 2), math.Float64bits(v))
	case string:
		return append(k, 3).text(v)
	}
	return append(k, 4).text(fmt.Sprintf("%T %v", v, v)) // which infer refuses
}

func (k key) typ(t *Type) key {
	k = append(k, byte(t.DType)).int(len(t.Dims))
	for _, d := range t.Dims {
		k = append(k, byte(d.Sym)).int(d.Times).int(len(d.Fields))
		for _, f := range d.Fields {
			k = k.text(f.Name).int(f.Size).int(f.Unit)
		}
	}
	return k.layout(&t.Layout).layout(&t.Context)
}

func (k key) layout(l *Layout) key {
	k = append(k, byte(l.Kind)).int(l.Axis).int(len(l.Place))
	for _, p := range l.Place {
		k = append(k, byte(p.Kind)).int(p.Of)
	}
	return k
}

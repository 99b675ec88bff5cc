package graph

import (
	"strings"
	"testing"
)

// across is a block on a mesh of two axes, whose lines tests change.
const across = `graph "g" stage=partitioned ranks=4 mesh=tp=2,cp=2
input %ids : i32[t]
param @table : f32[16 6]
param @up : f32[8/1 6] shard(0: split)
param @down : f32[6 8/1] shard(1: split)
input %rows : i32[o]
%h = embedding %ids @table : f32[t 6]
%x = shard %h {along=cp axis=0 place=parts} : f32[t 6] cp shard(0: parts)
%u = matmul %x @up : f32[t 8/1] shard(1: split) cp shard(0: parts)
%g = silu %u : f32[t 8/1] shard(1: split) cp shard(0: parts)
%d = matmul %g @down : f32[t 6] partial cp shard(0: parts)
%s = all_reduce %d {along=tp} : f32[t 6] cp shard(0: parts)
%all = all_gather %s {along=cp} : f32[t 6]
%o = select_rows %all %rows : f32[o 6]
output y = %o
`

func TestAcross(t *testing.T) {
	g, err := Parse(across)
	if err == nil {
		err = Check(g)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := Print(g); !strings.Contains(got, "%u = matmul %x @up : f32[t 8/1] shard(1: split) cp shard(0: parts)") {
		t.Errorf("printed:\n%s", got)
	}
	again, err := Parse(Print(g))
	if err != nil || !Equal(g, again) {
		t.Errorf("read again: %v", err)
	}
	for _, n := range g.Nodes {
		if n.Op.Class == Leaf {
			continue
		}
		types, err := inferOver(n, g.over())
		if err != nil || !types[0].Equal(n.Results[0].Type) {
			t.Errorf("%s: %v, %v", n.Name(), types, err)
		}
	}
}

// TestAcrossBroken breaks the block, each time in one way.
func TestAcrossBroken(t *testing.T) {
	for _, c := range []struct{ name, old, new, want string }{
		{"a sum along the wrong axis", "all_reduce %d {along=tp} : f32[t 6] cp shard(0: parts)", "all_reduce %d {along=cp} : f32[t 6] partial",
			"along cp: operand 0 is split, not a partial sum"},
		{"a gather along the wrong axis", "all_gather %s {along=cp} : f32[t 6]", "all_gather %s {along=tp} : f32[t 6]",
			"along tp: operand 0 is not sharded"},
		{"a partial sum left over", "%all = all_gather %s {along=cp} : f32[t 6]", "%all = all_gather %d {along=cp} : f32[t 6] partial",
			"o: select_rows: o is written as f32[o 6]; the operation gives f32[o 6] partial"},
		{"an axis split twice", "%x = shard %h {along=cp axis=0 place=parts} : f32[t 6] cp shard(0: parts)",
			"%w = shard %h {along=tp axis=0 place=even} : f32[t 6] shard(0: even)\n%x = shard %w {along=cp axis=0 place=parts}",
			"axis 0 (t) is split along tp and along cp; only one of them may split it"},
		{"units split along cp", "{along=cp axis=0 place=parts} : f32[t 6] cp shard(0: parts)", "{along=cp axis=1} : f32[t 6] cp shard(1: split)",
			"along cp, f32[t 6] is split on axis 1; only the rows of a batch may be"},
		{"no axis", "all_reduce %d {along=tp}", "all_reduce %d", "it runs along no axis; write along=tp or along=cp"},
		{"another axis", "{along=tp}", "{along=pp}", `attribute along is "pp"; it must be tp or cp`},
		{"a mesh of other ranks", "ranks=4", "ranks=8", "the graph is for 8 ranks, and its mesh tp=2,cp=2 has 4"},
		{"a mesh of one axis", "tp=2,cp=2", "tp=4", "values lie along tp and cp"},
		{"no mesh", " mesh=tp=2,cp=2", "", "which lies along cp, and the graph has no mesh of two axes"},
		{"a weight along cp", "@table : f32[16 6]", "@table : f32[16 6] cp partial", " f32[16 6] cp partial; what exists before the batch is whole along cp"},
		{"a function of a partial sum", "%g = silu %u", "%e = matmul %u @down : f32[t 6] partial cp shard(0: parts)\n%e2 = silu %e : f32[t 6] partial cp shard(0: parts)\n%g = silu %u",
			"along tp: operand 0 is a partial sum; all_reduce it first"},
	} {
		text := strings.Replace(across, c.old, c.new, 1)
		if text == across {
			t.Fatalf("%s: nothing was changed", c.name)
		}
		g, err := Parse(text)
		if err == nil {
			err = Check(g)
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %s", c.name, err, c.want)
		}
	}
}

// TestAcrossShares holds what ranks of a mesh have of a value against one element at a time: rows
// by the part of the sequence, columns by the owner of the unit.
func TestAcrossShares(t *testing.T) {
	const width, unit = 24, 2
	b := &Batch{Ends: []int{70, 71, 300}}
	b.Tokens, b.Seqs = 300, 3
	for _, m := range []Mesh{{TP: 2, CP: 2}, {TP: 3, CP: 2}, {TP: 4, CP: 4}, {TP: 8, CP: 8}} {
		typ := Type{DType: F32, Dims: []Dim{Symbol(Tokens), Units(width, unit)}, Layout: SplitOn(1, 1), Context: SplitRows(InParts)}
		tp, cp := m.Along(TP), m.Along(CP)
		owners := make([]int, 300*width)
		for rank := range m.Ranks() {
			cols, n, at := m.Share(typ, TP, rank)
			rows, parts, part := m.Share(typ, CP, rank)
			if n != tp || at != rank%tp || parts != cp || part != rank/tp {
				t.Fatalf("%s: rank %d is %d of %d and %d of %d", m, rank, at, n, part, parts)
			}
			local := m.Local(typ, rank)
			held := 0
			for _, r := range PiecesIn(b, rows, parts, part).List {
				for _, c := range PiecesOf(cols, n, at).List {
					held += r.N * c.N
					for i := range r.N {
						for j := range c.N {
							owners[(r.Whole+i)*width+c.Whole+j] += 1 + rank
						}
					}
				}
			}
			if width := local.Dims[1].Len(); local.Dims[0].Sym != Largest || rows.Dims[1].Len() != width || local.Layout.Kind != Replicated {
				t.Errorf("%s: rank %d holds %s, and shares %s", m, rank, local, rows)
			}
		}
		for row := range 300 {
			first, end := 0, 0
			for _, end = range b.Ends {
				if row < end {
					break
				}
				first = end
			}
			blocks := (end - first + PartBlock - 1) / PartBlock
			for col := range width {
				owner := func(units, ranks, i int) (rank int) {
					for rank = range ranks {
						if i < (rank+1)*units/ranks {
							break
						}
					}
					return rank
				}
				want := owner(width/unit, tp, col/unit) + tp*owner(blocks, cp, (row-first)/PartBlock)
				if got := owners[row*width+col]; got != 1+want {
					t.Fatalf("%s: element %d of row %d: %d, want it on rank %d alone", m, col, row, got, want)
				}
			}
		}
	}
}

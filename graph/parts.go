package graph

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/krait-ml/krait/internal/bail"
)

// Context parallelism. Ranks have the tokens of each sequence in parts ([InParts]), and a
// recurrence has a segment and a state for each part of each sequence: axes s*4 instead of s, whose
// rows are the first parts of all sequences, then all second parts. A rank has the rows of its
// parts, which is an even share of them. The operation stays the same.
//
// What passes from part to part is affine: the state after a part is M h + U of the state h before
// it. U is the state after it from zero, and the *_states operations compose what ranks gathered.

// ofParts reports whether the rule's segments are parts of sequences, which the ranks at hand have.
func (b *binding) ofParts() bool {
	d := b.at('s').dim
	return d != nil && d.Times > 0 && !b.apart
}

// deriveParts says how results lie where segments are parts of sequences: each rank has the tokens
// of its parts, their segments and their states. Nothing else may be split, since an operand that
// all ranks have is not cut by tokens.
func (b *binding) deriveParts(in []Type, ranks int) ([]Layout, error) {
	out := make([]Layout, len(b.rule.out))
	if !slices.ContainsFunc(in, func(t Type) bool { return t.Layout.Kind != Replicated }) {
		return out, nil
	}
	if n := b.at('s').dim.Times; n != ranks {
		return nil, fmt.Errorf("the segments are %d parts of each sequence; %d ranks have one each: write %c*%d", n, ranks, Seqs, ranks)
	}
	for i, axes := range b.rule.in {
		if want := b.inParts(axes); !in[i].Layout.Equal(want) {
			t := in[i]
			t.Layout = want
			return nil, fmt.Errorf("operand %d is %s; with tokens in parts it must be %s", i, in[i], t)
		}
	}
	for i, axes := range b.rule.out {
		out[i] = b.inParts(axes)
	}
	return out, nil
}

// inParts is how a value with the axes lies: with tokens in parts, with segments or states by rank.
func (b *binding) inParts(axes []axis) Layout {
	if len(axes) > 0 && len(axes[0].letters) == 1 && b.symbolic(axes[0].letters[0]) {
		switch b.at(axes[0].letters[0]).dim.Sym {
		case Tokens:
			return SplitRows(InParts)
		case Seqs:
			return SplitRows(Even)
		}
	}
	return Layout{}
}

// inferParts gives the segments of parts: on ranks that have their tokens in parts, of theirs.
func inferParts(n *Node) ([]Type, error) {
	x, seg, parts := n.Args[0].Type, n.Args[1].Type, n.Attrs.Int("parts")
	if len(seg.Dims) != 2 || !seg.Dims[0].same(Symbol(Seqs)) || seg.Dims[1].Len() != segColumns || seg.Layout.Kind != Replicated {
		return nil, fmt.Errorf("operand 1 must be the segments i32[s 3], found %s", seg)
	}
	if len(x.Dims) == 0 || x.Dims[0].Sym != Tokens {
		return nil, fmt.Errorf("operand 0 is %s; it must have a row per token, as what the segments are of", x)
	}
	out := Type{DType: I32, Dims: []Dim{{Sym: Seqs, Times: parts}, seg.Dims[1]}}
	switch l := x.Layout; {
	case l.Equal(SplitRows(InParts)):
		out.Layout = SplitRows(Even)
	case l.Kind != Replicated:
		return nil, fmt.Errorf("operand 0 is %s; it must be whole, or in parts", x)
	}
	return []Type{out}, nil
}

// inferZeros gives rows as many as the operand has, and lying as these.
func inferZeros(n *Node) (_ []Type, err error) {
	defer bail.Catch(&err)
	like := n.Args[0].Type
	if len(like.Dims) == 0 || like.Dims[0].Sym == 0 || like.Ragged() {
		return nil, fmt.Errorf("operand 0 is %s; its first axis must be a symbol, which the rows of zeros are counted by", like)
	}
	out := Type{DType: F32, Dims: like.Dims[:1:1]}
	for w := range strings.FieldsSeq(n.Attrs.Text("dims")) {
		out.Dims = append(out.Dims, parseDim(w))
	}
	if slices.ContainsFunc(out.Dims[1:], func(d Dim) bool { return d.Sym != 0 }) || len(out.Dims) > MaxRank {
		return nil, fmt.Errorf("dims is %q; it must be at most %d axes without symbols", n.Attrs.Text("dims"), MaxRank-1)
	}
	if last := len(out.Dims) - 1; n.Attrs.Int("diagonal") == 1 && (last < 2 || out.Dims[last].Len() != out.Dims[last-1].Len()) {
		return nil, errors.New("a diagonal needs two last axes of equal sizes")
	}
	if out.Layout = like.Layout; like.Layout.Kind != Replicated && !like.Layout.ByBatch() {
		return nil, fmt.Errorf("operand 0 is %s; it must be whole, or split by its rows", like)
	}
	return []Type{out}, nil
}

// DimText writes axes as the attribute dims of zeros has them.
func DimText(dims []Dim) string {
	list := make([]string, len(dims))
	for i, d := range dims {
		list[i] = d.String()
	}
	return strings.Join(list, " ")
}

// checkStatesOfParts checks that operand 0 has parts of the sequences that the segments, operand
// seg, are of.
func checkStatesOfParts(seg int) func(*Node, *binding) error {
	return func(n *Node, b *binding) error {
		if d := n.Args[0].Type.Dims[0]; d.Sym != Seqs || d.Times == 0 {
			return fmt.Errorf("operand 0 is %s; it must have a row per part of each sequence, such as %c*4", n.Args[0].Type, Seqs)
		}
		return checkWholeSegments(seg)(n, b)
	}
}

// checkDeltaStates: what is left of a state is a square matrix for each head.
func checkDeltaStates(n *Node, b *binding) error {
	if b.size('n') != b.size('m') {
		return fmt.Errorf("operand 0 has matrices of %d by %d for each head; they must be square", b.size('n'), b.size('m'))
	}
	return checkStatesOfParts(3)(n, b)
}

// checkWholeSegments checks for segments of sequences, not of parts.
func checkWholeSegments(seg int) func(*Node, *binding) error {
	return func(n *Node, b *binding) error {
		if d := n.Args[seg].Type.Dims[0]; d.Times > 0 {
			return fmt.Errorf("operand %d is %s; it must be the segments of whole sequences, i32[s 3]", seg, n.Args[seg].Type)
		}
		return checkSegments(seg)(n, b)
	}
}

package kernels

import "github.com/krait-ml/krait/graph"

// PutParts writes the segments of parts: those of all parts, whose rows are of the batch, or those
// of a rank, whose rows are counted among what it holds. The states of parts are rows, or with
// slots lie where those of the sequences do.
func PutParts(y, seg *Tensor, parts int, slots bool) {
	n, one := seg.Rows(), y.Rows() < seg.Rows()*parts
	at := 0
	for row := range y.Rows() {
		start, tokens, slot := seg.Segment(row % n)
		if !slots {
			slot = row
		}
		part := row / n
		if one {
			part = y.First / n
		}
		r := graph.PartOf(tokens, parts, part)
		if r.Start += start; one {
			r.Start, at = at, at+r.Len
		}
		copy(y.I32[3*row:], []int32{int32(r.Start), int32(r.Len), int32(slot)})
	}
}

// EachPart visits the parts of sequence i in their order: the row of values that have one for each
// part, and the number of its tokens. parts is a tensor of that many rows.
func EachPart(parts, seg *Tensor, i int, visit func(row, tokens int)) {
	n := seg.Rows()
	_, tokens, _ := seg.Segment(i)
	for part := range parts.Rows() / n {
		visit(part*n+i, graph.PartOf(tokens, parts.Rows()/n, part).Len)
	}
}

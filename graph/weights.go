package graph

import (
	"cmp"
	"slices"
)

// FormatBytes is a number format and the bytes of the parameters that have it.
type FormatBytes struct {
	DType DType
	Bytes int64
}

// WeightFormats returns the number formats of a graph's parameters, over all ranks: those of the
// most bytes first.
func (g *Graph) WeightFormats() []FormatBytes {
	bytes := map[DType]int64{}
	for _, p := range g.Leaves("param") {
		t := p.Results[0].Type
		shape := make([]int, len(t.Dims))
		for i, d := range t.Dims {
			shape[i] = d.Len()
		}
		bytes[t.DType] += int64(sizeOf(t.DType, shape))
	}
	var list []FormatBytes
	for d, n := range bytes {
		list = append(list, FormatBytes{d, n})
	}
	slices.SortFunc(list, func(a, b FormatBytes) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.DType, b.DType))
	})
	return list
}

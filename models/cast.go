package models

import (
	"fmt"

	"github.com/krait-ml/krait/graph"
)

// FP8 is the format of published folders in FP8: matrices in e4m3 with a scale for 128 × 128, but
// for the embedding and the head, which are in bf16 as all else.
const FP8 = "fp8"

// GraphIn is the graph of the model with its weights in another format: f32, bf16, f16 or [FP8].
func (m *Model) GraphIn(format string) (*graph.Graph, error) {
	d, ok := graph.ParseDType(format)
	switch {
	case format == FP8:
		d = graph.BF16
	case !ok || d != graph.F32 && d != graph.BF16 && d != graph.F16:
		return nil, fmt.Errorf("weight format %q; it must be f32, bf16, f16 or fp8", format)
	}
	g, err := m.Graph(func(string) (graph.DType, bool) { return d, true })
	if err != nil || format != FP8 {
		return g, err
	}
	matrix := map[string]bool{}
	for _, v := range graph.Matrices(g, false) {
		for _, piece := range v.Def.Storage.Pieces {
			matrix[piece.Tensor] = true
		}
	}
	for _, v := range graph.Vocabulary(g) {
		for _, piece := range v.Def.Storage.Pieces {
			delete(matrix, piece.Tensor)
		}
	}
	return m.Graph(func(tensor string) (graph.DType, bool) {
		if matrix[tensor] {
			return graph.FP8_128, true
		}
		return d, true
	})
}

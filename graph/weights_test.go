package graph_test

import (
	"slices"
	"testing"

	"github.com/krait-ml/krait/graph"
)

// TestWeightFormats: the bytes of parameters by format, most first; of blocks, whole ones.
func TestWeightFormats(t *testing.T) {
	b := graph.New("two")
	x := b.Input("x", graph.TypeOf(graph.F32, graph.Symbol(graph.Tokens), graph.Size(40)))
	y := b.MatMul("y", x, b.Param("w", graph.TypeOf(graph.Q8, graph.Size(3), graph.Size(40)), nil))
	z := b.MatMul("z", x, b.Param("v", graph.TypeOf(graph.BF16, graph.Size(3), graph.Size(40)), nil))
	b.Output("sum", b.Add("sum", y, z))
	g, err := b.Graph()
	if err != nil {
		t.Fatal(err)
	}
	want := []graph.FormatBytes{{DType: graph.BF16, Bytes: 240}, {DType: graph.Q8, Bytes: 3 * 2 * graph.BlockBytes}}
	if got := g.WeightFormats(); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestCodes: whole numbers times scales, plus least numbers, are what Decode gives.
func TestCodes(t *testing.T) {
	state := uint32(1)
	next := func() byte { state = state*1664525 + 1013904223; return byte(state >> 24) }
	var codes [graph.MaxBlockLen]int8
	var scales, least [16]float32
	for d := graph.Q8; d.HasCodes(); d++ {
		f := d.Format()
		want := make([]float32, f.Elems)
		for range 100 {
			block := make([]byte, f.Bytes)
			for i := range block {
				block[i] = next()
			}
			for _, at := range f.Scales {
				block[at+1] &= 0xbf // finite
			}
			part := d.Codes(&codes, &scales, &least, block)
			d.Decode(want, block)
			for i, w := range want {
				if got := float32(scales[i/part]*float32(codes[i])) + least[i/part]; got != w {
					t.Fatalf("%s: element %d is %g, want %g", d, i, got, w)
				}
			}
		}
	}
}

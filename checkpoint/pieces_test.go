package checkpoint

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/krait-ml/krait/graph"
)

// TestPieces: an array that is converted in pieces is what it is as a whole, with weights of the
// columns of each matrix and without; all bytes are told, and an error ends the work and says where
// it is.
func TestPieces(t *testing.T) {
	const matrices, rows, cols = 3, 350, 256
	rnd := rand.New(rand.NewPCG(1, 2))
	values, weights := make([]float32, matrices*rows*cols), make([]float32, matrices*cols)
	for i := range values {
		values[i] = float32(rnd.NormFloat64())
	}
	for i := range weights {
		weights[i] = rnd.Float32()
	}
	a := graph.ArrayOf(values, matrices, rows, cols)
	for _, weights := range [][]float32{nil, weights} {
		told := 0
		p := Pieces{Tell: func(n int) error { told += n; return nil }}
		build := func(rows graph.Array, weights []float32) ([]byte, error) {
			made, err := converted(rows, graph.Q4_0, weights)
			return made.Data, err
		}
		got, err := p.convert(a, graph.Q4_0, weights, build)
		whole, err2 := a.ToBlocks(graph.Q4_0, weights)
		if err != nil || err2 != nil || !bytes.Equal(got, whole.Data) || told != len(got) {
			t.Errorf("weights %v: %v, %v; told %d of %d bytes; pieces equal the whole: %t", weights != nil, err, err2, told, len(got), bytes.Equal(got, whole.Data))
		}
		enough := errors.New("enough")
		p.Tell = func(int) error { return enough }
		if _, err := p.convert(a, graph.Q4_0, weights, build); !errors.Is(err, enough) {
			t.Errorf("an error of Tell gave %v", err)
		}
	}
	_, err := (&Pieces{}).convert(a, graph.Q4_0, nil, func(rows graph.Array, _ []float32) ([]byte, error) {
		if strings.Contains(rows.From, "from row") {
			return nil, errors.New(rows.From)
		}
		return nil, nil
	})
	if err == nil || err.Error() != ", from row 1024 on" {
		t.Errorf("of errors of several pieces the first is not returned: %v", err)
	}
}

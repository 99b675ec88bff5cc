package kernels

import (
	"testing"

	"github.com/krait-ml/krait/graph"
)

// TestRegister: an operation has one kernel in a set.
func TestRegister(t *testing.T) {
	set := Register(Set{}, Set{"add": {}})
	if Register(set, Set{"mul": {}}); len(set) != 2 {
		t.Errorf("%d kernels, want 2", len(set))
	}
	defer func() {
		if r := recover(); r != "BUG: two kernels are registered for add" {
			t.Errorf("a second kernel for add: %v", r)
		}
	}()
	Register(set, Set{"silu": {}, "add": {}})
}

// TestCut: rows of a tensor begin where they lie, whatever its elements are.
func TestCut(t *testing.T) {
	x := Tensor{Dims: [graph.MaxRank]int{4, 3}, Cols: 3, Stride: 5}
	x.F64, x.F32, x.U16, x.I32, x.U8 = make([]float64, 20), make([]float32, 20), make([]uint16, 20), make([]int32, 20), make([]byte, 20)
	y := x.Cut(2, 1)
	y.F64[0], y.F32[0], y.U16[0], y.I32[0], y.U8[0] = 1, 1, 1, 1, 1
	if y.Rows() != 1 || x.F64[10] != 1 || x.F32[10] != 1 || x.U16[10] != 1 || x.I32[10] != 1 || x.U8[10] != 1 {
		t.Errorf("row 2 of %+v is cut as %+v", x, y)
	}
}

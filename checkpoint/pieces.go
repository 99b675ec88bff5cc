package checkpoint

import (
	"runtime"
	"slices"
	"sync"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/files"
)

// Pieces converts arrays in pieces, several at the same time.
type Pieces struct {
	// Tell, unless it is nil, is called with the bytes of each piece of a large array, one call at a
	// time. Its error ends the conversion.
	Tell func(bytes int) error
}

// piece is rows of an array, as [graph.Array.Rows] counts them, and the weights of their columns.
type piece struct {
	lo, hi  int
	weights []float32
}

// pieceElems is about how many elements a piece has.
const pieceElems = 1 << 18

// piecesOf cuts an array of which each matrix has weights [cols], or none has: a piece has rows of
// one matrix then.
func piecesOf(a graph.Array, weights []float32) (list []piece) {
	cols := a.Shape[len(a.Shape)-1]
	all := a.Elems() / cols
	rows, step := all, max(1, pieceElems/cols)
	if weights != nil {
		rows = a.Shape[len(a.Shape)-2]
	}
	for lo := 0; lo < all; lo = list[len(list)-1].hi {
		matrix := lo / rows
		p := piece{lo, min(lo+step, (matrix+1)*rows), nil}
		if weights != nil {
			p.weights = weights[matrix*cols:][:cols]
		}
		list = append(list, p)
	}
	return list
}

// convert returns an array in another format, which build makes of pieces; the array's own data if
// it has that format. Of several errors it returns that of the first piece.
func (p *Pieces) convert(a graph.Array, to graph.DType, weights []float32, build func(rows graph.Array, weights []float32) ([]byte, error)) ([]byte, error) {
	if a.DType == to {
		return a.Data, nil
	}
	if len(a.Shape) < 2 || a.Elems() == 0 {
		return build(a, nil)
	}
	list := piecesOf(a, weights)
	made, errs := make([][]byte, len(list)), make([]error, len(list))
	var mu sync.Mutex
	next := 0
	take := func() int {
		mu.Lock()
		defer mu.Unlock()
		next++
		return next - 1
	}
	end := func(i int, err error) {
		mu.Lock()
		defer mu.Unlock()
		if err == nil && p.Tell != nil && len(list) > 1 {
			err = p.Tell(len(made[i]))
		}
		if errs[i] = err; err != nil {
			next = len(list)
		}
	}
	var work sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(list)) {
		work.Go(func() {
			for i := take(); i < len(list); i = take() {
				end(i, files.Guard(func() (err error) {
					made[i], err = build(a.Rows(list[i].lo, list[i].hi), list[i].weights)
					return err
				}))
			}
		})
	}
	work.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return slices.Concat(made...), nil
}

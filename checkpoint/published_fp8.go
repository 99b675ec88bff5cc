package checkpoint

import (
	"errors"
	"fmt"
	"slices"

	"github.com/krait-ml/krait/checkpoint/safetensors"
	"github.com/krait-ml/krait/graph"
)

// scaleEnds follow the name of a tensor in the name of its scales. In spite of the names they are
// all factors of the codes. transformers' finegrained_fp8.py has _scale_inv after weight and after
// the matrices of experts (_scales_inv before July 2026); ModelOpt and compressed-tensors have
// _scale.
var scaleEnds = []string{"_scale_inv", "_scales_inv", "_scale"}

// readFP8 reads matrices of E4M3. One scale is for all of a matrix (ModelOpt's FP8,
// compressed-tensors' tensor strategy), for a row (FP8_PER_CHANNEL_PER_TOKEN; channel), or for the
// rows and columns of weight_block_size (fp8; FP8_PB_WO; block), of which the last ones have fewer.
func readFP8(w *publishedSet, t safetensors.Tensor) (string, *coded, error) {
	switch t.DType {
	case "F8_E4M3":
	case "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ":
		return "", nil, fmt.Errorf("it is %s; of FP8, Krait reads F8_E4M3", t.DType)
	default:
		return "", nil, nil
	}
	if w.isScale(t.Name) {
		return "", nil, nil
	}
	last := len(t.Shape) - 1
	if last < 1 || last > 2 {
		return "", nil, fmt.Errorf("it has shape %v; only matrices can be in FP8", t.Shape)
	}
	var scales safetensors.Tensor
	for _, end := range scaleEnds {
		if s, ok := w.Set.Tensor(t.Name + end); ok {
			scales = s
			break
		}
	}
	if scales.Name == "" {
		return "", nil, fmt.Errorf("its scales are missing: there is no %s, %s or %s", t.Name+scaleEnds[0], t.Name+scaleEnds[1], t.Name+scaleEnds[2])
	}
	if !slices.Contains([]string{"F32", "BF16", "F16", "F8_E8M0"}, scales.DType) {
		return "", nil, fmt.Errorf("%s is %s; scales of FP8 must be F32, BF16, F16 or F8_E8M0", scales.Name, scales.DType)
	}
	g, err := gridOf(t.Shape, scales.Shape, w.quant.Block)
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w", scales.Name, err)
	}
	c := &coded{shape: t.Shape, files: []string{t.Name, scales.Name}}
	if c.format, err = g.format(graph.FP8_128, graph.FP8_32); err != nil {
		return "", nil, fmt.Errorf("%s: %w", scales.Name, err)
	}
	c.rows = func() (rowReader, error) {
		values, err := scalesOf(scales)
		elems := c.format.Format().Elems
		return func(r int, parts []graph.Parts) error {
			line := t.Data[r*g.cols:][:g.cols]
			for k := range parts {
				at := k * elems
				codes := line[at:min(at+elems, g.cols)]
				for i, code := range codes {
					if code&0x7f == 0x7f {
						return fmt.Errorf("column %d is NaN", at+i)
					}
				}
				parts[k].Codes, parts[k].Scale = codes, values[g.at(r, at)]
			}
			return nil
		}, err
	}
	return t.Name, c, nil
}

// isScale reports whether a tensor of FP8 has the scales of another one.
func (w *publishedSet) isScale(name string) bool {
	return slices.ContainsFunc(fp4Scales, func(end string) bool {
		if len(name) <= len(end) || name[len(name)-len(end):] != end {
			return false
		}
		for _, codes := range fp4Codes {
			if t, ok := w.Set.Tensor(name[:len(name)-len(end)] + codes); ok && t.DType == "U8" {
				return true
			}
		}
		return false
	})
}

// grid says which scale an element of a matrix [rows cols], or of several, has: one of across in
// each of down strips of a matrix.
type grid struct {
	rows, cols   int // of a matrix
	tall, wide   int // rows and columns with one scale
	down, across int // scales of a matrix; down is 0 if all matrices have one scale
}

func (g *grid) at(r, col int) int {
	return r/g.rows*g.down*g.across + r%g.rows/g.tall*g.across + col/g.wide
}

// gridOf is the grid of scales of a shape; block is what the config says.
func gridOf(shape, scales []int, block [2]int) (*grid, error) {
	last := len(shape) - 1
	g := &grid{rows: shape[last-1], cols: shape[last], tall: shape[last-1], wide: shape[last]}
	given := scales
	if len(scales) == 4 && scales[1] == 1 && scales[3] == 1 { // of ModelOpt's FP8_PB_WO
		scales = []int{scales[0], scales[2]}
	}
	if one := !slices.ContainsFunc(scales, func(n int) bool { return n != 1 }); one && (last == 1 || shape[0] == 1 || len(scales) < 2) {
		g.across = 1 // of all
		return g.filled(), nil
	}
	if last == 2 && len(scales) > 0 && scales[0] == shape[0] {
		scales = scales[1:]
	} else if last == 2 {
		return nil, fmt.Errorf("it has shape %v, of %d matrices", given, shape[0])
	}
	switch {
	case len(scales) == 0 || len(scales) == 1 && scales[0] == g.rows, len(scales) == 2 && scales[1] == 1 && (scales[0] == g.rows || scales[0] == 1):
		if g.down, g.across = 1, 1; len(scales) > 0 {
			g.down = scales[0]
			g.tall = max(1, g.rows/max(1, g.down))
		}
		return g.filled(), nil
	case block == [2]int{}:
		return nil, fmt.Errorf("it has shape %v, and quantization_config does not say of which blocks; of rows it would be [%d] or [%d 1]", given, g.rows, g.rows)
	}
	g.tall, g.wide = block[0], block[1]
	g.down, g.across = (g.rows+g.tall-1)/g.tall, (g.cols+g.wide-1)/g.wide
	if want := []int{g.down, g.across}; !slices.Equal(scales, want) {
		return nil, fmt.Errorf("it has shape %v; of %v in blocks of %v it must be %v", given, shape, block, append(slices.Clone(shape[:last-1]), want...))
	}
	return g.filled(), nil
}

// filled lets a matrix without elements have strips.
func (g *grid) filled() *grid {
	g.rows, g.tall, g.wide = max(1, g.rows), max(1, g.tall), max(1, g.wide)
	return g
}

// format chooses the blocks of which each has one scale.
func (g *grid) format(long, short graph.DType) (graph.DType, error) {
	switch {
	case g.wide >= g.cols || g.wide%long.Format().Elems == 0:
		return long, nil
	case g.wide%short.Format().Elems == 0:
		return short, nil
	}
	return 0, errors.New(fmt.Sprint("its scales are of ", g.wide, " columns each, which must be a multiple of ", short.Format().Elems))
}

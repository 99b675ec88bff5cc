package checkpoint

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/krait-ml/krait/checkpoint/safetensors"
	"github.com/krait-ml/krait/graph"
)

// Integers of 4 bits lie eight in an I32, the first one in the lowest bits. A weight is
// (code − zero)·scale, with one scale, and one zero, for a group of columns of a row.

// awqOrder says which bits of an I32 hold each of 8 rows (AutoAWQ's packing_utils.py).
var awqOrder = [8]int{0, 4, 1, 5, 2, 6, 3, 7}

// readGPTQ reads GPTQ (AutoGPTQ's qlinear modules) and AWQ (AutoAWQ's WQLinear_GEMM). Both keep a
// matrix turned, with scales [groups rows] and zeros [groups rows/8]. GPTQ packs 8 columns of a row
// (qweight [columns/8 rows]) and stores zeros less 1, but for gptq_v2; AWQ packs 8 rows in an order
// of its own (qweight [columns rows/8]).
func readGPTQ(w *publishedSet, t safetensors.Tensor) (string, *coded, error) {
	base, ok := strings.CutSuffix(t.Name, ".qweight")
	if !ok {
		return "", nil, nil
	}
	awq := w.quant.Method == "awq"
	if t.DType != "I32" || len(t.Shape) != 2 || !awq && w.quant.Method != "gptq" {
		return "", nil, fmt.Errorf("it is %s %v and quantization_config says %s; it must be an I32 matrix of gptq or awq", t.DType, t.Shape, w.quant.Method)
	}
	cols, rows := t.Shape[0]*8, t.Shape[1]
	if awq {
		cols, rows = t.Shape[0], t.Shape[1]*8
	}
	g := groupsOf(rows, cols, w.quant.Group)
	scales, err := w.need(base+".scales", []int{g.across, rows}, "F16", "BF16", "F32")
	if err != nil {
		return "", nil, err
	}
	if rows%8 != 0 {
		return "", nil, fmt.Errorf("it has %d rows, which must be a multiple of 8", rows)
	}
	zeros, err := w.need(base+".qzeros", []int{g.across, rows / 8}, "I32")
	if err != nil {
		return "", nil, err
	}
	c := &coded{shape: []int{rows, cols}, files: []string{t.Name, scales.Name, zeros.Name}}
	if c.format, err = g.format(graph.INT4_128, graph.INT4_32); err != nil {
		return "", nil, err
	}
	if err := w.inOrder(base, g, c); err != nil {
		return "", nil, err
	}
	m := &integers{grid: g, scale: func(r, k int) int { return k*rows + r }}
	m.zero = func(r, k int) byte { return nibble(zeros.Data, k*rows/8+r/8, r%8) + byte(w.quant.Offset) }
	m.code = func(r, col int) byte { return nibble(t.Data, col/8*rows+r, col%8) }
	if awq {
		m.zero = func(r, k int) byte { return nibble(zeros.Data, k*rows/8+r/8, awqOrder[r%8]) }
		m.code = func(r, col int) byte { return nibble(t.Data, col*(rows/8)+r/8, awqOrder[r%8]) }
	}
	c.rows = func() (rowReader, error) { return m.reader(c.format, scales) }
	return base + ".weight", c, nil
}

// readInt4 reads compressed-tensors' pack-quantized: codes [rows columns/8], 8 more than the
// numbers they stand for, scales [rows groups], and zeros [rows/8 groups] packed along rows if they
// are not all 8. weight_shape is the shape.
func readInt4(w *publishedSet, t safetensors.Tensor) (string, *coded, error) {
	name, ok := strings.CutSuffix(t.Name, "_packed")
	if !ok || t.DType != "I32" {
		return "", nil, nil
	}
	if len(t.Shape) != 2 {
		return "", nil, fmt.Errorf("it has shape %v; only a matrix can be packed so", t.Shape)
	}
	said, ok := w.Set.Tensor(name + "_shape")
	if !ok {
		return "", nil, fmt.Errorf("its shape is missing: there is no %s_shape", name)
	}
	shape, err := said.Int64s()
	if err != nil {
		return "", nil, err
	}
	if len(shape) != 2 || shape[0] != int64(t.Shape[0]) || shape[1] < 0 || (shape[1]+7)/8 != int64(t.Shape[1]) {
		return "", nil, fmt.Errorf("%s says %v, which does not fit %v of 8 columns each", said.Name, shape, t.Shape)
	}
	rows, cols := int(shape[0]), int(shape[1])
	scales, ok := w.Set.Tensor(name + "_scale")
	if !ok || len(scales.Shape) != 2 {
		return "", nil, fmt.Errorf("its scales are missing: there is no matrix %s_scale", name)
	}
	group := w.quant.Group
	if n := scales.Shape[1]; group == 0 && n > 0 {
		group = (cols + n - 1) / n
	}
	g := groupsOf(rows, cols, group)
	if scales, err = w.need(scales.Name, []int{rows, g.across}, "F16", "BF16", "F32"); err != nil {
		return "", nil, err
	}
	c := &coded{shape: []int{rows, cols}, files: []string{t.Name, said.Name, scales.Name}}
	if c.format, err = g.format(graph.INT4_128, graph.INT4_32); err != nil {
		return "", nil, err
	}
	m := &integers{grid: g, scale: func(r, k int) int { return r*g.across + k }}
	m.zero = func(r, k int) byte { return 8 }
	m.code = func(r, col int) byte { return nibble(t.Data, r*t.Shape[1]+col/8, col%8) }
	if _, ok := w.Set.Tensor(name + "_zero_point"); ok {
		zeros, err := w.need(name+"_zero_point", []int{(rows + 7) / 8, g.across}, "I32")
		if err != nil {
			return "", nil, err
		}
		m.zero = func(r, k int) byte { return nibble(zeros.Data, r/8*g.across+k, r%8) }
		c.files = append(c.files, zeros.Name)
	}
	if err := w.inOrder(name, g, c); err != nil {
		return "", nil, err
	}
	c.rows = func() (rowReader, error) { return m.reader(c.format, scales) }
	return name, c, nil
}

// groupsOf is the grid of groups of columns; -1 and 0 are all of a row.
func groupsOf(rows, cols, group int) *grid {
	if group <= 0 {
		group = max(1, cols)
	}
	g := &grid{rows: rows, cols: cols, tall: 1, wide: group, down: rows, across: (cols + group - 1) / group}
	return g.filled()
}

// inOrder refuses columns whose groups are not one after another, as desc_act and actorder make
// them: a block would need the scales of many groups.
func (w *publishedSet) inOrder(name string, g *grid, c *coded) error {
	for _, end := range []string{".g_idx", "_g_idx"} {
		t, ok := w.Set.Tensor(name + end)
		if !ok {
			continue
		}
		index, err := t.Int64s()
		if err != nil {
			return err
		}
		if len(index) != g.cols {
			return fmt.Errorf("%s has shape %v; it must be [%d]", t.Name, t.Shape, g.cols)
		}
		for col, k := range index {
			if k != int64(col/g.wide) {
				return fmt.Errorf("%s has column %d in group %d: desc_act (actorder) is not supported; quantize without it", t.Name, col, k)
			}
		}
		c.files = append(c.files, t.Name)
	}
	return nil
}

// integers finds codes, zeros and the places of scales, by row and group or column.
type integers struct {
	*grid
	scale      func(r, k int) int
	zero, code func(r, i int) byte
}

func (m *integers) reader(d graph.DType, scales safetensors.Tensor) (rowReader, error) {
	values, err := scalesOf(scales)
	elems := d.Format().Elems
	return func(r int, parts []graph.Parts) error {
		for k := range parts {
			p, at := &parts[k], k*elems
			group := at / m.wide
			p.Scale, p.Zero = values[m.scale(r, group)], m.zero(r, group)
			p.Codes = p.Codes[:0]
			for col := at; col < min(at+elems, m.cols); col++ {
				p.Codes = append(p.Codes, m.code(r, col))
			}
		}
		return nil
	}, err
}

// nibble is one of the 8 codes of an I32.
func nibble(data []byte, at, which int) byte {
	return byte(binary.LittleEndian.Uint32(data[4*at:])>>(4*which)) & 15
}

package checkpoint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/krait-ml/krait/checkpoint/safetensors"
	"github.com/krait-ml/krait/graph"
)

// Ends of the names of codes of 4-bit floats, and of their scales: ModelOpt keeps the name of the
// matrix and adds _scale, compressed-tensors has _packed and _scale, and gpt-oss's experts, in
// transformers' mxfp4.py, _blocks and _scales.
var (
	fp4Codes  = []string{"", "_packed", "_blocks"}
	fp4Scales = []string{"_scale", "_scale", "_scales"}
)

// readFP4 reads matrices of E2M1, two codes in a byte, the first one in its lower half. NVFP4 has a
// scale in E4M3 for 16 columns, which another is multiplied with: weight_scale_2 (vLLM's
// modelopt.py), or 1/weight_global_scale (compressed-tensors' nvfp4 compressor, and vLLM's scheme,
// which inverts it). MXFP4 has powers of two for 32 columns.
func readFP4(w *publishedSet, t safetensors.Tensor) (string, *coded, error) {
	if t.DType != "U8" {
		return "", nil, nil
	}
	for i, end := range slices.Backward(fp4Codes) {
		name, ok := strings.CutSuffix(t.Name, end)
		scales, there := w.Set.Tensor(name + fp4Scales[i])
		if !ok || !there && end == "" {
			continue
		}
		if !there {
			return "", nil, fmt.Errorf("its scales are missing: there is no %s", name+fp4Scales[i])
		}
		c, err := w.fp4(name, t, scales)
		return name, c, err
	}
	return "", nil, nil
}

// fp4 is the matrix of some codes and scales.
func (w *publishedSet) fp4(name string, t, scales safetensors.Tensor) (*coded, error) {
	shape := slices.Clone(t.Shape)
	if len(shape) > 2 && strings.HasSuffix(t.Name, "_blocks") { // [… groups 16]
		last := len(shape) - 1
		shape = append(shape[:last-1], shape[last-1]*shape[last])
	}
	last := len(shape) - 1
	if last < 1 || last > 2 {
		return nil, fmt.Errorf("it has shape %v; only matrices can be in 4 bits", t.Shape)
	}
	shape[last] *= 2
	c := &coded{format: graph.NVFP4, shape: shape, files: []string{t.Name, scales.Name}}
	group, dtypes := 16, []string{"F8_E4M3"}
	var second []float32
	switch scales.DType {
	case "F8_E4M3":
		which, values, err := w.second(name, shape)
		if err != nil {
			return nil, err
		}
		second, c.files = values, append(c.files, which)
	case "U8", "F8_E8M0":
		c.format, group, dtypes = graph.MXFP4, 32, []string{"U8", "F8_E8M0"}
	default:
		return nil, fmt.Errorf("%s is %s; it must be F8_E4M3 (NVFP4), or U8 or F8_E8M0 (MXFP4)", scales.Name, scales.DType)
	}
	cols := shape[last]
	if cols%group != 0 {
		return nil, fmt.Errorf("it has %d columns, which must be a multiple of %d", cols, group)
	}
	if _, err := w.need(scales.Name, append(slices.Clone(shape[:last]), cols/group), dtypes...); err != nil {
		return nil, err
	}
	c.rows = func() (rowReader, error) {
		return func(r int, parts []graph.Parts) error {
			codes, factors := t.Data[r*cols/2:][:cols/2], scales.Data[r*cols/group:][:cols/group]
			for _, code := range factors {
				if c.format == graph.MXFP4 && code == 255 || c.format == graph.NVFP4 && code&0x7f == 0x7f {
					return fmt.Errorf("a scale is NaN")
				}
			}
			elems := c.format.Format().Elems
			for k := range parts {
				p, at := &parts[k], k*elems
				unpackPairs(p, codes[at/2:min(at+elems, cols)/2])
				p.Scales = p.Scales[:elems/group]
				clear(p.Scales[copy(p.Scales, factors[at/group:]):])
				if second != nil {
					p.Scale = second[r/max(1, shape[last-1])%len(second)]
				}
			}
			return nil
		}, nil
	}
	return c, nil
}

// second is the factor of the scales of NVFP4: of all matrices, or of each.
func (w *publishedSet) second(name string, shape []int) (string, []float32, error) {
	which := name + "_scale_2"
	t, ok := w.Set.Tensor(which)
	if !ok {
		which = name + "_global_scale"
		if t, ok = w.Set.Tensor(which); !ok {
			return "", nil, fmt.Errorf("its second scale is missing: there is no %s_scale_2 or %s", name, which)
		}
	}
	values, err := scalesOf(t)
	if err != nil {
		return "", nil, err
	}
	if n := len(values); n != 1 && (len(shape) < 3 || n != shape[0]) {
		return "", nil, fmt.Errorf("%s has shape %v; it must be one number", which, t.Shape)
	}
	for i, v := range values {
		if !strings.HasSuffix(which, "_global_scale") {
			continue
		}
		if values[i] = 1 / v; v == 0 {
			return "", nil, fmt.Errorf("%s is 0", which)
		}
	}
	return which, values, nil
}

// unpackPairs takes two codes of each byte, the lower half first.
func unpackPairs(p *graph.Parts, bytes []byte) {
	p.Codes = p.Codes[:0]
	for _, b := range bytes {
		p.Codes = append(p.Codes, b&15, b>>4)
	}
}

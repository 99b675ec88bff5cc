package quantize_test

import (
	"context"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/checkpoint/quantize"
	"github.com/krait-ml/krait/checkpoint/safetensors"
	"github.com/krait-ml/krait/checkpoint/synth"
	"github.com/krait-ml/krait/internal/goldens"
)

// e4m3 are the numbers of codes 0 to 126 by the definition of the format: 4 bits of exponent, of
// which the bias is 7, and 3 of mantissa.
func e4m3() (values []float64) {
	for code := range 127 {
		if code < 8 {
			values = append(values, math.Ldexp(float64(code)/8, -6))
		} else {
			values = append(values, math.Ldexp(1+float64(code%8)/8, code/8-7))
		}
	}
	return values
}

// inFP8 is a matrix [rows cols] by the definition: scales of blocks, and codes, of two that are as
// near the even one.
func inFP8(x []float64, rows, cols int) (scales []float32, codes []byte) {
	values := e4m3()
	across := (cols + 127) / 128
	for top := 0; top < rows; top += 128 {
		for left := 0; left < cols; left += 128 {
			most := 0.0
			for r := top; r < min(top+128, rows); r++ {
				for c := left; c < min(left+128, cols); c++ {
					most = max(most, math.Abs(x[r*cols+c]))
				}
			}
			scale := float32(most) / 448
			if most == 0 {
				scale = 1
			}
			scales = append(scales, scale)
		}
	}
	for i, v := range x {
		v = float64(float32(v) / scales[i/cols/128*across+i%cols/128])
		code, _ := slices.BinarySearch(values, math.Abs(v))
		if code == len(values) {
			code--
		}
		if code > 0 {
			low, high := math.Abs(v)-values[code-1], values[code]-math.Abs(v)
			if low < high || low == high && code%2 == 1 {
				code--
			}
		}
		if math.Signbit(v) {
			code |= 0x80
		}
		codes = append(codes, byte(code))
	}
	return scales, codes
}

// TestFP8: folders in FP8 have the tensors that others publish, of the numbers that the format
// defines, and Krait opens them; what is left in floats is named in the config.
func TestFP8(t *testing.T) {
	wide := filepath.Join(t.TempDir(), "wide") // several blocks, and parts of blocks, each way
	config := `{"model_type": "mamba", "vocab_size": 300, "hidden_size": 200, "num_hidden_layers": 1, "torch_dtype": "bfloat16"}`
	if _, err := synth.Write(context.Background(), wide, synth.Options{Config: []byte(config)}); err != nil {
		t.Fatal(err)
	}
	for _, from := range append(goldens.Folders(t, "../.."), wide) {
		to := filepath.Join(t.TempDir(), "fp8")
		made, err := quantize.Write(context.Background(), from, to, "fp8", nil)
		if err != nil {
			t.Fatal(from, err)
		}
		was, is := open(t, from), open(t, to)
		c, err := checkpoint.Open(to)
		if err != nil {
			t.Fatal(from, err)
		}
		defer c.Close()
		left, matrices := c.Model.Config().Quantization().Excluded, 0
		for _, name := range is.Names() {
			if module, ok := strings.CutSuffix(name, "_scale_inv"); ok {
				if x, _ := is.Tensor(module); x.DType != "F8_E4M3" {
					t.Errorf("%s: %s has scales, and is %s", from, module, x.DType)
				}
				continue
			}
			a, _ := was.Tensor(name)
			b, _ := is.Tensor(name)
			if !slices.Equal(a.Shape, b.Shape) {
				t.Errorf("%s: %s has shape %v, and had %v", from, name, b.Shape, a.Shape)
			}
			if b.DType == "F8_E4M3" {
				matrices++
				holdFP8(t, is, a, b)
			}
			module, ok := strings.CutSuffix(name, ".weight")
			if named := slices.Contains(left, module); ok && len(b.Shape) == 2 && named != (b.DType != "F8_E4M3") {
				t.Errorf("%s: %s is %s, and that it is excluded is %v", from, name, b.DType, named)
			}
		}
		if matrices == 0 || matrices != made.Matrices || made.Loss < 0.02 || made.Loss > 0.03 {
			t.Errorf("%s: %d matrices, %+v", from, matrices, made)
		}
		if len(c.Unused)+len(c.Model.Unknown) > 0 {
			t.Errorf("%s: unused %v, unknown %v", from, c.Unused, c.Model.Unknown)
		}
	}
}

// holdFP8 holds codes and scales of a tensor to the definition.
func holdFP8(t *testing.T, set *safetensors.Set, was, is safetensors.Tensor) {
	t.Helper()
	s, ok := set.Tensor(is.Name + "_scale_inv")
	last := len(is.Shape) - 1
	rows, cols := is.Shape[last-1], is.Shape[last]
	if want := append(slices.Clone(is.Shape[:last-1]), (rows+127)/128, (cols+127)/128); !ok || s.DType != "F32" || !slices.Equal(s.Shape, want) {
		t.Errorf("scales of %s are %s %v, want F32 %v", is.Name, s.DType, s.Shape, want)
		return
	}
	x, err := was.Float64s()
	scales, err2 := s.Float64s()
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	for i := 0; i < len(x); i += rows * cols {
		want, codes := inFP8(x[i:i+rows*cols], rows, cols)
		for k, w := range want {
			if scales[k] != float64(w) {
				t.Fatalf("%s: scale %d is %g, want %g", is.Name, k, scales[k], w)
			}
		}
		for k, w := range codes {
			if is.Data[i+k] != w {
				t.Fatalf("%s: code %d is %#x, want %#x (%g, scale %g)", is.Name, i+k, is.Data[i+k], w, x[i+k], want[k/cols/128*((cols+127)/128)+k%cols/128])
			}
		}
		scales = scales[len(want):]
	}
}

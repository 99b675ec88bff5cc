package tests

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/checkpoint/convert"
	"github.com/krait-ml/krait/checkpoint/safetensors"
	"github.com/krait-ml/krait/internal/covering"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/models"
	"github.com/x448/float16"
)

// matrix is one of a checkpoint, or several of one shape, in float64.
type matrix struct {
	name       string // with .weight, or of experts without
	lead       []int  // how many there are
	rows, cols int    // of all together; rows of one are each
	each       int
	x          []float64
}

// publication is a way to publish a folder in 8 or 4 bits. write gives the tensors of a matrix and
// what they stand for, by the definition of the format in float64; nil where it leaves it in
// floats.
type publication struct {
	config  string // quantization_config, or ModelOpt's file
	exclude string // the key of what is left
	file    bool   // it is ModelOpt's file
	write   func(m *matrix) (tensors []safetensors.Tensor, stands []float64)
}

var publications = map[string]publication{
	"fp8 in blocks": {`{"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}`, "modules_to_not_convert", false, func(m *matrix) ([]safetensors.Tensor, []float64) {
		return m.fp8(128, 128, "_scale_inv", "F32", func(down, across int) []int { return []int{down, across} })
	}},
	"fp8 in small blocks": {`{"quant_method": "fp8", "weight_block_size": [16, 32]}`, "modules_to_not_convert", false, func(m *matrix) ([]safetensors.Tensor, []float64) {
		return m.fp8(16, 32, "_scale_inv", "BF16", func(down, across int) []int { return []int{down, across} })
	}},
	"fp8": {`{"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}`, "exclude_modules", true, func(m *matrix) ([]safetensors.Tensor, []float64) {
		tensors, stands := m.fp8(m.each, m.cols, "_scale", "F32", func(int, int) []int { return nil })
		if base, ok := strings.CutSuffix(m.name, "weight"); ok {
			tensors = append(tensors, safetensors.Tensor{Name: base + "input_scale", DType: "F32", Data: make([]byte, 4)})
		}
		return tensors, stands
	}},
	"fp8 by channel": {`{"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}}}`, "ignore", false, func(m *matrix) ([]safetensors.Tensor, []float64) {
		return m.fp8(1, m.cols, "_scale", "BF16", func(down, across int) []int { return []int{down, 1} })
	}},
	"fp8 of ModelOpt in blocks": {`{"quantization": {"quant_algo": "FP8_PB_WO"}}`, "exclude_modules", true, func(m *matrix) ([]safetensors.Tensor, []float64) {
		if len(m.lead) > 0 {
			return nil, nil
		}
		return m.fp8(128, 128, "_scale", "F32", func(down, across int) []int { return []int{down, 1, across, 1} })
	}},
	"nvfp4": {`{"quantization": {"quant_algo": "NVFP4", "group_size": 16}}`, "exclude_modules", true, func(m *matrix) ([]safetensors.Tensor, []float64) {
		return m.nvfp4("", "_scale_2", func(second float64) float64 { return second })
	}},
	"nvfp4 of compressed-tensors": {`{"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized", "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "float", "group_size": 16}}}}`, "ignore", false, func(m *matrix) ([]safetensors.Tensor, []float64) {
		return m.nvfp4("_packed", "_global_scale", func(second float64) float64 { return 1 / second })
	}},
	"mxfp4": {`{"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized"}`, "ignore", false, func(m *matrix) ([]safetensors.Tensor, []float64) {
		return m.mxfp4("_packed", "_scale", []int{m.cols / 2})
	}},
	"mxfp4 of gpt-oss": {`{"quant_method": "mxfp4"}`, "modules_to_not_convert", false, func(m *matrix) ([]safetensors.Tensor, []float64) {
		return m.mxfp4("_blocks", "_scales", []int{m.cols / 32, 16})
	}},
	"gptq":               {`{"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": false}`, "", false, func(m *matrix) ([]safetensors.Tensor, []float64) { return m.gptq(32, 1) }},
	"gptq of whole rows": {`{"quant_method": "gptq", "bits": 4, "group_size": -1, "checkpoint_format": "gptq_v2"}`, "", false, func(m *matrix) ([]safetensors.Tensor, []float64) { return m.gptq(m.cols, 0) }},
	"awq":                {`{"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm", "zero_point": true}`, "modules_to_not_convert", false, func(m *matrix) ([]safetensors.Tensor, []float64) { return m.awq(128) }},
	"packed": {`{"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int", "group_size": 32}}}}`, "ignore", false, func(m *matrix) ([]safetensors.Tensor, []float64) {
		return m.packed(32, false)
	}},
	"packed with zeros": {`{"quant_method": "compressed-tensors", "format": "pack-quantized"}`, "ignore", false, func(m *matrix) ([]safetensors.Tensor, []float64) { return m.packed(m.cols, true) }},
}

// noise is how far logits in f32 may be from each other in models where float64 differs from them
// by more than 2e-6: by 1.3e-5 in qwen3-next.
var noise = map[string]float64{"qwen3-next": 5e-5, "qwen3-5-moe": 2e-5, "granite-hybrid": 2e-5}

// TestPublished: folders in 8 and 4 bits, as others publish them, have the numbers that the formats
// define, and give on ranks, which cut inside of blocks and groups, the logits of the folder in f32
// that krait convert makes of them.
func TestPublished(t *testing.T) {
	names := []string{"mamba-a", "mamba2-g4", "jamba", "granite-hybrid", "nemotron-h-moe", "lfm2-moe", "qwen3-next", "qwen3-5-moe"}
	kinds, counts := slices.Sorted(maps.Keys(publications)), []int{1, 2, 3, 4, 8}
	check := func(name, kind string, ranks []int) {
		t.Run(fmt.Sprintf("%s/%s/tp=%d", name, kind, ranks), func(t *testing.T) {
			t.Parallel()
			from, dir := filepath.Join("../testdata/golden", name), t.TempDir()
			if name == "wide" {
				from = filepath.Join(dir, name)
				wideModel(t, from)
			}
			folder, twin := filepath.Join(dir, "folder"), filepath.Join(dir, "twin")
			stands := publish(t, from, folder, publications[kind])
			if _, err := convert.Write(t.Context(), folder, twin, "f32", nil); err != nil {
				t.Fatal(err)
			}
			holdWeights(t, folder, twin, stands)
			for _, n := range ranks {
				nearLogits(t, folder, twin, krait.Options{Sharding: krait.Sharding{Ranks: n}}, max(1e-5, noise[name]))
			}
		})
	}
	if !goldens.Few(t) {
		for _, kind := range covering.Drawn(t, []string{"fp8 in blocks", "nvfp4", "mxfp4", "gptq", "awq"}) {
			check("wide", kind, []int{3})
		}
	}
	for _, x := range covering.Each(t, []int{len(names), len(kinds)}, len(counts)) {
		check(names[x[0]], kinds[x[1]], []int{counts[x[2]]})
	}
}

// publish writes a folder like another, and says what its matrices stand for.
func publish(t *testing.T, from, to string, p publication) map[string][]float64 {
	t.Helper()
	c, err := checkpoint.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	set, err := safetensors.OpenDir(from)
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	matrices := c.Matrices()
	stands, left, tensors := map[string][]float64{}, []string{"lm_head"}, []safetensors.Tensor{}
	for _, name := range set.Names() {
		a, _ := set.Tensor(name)
		shape := matrices[name]
		if shape == nil || strings.Contains(name, "embed") || strings.HasPrefix(name, "lm_head") {
			tensors = append(tensors, a)
			continue
		}
		x, err := a.Float64s()
		if err != nil {
			t.Fatal(err)
		}
		last := len(shape) - 1
		m := &matrix{name, shape[:last-1], 1, shape[last], shape[last-1], x}
		for _, n := range shape[:last] {
			m.rows *= n
		}
		written, means := p.write(m)
		if written == nil {
			left, written = append(left, strings.TrimSuffix(name, ".weight")), []safetensors.Tensor{a}
		} else {
			stands[name] = means
		}
		tensors = append(tensors, written...)
	}
	if err := os.Mkdir(to, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := safetensors.WriteFile(filepath.Join(to, "model.safetensors"), tensors, nil); err != nil {
		t.Fatal(err)
	}
	writeConfig(t, from, to, p, left)
	return stands
}

// writeConfig writes config.json, and ModelOpt's file.
func writeConfig(t *testing.T, from, to string, p publication, left []string) {
	t.Helper()
	config, err := models.ReadConfig(from)
	if err != nil {
		t.Fatal(err)
	}
	var quant map[string]any
	if err := json.Unmarshal([]byte(p.config), &quant); err != nil {
		t.Fatal(err)
	}
	inner := quant
	if p.file {
		inner = quant["quantization"].(map[string]any)
	}
	if p.exclude != "" {
		inner[p.exclude] = left
	}
	if p.file {
		text, err := json.Marshal(quant)
		if err == nil {
			err = os.WriteFile(filepath.Join(to, models.QuantFile), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	} else {
		config.Set("quantization_config", quant)
	}
	text, err := config.Text()
	if err == nil {
		err = os.WriteFile(filepath.Join(to, "config.json"), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// holdWeights holds the matrices of a folder in f32 to what those of another stand for, which are
// in blocks.
func holdWeights(t *testing.T, folder, twin string, stands map[string][]float64) {
	t.Helper()
	c, err := checkpoint.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if len(c.Unused) > 0 {
		t.Errorf("unused: %v", c.Unused)
	}
	set, err := safetensors.OpenDir(twin)
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	if !slices.Equal(set.Names(), slices.DeleteFunc(c.Names(), c.Copied)) {
		t.Errorf("tensors %v became %v", c.Names(), set.Names())
	}
	for name, want := range stands {
		a, err := c.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		wide, _ := set.Tensor(name)
		got, err := wide.Float64s()
		if err != nil || len(got) != len(want) {
			t.Fatalf("%s: %d numbers, want %d: %v", name, len(got), len(want), err)
		}
		if !a.DType.Quantized() {
			t.Errorf("%s is %s in memory", name, a.DType)
		}
		for i, v := range want {
			if d := math.Abs(got[i] - v); !(d <= math.Abs(v)*1e-6+1e-30) {
				t.Fatalf("%s: element %d is %g, want %g", name, i, got[i], v)
			}
		}
	}
}

func f32s(values ...float64) (data []byte) {
	for _, v := range values {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(v)))
	}
	return data
}

// rounded are numbers in a format of safetensors, and what they are there.
func rounded(dtype string, values []float64) (data []byte, are []float64) {
	for _, v := range values {
		switch bits := math.Float32bits(float32(v)); dtype {
		case "F32":
			data, are = append(data, f32s(v)...), append(are, float64(float32(v)))
		case "BF16":
			data, are = binary.LittleEndian.AppendUint16(data, uint16(bits>>16)), append(are, float64(math.Float32frombits(bits>>16<<16)))
		case "F16":
			h := float16.Fromfloat32(float32(v))
			data, are = binary.LittleEndian.AppendUint16(data, h.Bits()), append(are, float64(h.Float32()))
		}
	}
	return data, are
}

func peak(x []float64) (most float64) {
	for _, v := range x {
		most = max(most, math.Abs(v))
	}
	return most
}

// small are the numbers that codes of a float of some bits stand for: bits of exponent, of
// mantissa, and the bias. Without is how many of the largest codes are no numbers.
func small(exponent, mantissa, bias, without int) (numbers []float64) {
	for code := range 1<<(exponent+mantissa) - without {
		e, m := code>>mantissa, code&(1<<mantissa-1)
		if e == 0 {
			numbers = append(numbers, math.Ldexp(float64(m), 1-bias-mantissa))
		} else {
			numbers = append(numbers, math.Ldexp(float64(1<<mantissa+m), e-bias-mantissa))
		}
	}
	return numbers
}

var e4m3, e2m1 = small(4, 3, 7, 1), small(2, 1, 1, 0)

// nearest is the code whose number is nearest, with the bit of the sign, and that number.
func nearest(v float64, numbers []float64, sign int) (code int, number float64) {
	size := math.Abs(v)
	code, _ = slices.BinarySearch(numbers, size)
	if code == len(numbers) || code > 0 && size-numbers[code-1] < numbers[code]-size {
		code--
	}
	if v < 0 {
		return code | sign, -numbers[code]
	}
	return code, numbers[code]
}

// shape is that of the lead and what follows.
func (m *matrix) shape(inner ...int) []int { return append(slices.Clone(m.lead), inner...) }

// fp8 has a scale for tall rows and wide columns.
func (m *matrix) fp8(tall, wide int, end, dtype string, shape func(down, across int) []int) ([]safetensors.Tensor, []float64) {
	down, across := (m.each+tall-1)/tall, (m.cols+wide-1)/wide
	at := func(i int) int {
		r, k := i/m.cols, i%m.cols
		return (r/m.each*down+r%m.each/tall)*across + k/wide
	}
	scales := make([]float64, m.rows/m.each*down*across)
	for i, v := range m.x {
		scales[at(i)] = max(scales[at(i)], math.Abs(v)/448, 1e-10)
	}
	of := shape(down, across)
	if of == nil && len(m.lead) > 0 { // one for each of several matrices
		of = []int{}
	}
	data, scales := rounded(dtype, scales)
	codes, stands := make([]byte, len(m.x)), make([]float64, len(m.x))
	for i, v := range m.x {
		code, number := nearest(v/scales[at(i)], e4m3, 0x80)
		codes[i], stands[i] = byte(code), number*scales[at(i)]
	}
	return []safetensors.Tensor{{Name: m.name, DType: "F8_E4M3", Shape: m.shape(m.each, m.cols), Data: codes}, {Name: m.name + end, DType: dtype, Shape: m.shape(of...), Data: data}}, stands
}

// pairs packs codes, the first one of two in the lower half.
func pairs(codes []int) []byte {
	out := make([]byte, len(codes)/2)
	for i, c := range codes {
		out[i/2] |= byte(c) << (i % 2 * 4)
	}
	return out
}

func (m *matrix) nvfp4(codesEnd, secondEnd string, stored func(float64) float64) ([]safetensors.Tensor, []float64) {
	if m.cols%16 != 0 || len(m.lead) > 0 && codesEnd != "" {
		return nil, nil
	}
	second := peak(m.x) / 6 / 448
	kept, are := rounded("F32", []float64{stored(second)})
	second = stored(are[0])
	var scales []byte
	var codes []int
	stands := make([]float64, len(m.x))
	for i, v := range m.x {
		if i%16 == 0 {
			code, _ := nearest(peak(m.x[i:i+16])/6/second, e4m3, 0x80)
			scales = append(scales, byte(max(code, 1)))
		}
		scale := e4m3[scales[i/16]] * second
		code, number := nearest(v/scale, e2m1, 8)
		codes, stands[i] = append(codes, code), number*scale
	}
	return []safetensors.Tensor{
		{Name: m.name + codesEnd, DType: "U8", Shape: m.shape(m.each, m.cols/2), Data: pairs(codes)},
		{Name: m.name + "_scale", DType: "F8_E4M3", Shape: m.shape(m.each, m.cols/16), Data: scales},
		{Name: m.name + secondEnd, DType: "F32", Data: kept},
	}, stands
}

func (m *matrix) mxfp4(codesEnd, scalesEnd string, line []int) ([]safetensors.Tensor, []float64) {
	if m.cols%32 != 0 {
		return nil, nil
	}
	var scales []byte
	var codes []int
	stands := make([]float64, len(m.x))
	for i, v := range m.x {
		if i%32 == 0 {
			exponent := math.Floor(math.Log2(max(peak(m.x[i:i+32]), 0x1p-100))) - 2
			scales = append(scales, byte(exponent+127))
		}
		scale := math.Exp2(float64(scales[i/32]) - 127)
		code, number := nearest(v/scale, e2m1, 8)
		codes, stands[i] = append(codes, code), number*scale
	}
	return []safetensors.Tensor{
		{Name: m.name + codesEnd, DType: "U8", Shape: m.shape(append([]int{m.each}, line...)...), Data: pairs(codes)},
		{Name: m.name + scalesEnd, DType: "U8", Shape: m.shape(m.each, m.cols/32), Data: scales},
	}, stands
}

// integers are codes of 4 bits, and scales and zeros by row and group.
func (m *matrix) integers(group int, dtype string, zeros bool) (codes []int, zero []int, scales, stands []float64, groups int) {
	groups = (m.cols + group - 1) / group
	for r := range m.rows {
		for g := range groups {
			part := m.x[r*m.cols+g*group : r*m.cols+min((g+1)*group, m.cols)]
			lo, hi := min(slices.Min(part), 0), max(slices.Max(part), 0)
			if !zeros {
				hi = peak(part)
				lo = -hi
			}
			scale := max((hi-lo)/15, 1e-7)
			scales = append(scales, scale)
			z := 8
			if zeros {
				z = min(max(int(math.Round(-lo/scale)), 1), 15)
			}
			zero = append(zero, z)
		}
	}
	_, scales = rounded(dtype, scales)
	for i, v := range m.x {
		at := i/m.cols*groups + i%m.cols/group
		code := min(max(int(math.Round(v/scales[at]))+zero[at], 0), 15)
		codes, stands = append(codes, code), append(stands, float64(code-zero[at])*scales[at])
	}
	return codes, zero, scales, stands, groups
}

// turned are numbers of [rows cols] as [cols rows].
func turned[T any](x []T, cols int) []T {
	out := make([]T, 0, len(x))
	for k := range cols {
		for r := range len(x) / cols {
			out = append(out, x[r*cols+k])
		}
	}
	return out
}

// eights packs 8 codes in an I32, of lines in some order: along a line, or of 8 lines.
func eights(codes []int, line int, along bool, order [8]int) (data []byte) {
	words := make([]uint32, len(codes)/8)
	for i, c := range codes {
		word, which := i/8, i%8
		if !along {
			word, which = i/line/8*line+i%line, i/line%8
		}
		words[word] |= uint32(c) << (4 * order[which])
	}
	for _, w := range words {
		data = binary.LittleEndian.AppendUint32(data, w)
	}
	return data
}

var inOrder = [8]int{0, 1, 2, 3, 4, 5, 6, 7}

func (m *matrix) gptq(group, less int) ([]safetensors.Tensor, []float64) {
	if m.rows%8 != 0 || m.cols%8 != 0 || len(m.lead) > 0 || !strings.HasSuffix(m.name, ".weight") {
		return nil, nil
	}
	codes, zeros, scales, stands, groups := m.integers(group, "F16", true)
	for i := range zeros {
		zeros[i] -= less
	}
	data, _ := rounded("F16", turned(scales, groups))
	base := strings.TrimSuffix(m.name, "weight")
	var index []byte
	for k := range m.cols {
		index = binary.LittleEndian.AppendUint32(index, uint32(k/group))
	}
	return []safetensors.Tensor{
		{Name: base + "qweight", DType: "I32", Shape: []int{m.cols / 8, m.rows}, Data: eights(turned(codes, m.cols), m.rows, false, inOrder)},
		{Name: base + "qzeros", DType: "I32", Shape: []int{groups, m.rows / 8}, Data: eights(turned(zeros, groups), m.rows, true, inOrder)},
		{Name: base + "scales", DType: "F16", Shape: []int{groups, m.rows}, Data: data},
		{Name: base + "g_idx", DType: "I32", Shape: []int{m.cols}, Data: index},
	}, stands
}

func (m *matrix) awq(group int) ([]safetensors.Tensor, []float64) {
	if m.rows%8 != 0 || len(m.lead) > 0 || !strings.HasSuffix(m.name, ".weight") {
		return nil, nil
	}
	codes, zeros, scales, stands, groups := m.integers(group, "F16", true)
	data, _ := rounded("F16", turned(scales, groups))
	base, order := strings.TrimSuffix(m.name, "weight"), [8]int{}
	for place, row := range []int{0, 2, 4, 6, 1, 3, 5, 7} { // AutoAWQ's AWQ_ORDER: the row in each place
		order[row] = place
	}
	return []safetensors.Tensor{
		{Name: base + "qweight", DType: "I32", Shape: []int{m.cols, m.rows / 8}, Data: eights(turned(codes, m.cols), m.rows, true, order)},
		{Name: base + "qzeros", DType: "I32", Shape: []int{groups, m.rows / 8}, Data: eights(turned(zeros, groups), m.rows, true, order)},
		{Name: base + "scales", DType: "F16", Shape: []int{groups, m.rows}, Data: data},
	}, stands
}

func (m *matrix) packed(group int, zeros bool) ([]safetensors.Tensor, []float64) {
	if m.rows%8 != 0 || m.cols%8 != 0 || len(m.lead) > 0 || !strings.HasSuffix(m.name, ".weight") {
		return nil, nil
	}
	codes, zero, scales, stands, groups := m.integers(group, "BF16", zeros)
	data, _ := rounded("BF16", scales)
	shape := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(m.rows)), uint64(m.cols))
	out := []safetensors.Tensor{
		{Name: m.name + "_packed", DType: "I32", Shape: []int{m.rows, m.cols / 8}, Data: eights(codes, m.cols, true, inOrder)},
		{Name: m.name + "_scale", DType: "BF16", Shape: []int{m.rows, groups}, Data: data},
		{Name: m.name + "_shape", DType: "I64", Shape: []int{2}, Data: shape},
	}
	if zeros {
		out = append(out, safetensors.Tensor{Name: m.name + "_zero_point", DType: "I32", Shape: []int{m.rows / 8, groups}, Data: eights(zero, groups, false, inOrder)})
	}
	return out, stands
}

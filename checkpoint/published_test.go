package checkpoint

import (
	"bytes"
	"encoding/binary"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/checkpoint/safetensors"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/models"
)

const publishedName = "backbone.layers.0.mixer.in_proj" // [256 64]

// publishedParts are tensors of publishedName by the ends of their names, as methods publish it.
var publishedParts = map[string]map[string]safetensors.Tensor{
	`{"quant_method": "fp8", "weight_block_size": [128, 32]}`: {
		".weight": part("F8_E4M3", 1, 256, 64), ".weight_scale_inv": part("F32", 4, 2, 2),
	},
	`{"quant_method": "modelopt", "quant_algo": "NVFP4"}`: {
		".weight": part("U8", 1, 256, 32), ".weight_scale": part("F8_E4M3", 1, 256, 4), ".weight_scale_2": part("F32", 4), ".input_scale": part("F32", 4),
	},
	`{"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"}`: {
		".weight_packed": part("U8", 1, 256, 32), ".weight_scale": part("F8_E4M3", 1, 256, 4), ".weight_global_scale": part("F32", 4, 1),
	},
	`{"quant_method": "mxfp4"}`: {".weight_blocks": part("U8", 1, 256, 2, 16), ".weight_scales": part("U8", 1, 256, 2)},
	`{"quant_method": "gptq", "bits": 4, "group_size": 32}`: {
		".qweight": part("I32", 4, 8, 256), ".qzeros": part("I32", 4, 2, 32), ".scales": part("F16", 2, 2, 256), ".g_idx": order(64, 32),
	},
	`{"quant_method": "awq", "bits": 4, "group_size": 64}`: {
		".qweight": part("I32", 4, 64, 32), ".qzeros": part("I32", 4, 1, 32), ".scales": part("F16", 2, 1, 256),
	},
	`{"quant_method": "compressed-tensors", "format": "pack-quantized"}`: {
		".weight_packed": part("I32", 4, 256, 8), ".weight_scale": part("BF16", 2, 256, 2), ".weight_zero_point": part("I32", 4, 32, 2),
		".weight_shape": {DType: "I64", Shape: []int{2}, Data: binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, 256), 64)},
	},
}

// part is a tensor of bytes that are good in all formats.
func part(dtype string, size int, shape ...int) safetensors.Tensor {
	for _, n := range shape {
		size *= n
	}
	return safetensors.Tensor{DType: dtype, Shape: shape, Data: bytes.Repeat([]byte{0x38}, size)}
}

// order is the index of groups of columns.
func order(cols, group int) safetensors.Tensor {
	t := safetensors.Tensor{DType: "I32", Shape: []int{cols}}
	for k := range cols {
		t.Data = binary.LittleEndian.AppendUint32(t.Data, uint32(k/group))
	}
	return t
}

// openPublished opens a golden checkpoint of which a matrix is published so.
func openPublished(t testing.TB, quant string, parts map[string]safetensors.Tensor) (*Checkpoint, error) {
	t.Helper()
	const dir = "../testdata/golden/mamba-a"
	config, err := os.ReadFile(dir + "/config.json")
	if err != nil {
		t.Fatal(err)
	}
	set, err := safetensors.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	var tensors []safetensors.Tensor
	for _, name := range set.Names() {
		if x, _ := set.Tensor(name); name != publishedName+".weight" {
			tensors = append(tensors, x)
		}
	}
	for end, x := range parts {
		x.Name = publishedName + end
		tensors = append(tensors, x)
	}
	var file strings.Builder
	if err := safetensors.Write(&file, tensors, nil); err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(config), "{", `{"quantization_config": `+quant+",", 1)
	return FromMemory("here", []byte(text), []byte(file.String()))
}

// load reads the published matrix.
func loadPublished(c *Checkpoint) (graph.Array, error) {
	defer c.Close()
	return c.Tensor(publishedName + ".weight")
}

// TestPublishedParts: each way is read in blocks, and what its parts must be is refused by name
// where it is not.
func TestPublishedParts(t *testing.T) {
	for quant, parts := range publishedParts {
		c, err := openPublished(t, quant, parts)
		if err != nil {
			t.Fatalf("%s: %v", quant, err)
		}
		a, err := loadPublished(c)
		if err != nil || !a.DType.Quantized() || !slices.Equal(a.Shape, []int{256, 64}) || len(c.Unused) > 0 {
			t.Errorf("%s: %s %v, unused %v: %v", quant, a.DType, a.Shape, c.Unused, err)
		}
		for end := range parts {
			if end == ".input_scale" || end == ".g_idx" || end == ".weight_zero_point" {
				continue
			}
			refused(t, quant+" without "+end, publishedName, quant, parts, func(parts map[string]safetensors.Tensor) { delete(parts, end) })
			refused(t, quant+" with a short "+end, publishedName+end, quant, parts, func(parts map[string]safetensors.Tensor) {
				x := parts[end]
				parts[end] = part(x.DType, len(x.Data)/max(1, elems(x.Shape)), append(slices.Clone(x.Shape), 3)...)
			})
		}
	}
}

func elems(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// refused holds a change of the parts to an error that has some text.
func refused(t *testing.T, what, want, quant string, parts map[string]safetensors.Tensor, change func(parts map[string]safetensors.Tensor)) {
	t.Helper()
	parts = maps.Clone(parts)
	change(parts)
	c, err := openPublished(t, quant, parts)
	if err == nil {
		_, err = loadPublished(c)
	}
	if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), publishedName) {
		t.Errorf("%s: %v, want %s", what, err, want)
	}
}

// TestPublishedDamaged: numbers that make no sense, and what Krait does not read, are errors.
func TestPublishedDamaged(t *testing.T) {
	find := func(method, has string) string {
		for quant, parts := range publishedParts {
			if _, ok := parts[has]; ok && strings.Contains(quant, method) {
				return quant
			}
		}
		t.Fatalf("no %s with %s", method, has)
		return ""
	}
	change := func(end string, at int, bytes ...byte) func(map[string]safetensors.Tensor) {
		return func(parts map[string]safetensors.Tensor) {
			x := parts[end]
			x.Data = slices.Clone(x.Data)
			copy(x.Data[at:], bytes)
			parts[end] = x
		}
	}
	nan := binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(math.NaN())))
	zero := []byte{0, 0, 0, 0}
	fp8, gptq := find("fp8", ".weight"), find("gptq", ".qweight")
	for _, c := range []struct {
		want, quant string
		change      func(map[string]safetensors.Tensor)
	}{
		{"row 2: column 3 is NaN", fp8, change(".weight", 2*64+3, 0xff)},
		{"scale 1 is NaN", fp8, change(".weight_scale_inv", 4, nan...)},
		{"row 1: a scale is NaN", find("modelopt", ".weight"), change(".weight_scale", 4, 0x7f)},
		{"scale 0 is NaN", find("modelopt", ".weight"), change(".weight_scale_2", 0, nan...)},
		{"weight_global_scale is 0", find("nvfp4-pack", ".weight_packed"), change(".weight_global_scale", 0, zero...)},
		{"row 0: a scale is NaN", find("mxfp4", ".weight_blocks"), change(".weight_scales", 1, 255)},
		{"desc_act (actorder) is not supported", gptq, change(".g_idx", 0, 1)},
		{"scale 0 is +Inf", gptq, change(".scales", 0, 0, 0x7c)},
		{"which does not fit [256 8] of 8 columns each", find(`"pack-q`, ".weight_packed"), change(".weight_shape", 8, 65)},
		{"it must be [2 2]", fp8, func(p map[string]safetensors.Tensor) { p[".weight_scale_inv"] = part("F32", 4, 2, 3) }},
		{"scales of FP8 must be F32", fp8, func(p map[string]safetensors.Tensor) { p[".weight_scale_inv"] = part("I32", 4, 2, 2) }},
		{"of FP8, Krait reads F8_E4M3", fp8, func(p map[string]safetensors.Tensor) { p[".weight"] = part("F8_E5M2", 1, 256, 64) }},
		{"only matrices can be in FP8", fp8, func(p map[string]safetensors.Tensor) { p[".weight"] = part("F8_E4M3", 1, 256*64) }},
		{"its scales are of 20 columns each, which must be a multiple of 32", `{"quant_method": "fp8", "weight_block_size": [128, 20]}`, func(p map[string]safetensors.Tensor) {
			p[".weight"], p[".weight_scale_inv"] = part("F8_E4M3", 1, 256, 64), part("F32", 4, 2, 4)
		}},
		{"does not say of which blocks", `{"quant_method": "fp8"}`, func(p map[string]safetensors.Tensor) {
			p[".weight"], p[".weight_scale_inv"] = part("F8_E4M3", 1, 256, 64), part("F32", 4, 2, 2)
		}},
		{"does not exclude " + publishedName, fp8, func(p map[string]safetensors.Tensor) { p[".weight"] = part("F32", 4, 256, 64) }},
		{"the file has " + publishedName + ".weight as well", gptq, func(p map[string]safetensors.Tensor) { p[".weight"] = part("F32", 4, 256, 64) }},
	} {
		parts := publishedParts[c.quant]
		if parts == nil {
			parts = map[string]safetensors.Tensor{}
		}
		refused(t, c.quant, c.want, c.quant, parts, c.change)
	}
	plain := map[string]safetensors.Tensor{".weight": part("F8_E4M3", 1, 256, 64)}
	refused(t, "no quantization_config", "the config has no quantization_config that says so", `null`, plain, func(map[string]safetensors.Tensor) {})
}

// TestPublishedExcluded: scales of a matrix that is excluded, and left in floats, are ignored.
func TestPublishedExcluded(t *testing.T) {
	c, err := openPublished(t, `{"quant_method": "fp8", "modules_to_not_convert": ["`+publishedName+`"]}`,
		map[string]safetensors.Tensor{".weight": part("F32", 4, 256, 64), ".weight_scale_inv": part("F32", 4, 2, 2)})
	if err != nil {
		t.Fatal(err)
	}
	if a, err := loadPublished(c); err != nil || a.DType != graph.F32 || len(c.Unused) > 0 {
		t.Errorf("%s, unused %v: %v", a.DType, c.Unused, err)
	}
}

// FuzzPublished opens parts of any shapes and bytes.
func FuzzPublished(f *testing.F) {
	methods := slices.Sorted(maps.Keys(publishedParts))
	for i := range methods {
		f.Add(uint8(i), uint64(i), uint8(0))
		f.Add(uint8(i), uint64(i), uint8(5))
		f.Add(uint8(i), uint64(i), uint8(129))
	}
	f.Fuzz(func(t *testing.T, method uint8, seed uint64, changes uint8) {
		quant := methods[int(method)%len(methods)]
		rng, tensors := rand.New(rand.NewPCG(seed, 1)), []safetensors.Tensor{}
		for _, end := range slices.Sorted(maps.Keys(publishedParts[quant])) {
			x := publishedParts[quant][end]
			x.Name = publishedName + end
			tensors = append(tensors, x)
		}
		for range changes % 16 {
			if i := rng.IntN(len(tensors)); changes >= 128 && len(tensors) > 1 { // cut
				tensors = slices.Delete(tensors, i, i+1)
			} else {
				tensors[i] = changed(rng, tensors[i])
			}
		}
		c, err := models.ParseConfig("config.json", []byte(`{"model_type": "mamba", "vocab_size": 10, "hidden_size": 8, "num_hidden_layers": 1, "quantization_config": `+quant+"}"))
		if err != nil {
			t.Fatal(err)
		}
		m, err := models.Read(c)
		if err != nil {
			t.Fatal(err)
		}
		var file bytes.Buffer
		if err := safetensors.Write(&file, tensors, nil); err != nil {
			return
		}
		parsed, err := safetensors.Parse("x", file.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		w, err := weightsOf(m, safetensors.SetOf(parsed))
		if err != nil {
			return
		}
		defer w.Close()
		for _, name := range w.Names() {
			a, _ := w.Look(name)
			if b, err := w.Tensor(name); err == nil && a.DType.Quantized() && (b.DType != a.DType || len(b.Float32s()) != elems(a.Shape)) {
				t.Errorf("%s: %s %v", name, b.DType, b.Shape)
			}
		}
	})
}

// changed is a tensor with another format, shape or bytes.
func changed(rng *rand.Rand, x safetensors.Tensor) safetensors.Tensor {
	sizes := map[string]int{"F32": 4, "BF16": 2, "F16": 2, "I32": 4, "U8": 1, "F8_E4M3": 1, "F8_E8M0": 1, "I64": 8}
	x.Shape, x.Data = slices.Clone(x.Shape), slices.Clone(x.Data)
	switch rng.IntN(6) {
	case 5: // absurd counts, of nothing
		x.Shape = append(x.Shape, 1<<rng.IntN(40), 0)
	case 4:
		if len(x.Data) > 0 {
			x.Data[rng.IntN(len(x.Data))] ^= 1 << rng.IntN(8)
		}
		return x
	case 0:
		x.DType = slices.Sorted(maps.Keys(sizes))[rng.IntN(len(sizes))]
	case 1:
		x.Shape = append(x.Shape, rng.IntN(3))
	case 2:
		if n := len(x.Shape); n > 0 {
			x.Shape[rng.IntN(n)] = rng.IntN(70)
		}
	}
	x.Data = make([]byte, min(1<<20, elems(x.Shape)*sizes[x.DType]))
	for i := range x.Data {
		x.Data[i] = byte(rng.Uint32())
	}
	return x
}

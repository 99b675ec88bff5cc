package checkpoint

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/checkpoint/safetensors"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/models"
)

// inBlocks is a golden checkpoint with some of its matrices in blocks; change may damage
// its tensors and metadata.
func inBlocks(t *testing.T, change func(tensors map[string]safetensors.Tensor, metadata map[string]string)) (*Checkpoint, error) {
	t.Helper()
	const dir = "../testdata/golden/mamba-a"
	config, err := os.ReadFile(dir + "/config.json")
	if err != nil {
		t.Fatal(err)
	}
	c, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	tensors, metadata := map[string]safetensors.Tensor{}, map[string]string{}
	set := c.weights.(*tensorSet).Set
	for _, name := range set.Names() {
		tensors[name], _ = set.Tensor(name)
	}
	for name, shape := range c.Matrices() {
		a, err := c.Tensor(name)
		if err == nil {
			a, err = a.Convert(graph.Q8)
		}
		if err != nil {
			t.Fatal(err)
		}
		note, bytes := BlocksShape(shape)
		metadata[BlocksKey(name)] = note
		tensors[name] = safetensors.Tensor{Name: name, DType: "U8", Shape: bytes, Data: a.Data}
	}
	change(tensors, metadata)
	var file strings.Builder
	if err := safetensors.Write(&file, slices.Collect(maps.Values(tensors)), metadata); err != nil {
		t.Fatal(err)
	}
	return FromMemory("here", config, []byte(file.String()))
}

func TestBlocks(t *testing.T) {
	c, err := inBlocks(t, func(map[string]safetensors.Tensor, map[string]string) {})
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, p := range c.Graph.Leaves("param") {
		if typ := p.Results[0].Type; typ.DType == graph.Q8 {
			count++
			if strings.Contains(p.Name(), "conv") || strings.Contains(p.Name(), "A_log") || strings.HasSuffix(p.Name(), "norm.weight") {
				t.Errorf("%s is %s", p.Name(), typ)
			}
		}
	}
	if count != 13 { // in_proj, x_proj, dt_proj and out_proj of 3 layers, and the tied embedding
		t.Errorf("%d parameters in blocks", count)
	}
	if len(c.Unused) > 0 {
		t.Errorf("unused: %v", c.Unused)
	}
}

// TestDamagedBlocks: bytes that are not what the metadata say, or of which they say
// nothing, are refused when the checkpoint is opened.
func TestDamagedBlocks(t *testing.T) {
	const name = "backbone.layers.0.mixer.in_proj.weight"
	for want, change := range map[string]func(tensors map[string]safetensors.Tensor, metadata map[string]string){
		"the metadata of the file do not say of which shape its 8-bit blocks are": func(_ map[string]safetensors.Tensor, m map[string]string) { delete(m, BlocksKey(name)) },
		`of shape "256", which is not the shape of a matrix`:                      func(_ map[string]safetensors.Tensor, m map[string]string) { m[BlocksKey(name)] = "256" },
		`of shape "-1 64", which is not`:                                          func(_ map[string]safetensors.Tensor, m map[string]string) { m[BlocksKey(name)] = "-1 64" },
		`of shape "4  4", which is not`:                                           func(_ map[string]safetensors.Tensor, m map[string]string) { m[BlocksKey(name)] = "4  4" },
		`of shape "9999999999 4", which is not`:                                   func(_ map[string]safetensors.Tensor, m map[string]string) { m[BlocksKey(name)] = "9999999999 4" },
		"is damaged: it has U8 [7 34], and 8-bit blocks of shape": func(tensors map[string]safetensors.Tensor, _ map[string]string) {
			x := tensors[name]
			x.Shape, x.Data = []int{7, 34}, make([]byte, 7*34)
			tensors[name] = x
		},
		"is damaged: it has F32 [2 17], and 8-bit blocks of shape": func(tensors map[string]safetensors.Tensor, _ map[string]string) {
			x := tensors[name]
			x.DType, x.Shape, x.Data = "F32", []int{2, 17}, make([]byte, 2*17*4)
			tensors[name] = x
		},
		"expected [": func(tensors map[string]safetensors.Tensor, m map[string]string) { // whole, and of another shape
			x := tensors[name]
			m[BlocksKey(name)], x.Shape, x.Data = "3 5", []int{3, 34}, make([]byte, 3*34)
			tensors[name] = x
		},
	} {
		c, err := inBlocks(t, change)
		if err == nil {
			c.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "here/model.safetensors: tensor "+name) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestBlocksConfig: the config may say that weights are in blocks, and no other way to
// quantize them.
func TestBlocksConfig(t *testing.T) {
	text, err := os.ReadFile("../testdata/golden/mamba-a/config.json")
	if err != nil {
		t.Fatal(err)
	}
	for method, ok := range map[string]bool{models.QuantMethod: true, "gptq": false} {
		c, err := models.ParseConfig("config.json", text)
		if err != nil {
			t.Fatal(err)
		}
		c.InBlocks()
		c.Value("quantization_config").(map[string]any)["quant_method"] = method
		again, err := c.Text()
		if err != nil || !json.Valid(again) {
			t.Fatal(err)
		}
		if c, err = models.ParseConfig("config.json", again); err != nil {
			t.Fatal(err)
		}
		m, err := models.Read(c)
		if (err == nil) != ok || err == nil && len(m.Unknown) > 0 {
			t.Errorf("%s: %v, %v", method, m, err)
		}
	}
}

// TestShapeOfBlocks: what is written is read.
func TestShapeOfBlocks(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 100 {
		var shape []int
		for range 2 + rng.IntN(3) {
			shape = append(shape, rng.IntN(1000))
		}
		note, bytes := BlocksShape(shape)
		got, ok := readShape(note)
		last := len(shape) - 1
		if !ok || !slices.Equal(got, shape) || !slices.Equal(bytes[:last], shape[:last]) || bytes[last] != (shape[last]+31)/32*34 {
			t.Fatalf("%v is %q, %v, %v", shape, note, bytes, got)
		}
	}
}

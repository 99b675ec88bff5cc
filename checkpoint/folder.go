package checkpoint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/krait-ml/krait/checkpoint/safetensors"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/models"
)

// Folder is a checkpoint as a Hugging Face folder.
type Folder struct {
	Pieces
	Config  []byte
	Tensors []Written[safetensors.Tensor]
	Notes   []string
}

// architectures are what transformers calls the families.
var architectures = map[string]string{
	"mamba": "MambaForCausalLM", "mamba2": "Mamba2ForCausalLM", "falcon_mamba": "FalconMambaForCausalLM", "jamba": "JambaForCausalLM", "falcon_h1": "FalconH1ForCausalLM",
	"granitemoehybrid": "GraniteMoeHybridForCausalLM", "nemotron_h": "NemotronHForCausalLM", "bamba": "BambaForCausalLM", "zamba": "ZambaForCausalLM", "zamba2": "Zamba2ForCausalLM",
	"lfm2": "Lfm2ForCausalLM", "lfm2_moe": "Lfm2MoeForCausalLM", "qwen3_next": "Qwen3NextForCausalLM", "qwen3_5_text": "Qwen3_5ForCausalLM", "qwen3_5_moe_text": "Qwen3_5MoeForCausalLM",
}

// Folder makes a Hugging Face folder of the checkpoint: names and config are those of
// transformers. Numbers stay in their formats, or all become f32 where wide is set; blocks become
// f32, which they are exactly, and A of a GGUF file becomes A_log.
func (c *Checkpoint) Folder(wide bool) (*Folder, error) {
	f := &Folder{}
	for _, name := range c.weights.Names() {
		a, _ := c.weights.Look(name)
		if c.Copied(name) {
			continue
		}
		if a.DType == graph.NoDType {
			f.Notes = append(f.Notes, fmt.Sprintf("tensor %s has no float format, and is left out", name))
			continue
		}
		if wide {
			a.DType = graph.F32
		}
		x := c.written(&f.Pieces, name, a)
		if mixer, ok := strings.CutSuffix(name, "in_proj_z.weight"); ok && c.has(mixer+"in_proj_ba.weight") {
			continue // with q, k and v
		}
		if mixer, ok := strings.CutSuffix(name, "in_proj_qkv.weight"); ok && c.has(mixer+"in_proj_ba.weight") {
			x = c.grouped(&f.Pieces, mixer, a)
		}
		if up, ok := halfOf(name); ok {
			x = c.joined(&f.Pieces, name, up, a)
		} else if gate, ok := strings.CutSuffix(name, ".up.weight"); ok {
			if _, there := c.weights.Look(gate + ".gate.weight"); there {
				continue
			}
		}
		f.Tensors = append(f.Tensors, x)
	}
	config := c.Model.Config()
	if config.Value("architectures") == nil && architectures[c.Model.Family] != "" {
		config.Set("architectures", []any{architectures[c.Model.Family]})
	}
	config.Delete("quantization_config") // blocks of all methods became f32
	for _, key := range []string{"dtype", "torch_dtype"} {
		if wide && config.Value(key) != nil {
			config.Set(key, "float32")
		}
	}
	if groups, ok := config.Value(models.NormGroupsKey).(float64); ok && groups > 1 {
		f.Notes = append(f.Notes, fmt.Sprintf("the gated norm is over %g groups of channels, as config.json says with the key %s, which is Krait's; transformers norms over all channels", groups, models.NormGroupsKey))
	}
	var err error
	f.Config, err = config.Text()
	return f, err
}

func (c *Checkpoint) has(name string) bool {
	_, ok := c.weights.Look(name)
	return ok
}

func (c *Checkpoint) written(p *Pieces, name string, a graph.Array) Written[safetensors.Tensor] {
	to := a.DType
	if to.Quantized() {
		to = graph.F32
	}
	t := safetensors.Tensor{Name: name, DType: strings.ToUpper(to.String()), Shape: a.Shape}
	make := func() ([]byte, error) {
		x, err := c.Tensor(name)
		if err != nil {
			return nil, err
		}
		return p.convert(x, to, nil, func(rows graph.Array, _ []float32) ([]byte, error) {
			made, err := rows.Convert(to)
			return made.Data, err
		})
	}
	if name == models.BackboneNames.Older {
		t.Name = models.BackboneNames.Prefix + models.BackboneNames.Embeddings
	}
	if g, ok := c.weights.(*ggufWeights); ok && strings.HasSuffix(name, ".A") {
		t.Name, t.DType = name+"_log", "F32"
		make = func() ([]byte, error) {
			x, err := c.Tensor(name)
			if err != nil {
				return nil, err
			}
			values := x.Float32s()
			if kept := keptRates(g.file, name, values); kept != nil {
				return bytesOf(kept), nil
			}
			return bytesOf(logs(values)), nil
		}
	}
	return Written[safetensors.Tensor]{t, nil, make}
}

// halfOf is the matrix that follows one which a GGUF file has of its own, and the family
// packed with it.
func halfOf(name string) (up string, ok bool) {
	under, ok := strings.CutSuffix(name, ".gate.weight")
	return under + ".up.weight", ok && (strings.HasSuffix(under, "shared_mlp") || strings.HasSuffix(under, "block_sparse_moe"))
}

// joined packs two matrices, or as many pairs of them, into one; in f32 where their formats
// differ.
func (c *Checkpoint) joined(p *Pieces, gate, up string, a graph.Array) Written[safetensors.Tensor] {
	if b, _ := c.weights.Look(up); b.DType != a.DType {
		a.DType = graph.F32
	}
	x, y := c.written(p, gate, a), c.written(p, up, a)
	x.Tensor.Name = strings.TrimSuffix(gate, "gate.weight") + "input_linear.weight"
	x.Tensor.Shape = slices.Clone(a.Shape)
	x.Tensor.Shape[len(a.Shape)-2] *= 2
	first := x.Make
	x.Make = func() ([]byte, error) {
		p, err := first()
		if err != nil {
			return nil, err
		}
		q, err := y.Make()
		if err != nil {
			return nil, err
		}
		pairs := 1
		if len(a.Shape) > 2 {
			pairs = a.Shape[0]
		}
		var out []byte
		line := len(p) / max(1, pairs)
		for i := range pairs {
			out = append(append(out, p[i*line:][:line]...), q[i*line:][:line]...)
		}
		return out, nil
	}
	return x
}

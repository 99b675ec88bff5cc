package checkpoint

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/krait-ml/krait/checkpoint/gguf"
	"github.com/krait-ml/krait/models"
)

// Written is a tensor of a file that is made of a checkpoint: what it is called, and what
// makes its data.
type Written[T any] struct {
	Tensor T        // without data
	From   []string // the tensors of the checkpoint, a matrix or all; nil: their columns move
	Make   func() ([]byte, error)
}

// GGUF is a checkpoint as a GGUF file.
type GGUF struct {
	Pieces
	Metadata []gguf.Pair // without those of the tokenizer
	Tensors  []Written[gguf.Tensor]
	Notes    []string // what other programs make otherwise of the file, or not at all
	Loss     Loss     // of the tensors that were made
	// Weighable is how many of these may have weights of columns, Unweighed how many had none.
	Weighable, Unweighed int
}

// ggufKeepRates are the keys, by layer, of A_log where -exp of it, which the format has,
// does not give it back to the bit.
const ggufKeepRates = "krait.A_log."

// GGUF converts the checkpoint to a GGUF file as llama.cpp's converter and quantizer do. Matrices
// have the formats of m, or if a row is not a whole number of blocks, others that llama.cpp takes.
// Vectors, convolutions, A, D and routers are F32. The key krait.config keeps the config.json for
// settings without a GGUF key.
func (c *Checkpoint) GGUF(name string, m Mixture) (*GGUF, error) {
	arch, ok := ggufFamilies[c.Model.Family]
	if !ok {
		return nil, fmt.Errorf("GGUF has no architecture for the family %s; it has one for %s", c.Model.Family, strings.Join(slices.Sorted(maps.Keys(ggufFamilies)), ", "))
	}
	if _, routed := c.weights.Look(ggufRouter(c)); routed && arch == "nemotron_h" {
		arch = "nemotron_h_moe"
	}
	a := ggufArchs[arch]
	a.beside(c)
	e := &ggufExport{Checkpoint: c, arch: arch, table: &a, mixture: m, config: c.Model.Config(), out: &GGUF{}, packed: map[string][]string{}, types: map[string]gguf.Type{}}
	e.put("general.architecture", arch)
	e.put("general.type", "model")
	e.put("general.name", name)
	e.put("general.file_type", m.file)
	e.put("general.quantization_version", uint32(2))
	if a.mtp != nil {
		_, err := c.MTP()
		e.mtp = err == nil
	}
	e.common()
	for _, k := range a.keys {
		if k.write != nil {
			k.write(e)
		}
	}
	e.tensors()
	e.mix()
	text, err := e.config.Text()
	e.put(ggufKeep, string(text))
	e.errs = append(e.errs, e.config.Err())
	return e.out, errors.Join(append(e.errs, err)...)
}

// nestedPrefix is what tensors begin with of a text model beside one of pictures.
const nestedPrefix = "model.language_model."

// beside renames the model's tensors where the checkpoint has another model beside it.
func (a *ggufArch) beside(c *Checkpoint) {
	if !slices.ContainsFunc(c.Names(), func(name string) bool { return strings.HasPrefix(name, nestedPrefix) }) {
		return
	}
	a.outer = maps.Clone(a.outer)
	for theirs, ours := range a.outer {
		if rest, ok := strings.CutPrefix(ours, a.prefix); ok {
			a.outer[theirs] = nestedPrefix + rest
		}
	}
	a.prefix = nestedPrefix
}

// ggufFamilies are the architectures of families.
var ggufFamilies = map[string]string{"mamba": "mamba", "falcon_mamba": "mamba", "mamba2": "mamba2", "jamba": "jamba", "falcon_h1": "falcon-h1", "granitemoehybrid": "granitehybrid", "nemotron_h": "nemotron_h",
	"lfm2": "lfm2", "lfm2_moe": "lfm2moe", "qwen3_next": "qwen3next", "qwen3_5_text": "qwen35", "qwen3_5_moe_text": "qwen35moe"}

// ggufRouter is the first router of the family that has an architecture of its own with
// experts.
func ggufRouter(c *Checkpoint) string {
	for _, name := range c.weights.Names() {
		if strings.HasSuffix(name, "mixer.gate.weight") {
			return name
		}
	}
	return ""
}

type ggufExport struct {
	*Checkpoint
	arch    string
	table   *ggufArch
	mixture Mixture
	types   map[string]gguf.Type // of tensors, where the mixture chose
	mtp     bool                 // an MTP head is written
	config  *models.Config
	out     *GGUF
	packed  map[string][]string                   // tensors of ours that become one, by its name
	not     []string                              // names of GGUF's that the model does not take, of two for the same
	scales  func(rest string, rows int) []float64 // by which rows are multiplied; nil: by nothing
	errs    []error
}

func (e *ggufExport) put(key string, v any) {
	e.out.Metadata = append(e.out.Metadata, gguf.Pair{Key: key, Value: v})
}
func (e *ggufExport) int(key string, n int) { e.put(e.arch+"."+key, uint32(n)) }
func (e *ggufExport) float(key string, v float64) {
	e.put(e.arch+"."+key, float32(v))
}
func (e *ggufExport) note(format string, v ...any) {
	e.out.Notes = append(e.out.Notes, fmt.Sprintf(format, v...))
}
func (e *ggufExport) fail(format string, v ...any) { e.errs = append(e.errs, fmt.Errorf(format, v...)) }

// shape is that of a tensor of the family in the first layer that has it; zeros where none
// has.
func (e *ggufExport) shape(rest string, axes int) []int {
	for i := range e.Model.Layers {
		if a, ok := e.weights.Look(fmt.Sprintf("%slayers.%d.%s", e.table.prefix, i, rest)); ok && len(a.Shape) >= axes {
			return a.Shape
		}
	}
	return make([]int, axes)
}

func (e *ggufExport) has(rest string) bool { return e.shape(rest, 1)[0] > 0 }

// embeddings is what the checkpoint calls them.
func (e *ggufExport) embeddings() string {
	if _, ok := e.weights.Look(models.BackboneNames.Older); ok {
		return models.BackboneNames.Older
	}
	return e.table.outer["token_embd.weight"]
}

func (e *ggufExport) outer() map[string]string {
	out := map[string]string{}
	for theirs, ours := range e.table.outer {
		out[ours] = theirs
	}
	out[models.BackboneNames.Older] = "token_embd.weight"
	return out
}

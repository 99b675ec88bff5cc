package checkpoint

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/krait-ml/krait/checkpoint/safetensors"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/models"
)

// Safetensors has no type for blocks. A matrix [n k] in 8-bit blocks is a tensor of U8, whose last
// axis has the bytes of a row's blocks, and the file's metadata say "q8:NAME": "n k".

// BlocksKey is where the metadata say the shape of a tensor in 8-bit blocks.
func BlocksKey(tensor string) string { return "q8:" + tensor }

// BlocksShape is what the metadata say of a tensor of a shape that is in 8-bit blocks,
// and the shape of its bytes.
func BlocksShape(shape []int) (note string, bytes []int) {
	note = strings.Trim(fmt.Sprint(shape), "[]")
	last := len(shape) - 1
	line := (shape[last] + graph.BlockLen - 1) / graph.BlockLen * graph.BlockBytes
	return note, append(slices.Clone(shape[:last]), line)
}

// blocks is a tensor as an array, of the shape that the metadata note.
func blocks(t safetensors.Tensor, note, from string) (graph.Array, error) {
	if note == "" {
		return graph.Array{}, fmt.Errorf("%s has dtype U8, and the metadata of the file do not say of which shape its 8-bit blocks are (%s); Krait reads F32, BF16, F16, F64, and U8 as krait quantize-weights writes it", from, BlocksKey(t.Name))
	}
	shape, ok := readShape(note)
	if !ok {
		return graph.Array{}, fmt.Errorf("%s: the metadata of the file say that it is 8-bit blocks of shape %q, which is not the shape of a matrix", from, note)
	}
	if _, want := BlocksShape(shape); t.DType != "U8" || !slices.Equal(t.Shape, want) {
		return graph.Array{}, fmt.Errorf("%s is damaged: it has %s %v, and 8-bit blocks of shape %v have U8 %v", from, t.DType, t.Shape, shape, want)
	}
	return graph.Array{DType: graph.Q8, Shape: shape, Data: t.Data, From: from}, nil
}

// readShape reads the shape of a matrix, or of several, of sizes that a tensor may have.
func readShape(note string) (shape []int, ok bool) {
	for size := range strings.SplitSeq(note, " ") {
		n, err := strconv.Atoi(size)
		if err != nil || n < 0 || n > models.MaxDim {
			return nil, false
		}
		shape = append(shape, n)
	}
	return shape, len(shape) > 1
}

// Matrices lists the tensors of the checkpoint whose blocks kernels can multiply with,
// and their shapes: those of matrices that are all multiplied with, some of them also
// looked up in. What chooses between experts is none: a choice jumps.
func (c *Checkpoint) Matrices() map[string][]int { return c.matrices(false) }

// matrices is Matrices, with those that are only looked up in where lookups is set.
func (c *Checkpoint) matrices(lookups bool) map[string][]int {
	matrices := graph.Matrices(c.Graph, lookups)
	out, not := map[string][]int{}, map[string]bool{}
	for _, p := range c.Graph.Leaves("param") {
		v := p.Results[0]
		ok := p.Storage.Perm == nil && v.Type.DType.Float() && slices.Contains(matrices, v)
		for _, piece := range p.Storage.Pieces {
			a, there := c.weights.Look(piece.Tensor)
			dims := v.Type.Dims
			if last := len(a.Shape) - 1; !ok || !there || a.DType == graph.NoDType || last < 1 || len(dims) < 2 || a.Shape[last] != dims[len(dims)-1].Len() {
				not[piece.Tensor] = true
			}
			out[piece.Tensor] = a.Shape
		}
	}
	for name := range not {
		delete(out, name)
	}
	return out
}

// Vocabulary lists the tensors with a row per token of the vocabulary: the embedding and the head.
func (c *Checkpoint) Vocabulary() map[string]bool {
	out := map[string]bool{}
	for _, v := range graph.Vocabulary(c.Graph) {
		for _, piece := range v.Def.Storage.Pieces {
			out[piece.Tensor] = true
		}
	}
	return out
}

package check

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/checkpoint/safetensors"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/graph"
)

// Sizes of what Record runs.
const recordSequences, recordTokens, recordSteps = 2, 12, 4

// Record writes a file of reference numbers as a device gives them, on one rank: for a prompt of
// random ids the logits and the residual stream after each layer, and the greedy continuation.
// Progress gets the number of tokens; it may be nil.
func Record(ctx context.Context, dir string, d exec.Device, path string, progress func(done, all int)) error {
	_, g, err := checkpoint.Describe(dir)
	if err != nil {
		return err
	}
	var layers []string
	for i := 0; ; i++ {
		name := fmt.Sprintf("layers.%d.h", i)
		if _, ok := g.Value(name); !ok {
			break
		}
		layers = append(layers, name)
	}
	m, err := krait.Open(dir, krait.Options{Device: d, Keep: layers})
	if err != nil {
		return err
	}
	defer m.Close()
	r := &recording{m: m, layers: layers, values: map[string][]float32{}, progress: progress}
	random := rand.New(rand.NewPCG(1, 1))
	for range recordSequences {
		ids := make([]int, recordTokens)
		for i := range ids {
			ids[i] = random.IntN(m.Vocab())
		}
		if err := r.sequence(ctx, ids); err != nil {
			return err
		}
	}
	return r.write(path)
}

// recording is the numbers of all sequences, one after another, by the names of the file.
type recording struct {
	m          *krait.Model
	layers     []string
	ids, after []int32
	values     map[string][]float32
	progress   func(done, all int)
	done       int // tokens
}

// fed counts tokens.
func (r *recording) fed(tokens int) {
	if r.done += tokens; r.progress != nil {
		r.progress(r.done, recordSequences*(recordTokens+recordSteps))
	}
}

func (r *recording) sequence(ctx context.Context, ids []int) error {
	s, err := r.m.NewSequence()
	if err != nil {
		return err
	}
	defer s.Close()
	all := make([]int, len(ids))
	for i, id := range ids {
		all[i] = i
		r.ids = append(r.ids, int32(id))
	}
	fed, err := s.Feed(ctx, ids, krait.Selection{Logits: all, Values: r.layers})
	if err != nil {
		return err
	}
	r.fed(len(ids))
	r.add("logits", fed.Logits)
	for i, name := range r.layers {
		r.add(fmt.Sprintf("layers.%d.out", i), fed.Values[name])
	}
	logits := fed.Logits[len(ids)-1]
	for range recordSteps {
		next := argmax(logits)
		r.after = append(r.after, int32(next))
		if fed, err = s.Feed(ctx, []int{next}, krait.Selection{}); err != nil {
			return err
		}
		r.fed(1)
		logits = fed.Logits[0]
		r.add("decode.logits", fed.Logits)
	}
	return nil
}

func (r *recording) add(name string, rows [][]float32) {
	r.values[name] = append(r.values[name], slices.Concat(rows...)...)
}

// write writes the file; prompt p is the only one.
func (r *recording) write(path string) error {
	ids := func(name string, v []int32, n int) safetensors.Tensor {
		var data []byte
		for _, id := range v {
			data = binary.LittleEndian.AppendUint32(data, uint32(id))
		}
		return safetensors.Tensor{Name: name, DType: "I32", Shape: []int{recordSequences, n}, Data: data}
	}
	list := []safetensors.Tensor{ids("p.input_ids", r.ids, recordTokens), ids("p.decode.ids", r.after, recordSteps)}
	for name, v := range r.values {
		tokens := recordTokens
		if name == "decode.logits" {
			tokens = recordSteps
		}
		a := graph.ArrayOf(v, recordSequences, tokens, len(v)/recordSequences/tokens)
		list = append(list, safetensors.Tensor{Name: "p." + name, DType: "F32", Shape: a.Shape, Data: a.Data})
	}
	return safetensors.WriteFile(path, list, nil)
}

// Package quantize writes checkpoints whose matrices are in 8-bit blocks.
package quantize

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/checkpoint/folder"
	"github.com/krait-ml/krait/checkpoint/safetensors"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/models"
)

// Made says what was made.
type Made struct {
	Family        string
	Matrices      int   // in blocks
	Others        int   // as they were
	Before, After int64 // bytes of tensors
}

// Write writes the checkpoint in from to the folder to, which must be new or empty, with all
// matrices that are multiplied with in 8-bit blocks where that makes them smaller. Tensors stay in
// files of the same names, whose copies of others are left out; config and tokenizer come along.
// Memory does not grow with the model. Progress, if it is not nil, is told the bytes written.
func Write(ctx context.Context, from, to string, progress func(done, total int64)) (*Made, error) {
	c, err := checkpoint.Open(from)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if q := c.Model.Config().Quantization(); q != nil {
		return nil, fmt.Errorf("%s: its weights are quantized already (%s); krait convert --type f32 makes a folder of it in f32", from, q.Method)
	}
	if info, err := os.Stat(from); err == nil && !info.IsDir() || !safetensors.InDir(from) {
		return nil, fmt.Errorf("%s: its weights are not in safetensors; krait convert makes a folder of it in which they are", from)
	}
	set, err := safetensors.OpenDir(from)
	if err != nil {
		return nil, err
	}
	defer set.Close()
	config, err := configOf(from)
	if err != nil {
		return nil, err
	}
	made, list, err := plan(c, set)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", from, err)
	}
	out, err := folder.New(to, made.After, "", "", false)
	if err != nil {
		return nil, err
	}
	defer out.End()
	w := folder.NewWriter(made.After, progress)
	for _, tensors := range list {
		err := out.Shard(namesOf(tensors), func(file *os.File) error { return write(ctx, w, file, tensors) })
		if err != nil {
			return nil, err
		}
	}
	if err := c.Intact(); err != nil {
		return nil, err
	}
	if err := folder.Companions(from, to); err != nil {
		return nil, err
	}
	return made, out.Finish(config)
}

// configOf is the config of the new folder.
func configOf(dir string) ([]byte, error) {
	c, err := models.ReadConfig(dir)
	if err != nil {
		return nil, err
	}
	c.InBlocks()
	return c.Text()
}

// tensor is one of the new files.
type tensor struct {
	safetensors.Tensor        // what is written; Data of blocks is not there
	from               source // of blocks
	note               string // of the metadata
}

// source is a matrix before it is in blocks.
type source = graph.Array

// plan lists the tensors of each new file, larger elements first.
func plan(c *checkpoint.Checkpoint, set *safetensors.Set) (*Made, [][]tensor, error) {
	made := &Made{Family: c.Model.Family}
	var list [][]tensor
	matrices := c.Matrices()
	for _, file := range set.Files() {
		var tensors []tensor
		for _, name := range file.Names() {
			if c.Copied(name) {
				continue
			}
			t, err := tensorOf(c, set, name, matrices[name])
			if err != nil {
				return nil, nil, err
			}
			made.Before += int64(len(t.Data) + len(t.from.Data))
			made.After += t.size()
			if tensors = append(tensors, t); t.note != "" {
				made.Matrices++
			} else {
				made.Others++
			}
		}
		slices.SortStableFunc(tensors, func(a, b tensor) int { return b.bytes() - a.bytes() })
		if len(tensors) > 0 {
			list = append(list, tensors)
		}
	}
	if made.Matrices == 0 {
		return nil, nil, fmt.Errorf("no matrix would be smaller in 8-bit blocks")
	}
	return made, list, nil
}

// tensorOf is a tensor of the checkpoint as it becomes; of a matrix the shape is given.
func tensorOf(c *checkpoint.Checkpoint, set *safetensors.Set, name string, shape []int) (tensor, error) {
	was, _ := set.Tensor(name)
	if set.Note(name, checkpoint.BlocksKey(name)) != "" || was.DType == "U8" {
		return tensor{}, fmt.Errorf("tensor %s is in 8-bit blocks already", name)
	}
	if shape == nil {
		return tensor{Tensor: was}, nil
	}
	note, bytes := checkpoint.BlocksShape(shape)
	t := tensor{Tensor: safetensors.Tensor{Name: name, DType: "U8", Shape: bytes}, note: note}
	var err error
	if t.from, err = c.Tensor(name); err != nil || t.size() >= int64(len(was.Data)) {
		return tensor{Tensor: was}, err
	}
	return t, nil
}

// size is the bytes that are written.
func (t *tensor) size() int64 {
	if t.note == "" {
		return int64(len(t.Data))
	}
	n := int64(1)
	for _, d := range t.Shape {
		n *= int64(d)
	}
	return n
}

// bytes is the size of an element, to which the files are aligned; 1 of blocks.
func (t *tensor) bytes() int {
	switch t.DType {
	case "F64", "I64", "U64":
		return 8
	case "F32", "I32", "U32":
		return 4
	case "F16", "BF16", "I16", "U16":
		return 2
	}
	return 1
}

func namesOf(tensors []tensor) []string {
	var out []string
	for _, t := range tensors {
		out = append(out, t.Name)
	}
	return out
}

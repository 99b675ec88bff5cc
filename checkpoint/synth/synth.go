// Package synth makes checkpoints with random weights: folders as those that
// people publish, of any size, to test and to measure without a download.
package synth

import (
	"cmp"
	"context"
	"fmt"
	"os"

	"github.com/krait-ml/krait/checkpoint/folder"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/models"
)

// Options say what to make.
type Options struct {
	Like   string // a published size, of [Sizes]
	Config []byte // or a config.json
	From   string // where Config comes from, for errors

	Layers int    // keep the first of the layers only; 0: all
	Vocab  int    // token ids; 0: as the config says
	DType  string // of the weights: f32, bf16 or f16, and of Graph fp8; empty: bf16
	Seed   uint64 // the same seed gives the same bytes

	Force    bool                    // write into a folder that has something in it
	Progress func(done, total int64) // of bytes; may be nil

	shard int64 // bytes of a file at most; 0: shardBytes
}

// Made says what was made.
type Made struct {
	Family            string
	Parameters, Bytes int64
}

// Write makes the checkpoint in dir: config.json, and model.safetensors or shards with an index.
// All files are written beside their places and renamed when all are there. Weights are made as
// they are written: memory does not grow with the model.
func Write(ctx context.Context, dir string, o Options) (*Made, error) {
	c, m, err := o.read()
	if err != nil {
		return nil, err
	}
	tensors, err := tensorsOfModel(m)
	if err != nil {
		return nil, err
	}
	config, err := c.Text()
	if err != nil {
		return nil, err
	}
	made := &Made{Family: m.Family}
	for i := range tensors {
		made.Parameters += tensors[i].elems()
		made.Bytes += tensors[i].bytes(o.format())
	}
	f, err := folder.New(dir, made.Bytes, ", or make fewer --layers", "--force", o.Force)
	if err != nil {
		return nil, err
	}
	defer f.End()
	w := &writer{folder.NewWriter(made.Bytes, o.Progress), o.format(), o.Seed}
	for _, s := range shards(tensors, o.format(), o.shard) {
		if err := f.Shard(namesOf(s), func(file *os.File) error { return w.write(ctx, file, s) }); err != nil {
			return nil, err
		}
	}
	return made, f.Finish(config)
}

// tensorsOfModel lists the tensors of a model, and of the MTP head that its config names.
func tensorsOfModel(m *models.Model) ([]tensor, error) {
	g, err := m.Graph(nil)
	if err != nil {
		return nil, err
	}
	if !m.HasMTP() {
		return tensorsOf(g)
	}
	head, err := m.MTP(nil)
	if err != nil {
		return nil, err
	}
	return tensorsOf(g, head)
}

// Graph is the graph of what Write would make.
func Graph(o Options) (*graph.Graph, error) {
	dtype := o.DType
	if dtype == models.FP8 {
		o.DType = ""
	}
	_, m, err := o.read()
	if err != nil {
		return nil, err
	}
	return m.GraphIn(cmp.Or(dtype, "bf16"))
}

func (o *Options) format() graph.DType {
	if o.DType == "" {
		return graph.BF16
	}
	d, _ := graph.ParseDType(o.DType) // read has looked at it
	return d
}

// names are what config.json and safetensors call formats.
var names = map[graph.DType][2]string{graph.F32: {"float32", "F32"}, graph.BF16: {"bfloat16", "BF16"}, graph.F16: {"float16", "F16"}}

// read reads the config and changes it as the options say.
func (o *Options) read() (*models.Config, *models.Model, error) {
	if _, ok := names[o.format()]; !ok {
		return nil, nil, fmt.Errorf("dtype is %q; it must be f32, bf16 or f16", o.DType)
	}
	text, keys, path := o.Config, map[string]any(nil), o.From
	if o.Like != "" {
		var err error
		if text, keys, err = size(o.Like); err != nil {
			return nil, nil, err
		}
		path = o.Like
	}
	c, err := models.ParseConfig(path, text)
	if err != nil {
		return nil, nil, err
	}
	for k, v := range keys {
		if n, ok := v.(int); ok {
			v = float64(n) // as JSON has it
		}
		c.Set(k, v)
	}
	if o.Vocab > 0 {
		c.Set("vocab_size", float64(o.Vocab))
	}
	c.Set("torch_dtype", names[o.format()][0])
	if o.Layers > 0 {
		if err := c.Cut(o.Layers); err != nil {
			return nil, nil, err
		}
	}
	m, err := models.Read(c)
	return c, m, err
}

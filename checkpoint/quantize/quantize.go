// Package quantize writes folders whose matrices are in 8 bits: Krait's 8-bit blocks, or FP8.
package quantize

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/checkpoint/folder"
	"github.com/krait-ml/krait/checkpoint/safetensors"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/models"
)

// Made says what was made.
type Made struct {
	Family        string
	Matrices      int     // in 8 bits
	Others        int     // as they were
	Before, After int64   // bytes of tensors
	Loss          float64 // of the matrices: the relative root mean square error
}

// kind is a format of 8 bits.
type kind struct {
	// config says in the config which modules have matrices that are left in floats.
	config func(c *models.Config, left []string)
	// tensors are what a matrix becomes, whose loss they count.
	tensors func(from graph.Array, name string, loss *checkpoint.Loss) []tensor
	whole   bool // it is for the embedding and the head, too
}

// kinds are the formats, by name.
var kinds = map[string]kind{
	"q8":  {func(c *models.Config, _ []string) { c.InBlocks() }, inBlocks, true},
	"fp8": {func(c *models.Config, left []string) { c.InFP8(fp8Block, left) }, inFP8, false},
}

// Kinds are the names of the formats.
func Kinds() []string { return slices.Sorted(maps.Keys(kinds)) }

// Write writes the checkpoint in from to the folder to, which must be new or empty, with all
// matrices that are multiplied with in a format of [Kinds] where that makes them smaller. Tensors
// stay in files of the same names, whose copies of others are left out; config and tokenizer come
// along. Memory does not grow with the model. Progress, if it is not nil, is told the bytes
// written.
func Write(ctx context.Context, from, to, format string, progress func(done, total int64)) (*Made, error) {
	k, ok := kinds[format]
	if !ok {
		return nil, fmt.Errorf("format %q; it must be one of %s", format, strings.Join(Kinds(), ", "))
	}
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
	p := &plan{kind: k, checkpoint: c, set: set, matrices: c.Matrices(), made: &Made{Family: c.Model.Family}}
	if !k.whole {
		vocabulary := c.Vocabulary()
		maps.DeleteFunc(p.matrices, func(name string, _ []int) bool { return vocabulary[name] })
	}
	list, err := p.files()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", from, err)
	}
	config, err := p.config(from)
	if err != nil {
		return nil, err
	}
	out, err := folder.New(to, p.made.After, "", "", false)
	if err != nil {
		return nil, err
	}
	defer out.End()
	w := folder.NewWriter(p.made.After, progress)
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
	p.made.Loss = p.loss.Relative()
	return p.made, out.Finish(config)
}

// plan is what a folder becomes.
type plan struct {
	kind       kind
	checkpoint *checkpoint.Checkpoint
	set        *safetensors.Set
	matrices   map[string][]int // that may become smaller
	left       []string         // modules of matrices that stay as they are
	made       *Made
	loss       checkpoint.Loss
}

// config is the config of the new folder.
func (p *plan) config(dir string) ([]byte, error) {
	c, err := models.ReadConfig(dir)
	if err != nil {
		return nil, err
	}
	slices.Sort(p.left)
	p.kind.config(c, p.left)
	return c.Text()
}

// files lists the tensors of each new file, larger elements first.
func (p *plan) files() (list [][]tensor, err error) {
	for _, file := range p.set.Files() {
		var tensors []tensor
		for _, name := range file.Names() {
			if p.checkpoint.Copied(name) {
				continue
			}
			was, become, err := p.tensor(name)
			if err != nil {
				return nil, err
			}
			p.made.Before += int64(len(was.Data))
			for i := range become {
				p.made.After += become[i].size()
			}
			tensors = append(tensors, become...)
		}
		slices.SortStableFunc(tensors, func(a, b tensor) int { return b.bytes() - a.bytes() })
		if len(tensors) > 0 {
			list = append(list, tensors)
		}
	}
	if p.made.Matrices == 0 {
		return nil, fmt.Errorf("no matrix would be smaller in 8 bits")
	}
	return list, nil
}

// tensor is a tensor of the folder, and what it becomes.
func (p *plan) tensor(name string) (was safetensors.Tensor, become []tensor, err error) {
	was, _ = p.set.Tensor(name)
	if p.set.Note(name, checkpoint.BlocksKey(name)) != "" || was.DType == "U8" {
		return was, nil, fmt.Errorf("tensor %s is in 8-bit blocks already", name)
	}
	if p.matrices[name] != nil {
		from, err := p.checkpoint.Tensor(name)
		if err != nil {
			return was, nil, err
		}
		size := int64(0)
		become = p.kind.tensors(from, name, &p.loss)
		for i := range become {
			size += become[i].size()
		}
		if size < int64(len(was.Data)) {
			p.made.Matrices++
			return was, become, nil
		}
	}
	p.made.Others++
	if module, ok := strings.CutSuffix(name, ".weight"); ok && len(was.Shape) == 2 {
		p.left = append(p.left, module)
	}
	return was, []tensor{{Tensor: was}}, nil
}

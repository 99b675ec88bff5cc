// Package convert writes checkpoints in other formats.
package convert

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/checkpoint/folder"
	"github.com/krait-ml/krait/checkpoint/gguf"
	"github.com/krait-ml/krait/checkpoint/imatrix"
	"github.com/krait-ml/krait/checkpoint/safetensors"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/files"
	"github.com/krait-ml/krait/text/tokenizer"
)

// Made says what was made.
type Made struct {
	Family  string
	Tensors int
	Bytes   int64    // of the tensors
	Notes   []string // differences from the source, for the user
	Loss    float64  // of matrices that became blocks: the relative root mean square error
}

// Types are the formats of a GGUF file's matrices, by name.
func Types() []string { return slices.Sorted(maps.Keys(checkpoint.Mixtures)) }

// Weighted are those of Types that take heed of an importance matrix.
func Weighted() []string {
	return slices.DeleteFunc(Types(), func(name string) bool {
		d := checkpoint.Mixtures[name].Base.DType()
		return d == graph.Q8 || !d.Quantized()
	})
}

// Write converts the checkpoint at from into the new path to: a GGUF file if the path ends in
// .gguf, otherwise a Hugging Face folder. Kind is the format of a GGUF file's matrices, a key of
// checkpoint.Mixtures; by default that of the checkpoint's embedding. A folder keeps the formats of
// numbers, or has all in f32 if kind is that. The output is complete
// or absent. Write
// calls progress, if it is not nil, with the bytes written.
func Write(ctx context.Context, from, to, kind string, progress func(done, total int64)) (*Made, error) {
	return WriteWeighted(ctx, from, to, kind, nil, progress)
}

// WriteWeighted is [Write] to a GGUF file whose matrices are rounded with regard to an importance
// matrix; nil: to none.
func WriteWeighted(ctx context.Context, from, to, kind string, importance *imatrix.Matrix, progress func(done, total int64)) (*Made, error) {
	c, err := checkpoint.Open(from)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	w := &writer{ctx: ctx, from: from, to: to, progress: progress, importance: importance}
	var made *Made
	if filepath.Ext(to) == ".gguf" {
		made, err = w.gguf(c, kind)
	} else {
		made, err = w.folder(c, kind)
	}
	if err != nil {
		return nil, err
	}
	made.Family = c.Model.Family
	return made, nil
}

type writer struct {
	ctx         context.Context
	from, to    string
	progress    func(done, total int64)
	done, total int64
	made        int // bytes of a tensor that are counted and not written
	intact      func() error
	importance  *imatrix.Matrix
}

// add counts n more bytes as written. It returns an error if the context is done or the source
// files have changed.
func (w *writer) add(n int) error {
	if w.done += int64(n); w.progress != nil {
		w.progress(w.done, w.total)
	}
	return errors.Join(w.ctx.Err(), w.intact())
}

// tell counts the bytes of a piece that was converted.
func (w *writer) tell(n int) error {
	w.made += n
	return w.add(n)
}

// gguf writes a GGUF file.
func (w *writer) gguf(c *checkpoint.Checkpoint, kind string) (*Made, error) {
	if kind == "" {
		kind = like(c)
	}
	m, ok := checkpoint.Mixtures[kind]
	if !ok {
		return nil, fmt.Errorf("--type is %s; it must be one of %s", kind, strings.Join(Types(), ", "))
	}
	if w.importance != nil {
		if !slices.Contains(Weighted(), kind) {
			return nil, fmt.Errorf("an importance matrix does nothing to %s; it is for --type %s", kind, strings.Join(Weighted(), ", "))
		}
		m = m.Weighted(w.importance.Weights)
	}
	if _, err := os.Lstat(w.to); !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s is there already; name another file", w.to)
	}
	name := strings.TrimSuffix(filepath.Base(w.to), ".gguf")
	g, err := c.GGUF(name, m)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", w.from, err)
	}
	g.Tell = w.tell
	made := &Made{Tensors: len(g.Tensors), Notes: g.Notes}
	if m := w.importance; m != nil { // as llama-quantize does
		g.Metadata = append(g.Metadata, gguf.Pair{Key: "quantize.imatrix.entries_count", Value: int32(len(m.Entries))}, gguf.Pair{Key: "quantize.imatrix.chunks_count", Value: int32(m.Chunks)})
		if len(m.Datasets) > 0 {
			g.Metadata = append(g.Metadata, gguf.Pair{Key: "quantize.imatrix.dataset", Value: m.Datasets[0]})
		}
	}
	metadata, note, err := w.vocabulary(c.Model.Vocab)
	if err != nil {
		return nil, err
	}
	if note != "" {
		made.Notes = append(made.Notes, note)
	}
	var tensors []gguf.Tensor
	for _, x := range g.Tensors {
		tensors = append(tensors, x.Tensor)
	}
	header, begins, err := gguf.Header(append(g.Metadata, metadata...), tensors)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", w.to, err)
	}
	end := int64(len(header))
	for i, x := range tensors {
		size, _ := x.Type.Size(x.Shape) // Header looked
		end = begins[i] + int64(size)
		w.total += int64(size)
	}
	made.Bytes, w.intact = w.total, c.Intact
	if err := w.add(0); err != nil {
		return nil, err
	}
	err = w.file(func(f *os.File) error {
		if _, err := f.Write(header); err != nil {
			return err
		}
		for i, x := range g.Tensors {
			if err := w.at(f, begins[i], x.Make); err != nil {
				return err
			}
		}
		return f.Truncate((end + 31) / 32 * 32)
	})
	made.Loss = g.Loss.Relative()
	if g.Unweighed > 0 {
		made.Notes = append(made.Notes, fmt.Sprintf("%d of %d matrices are not in the importance matrix, and were rounded without", g.Unweighed, g.Weighable))
	}
	return made, err
}

// writeBytes is how much is written at a time.
const writeBytes = 16 << 20

// at writes what make makes at a place of the file. Bytes count once: as they are converted, or
// else as they are written.
func (w *writer) at(f *os.File, place int64, make func() ([]byte, error)) error {
	w.made = 0
	return files.Guard(func() error {
		data, err := make()
		if err != nil {
			return err
		}
		for part := range slices.Chunk(data, writeBytes) {
			if _, err := f.WriteAt(part, place); err != nil {
				return err
			}
			counted := min(w.made, len(part))
			w.made -= counted
			if err := w.add(len(part) - counted); err != nil {
				return err
			}
			place += int64(len(part))
		}
		return nil
	})
}

// file writes the new file, in a temporary one until it is whole.
func (w *writer) file(write func(f *os.File) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(w.to), "."+filepath.Base(w.to)+".*.tmp")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // which fails where it was renamed
	err = write(f)
	if err == nil {
		err = f.Chmod(0o644) // temporary files are private
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), w.to)
}

// like is the format of a checkpoint's embedding.
func like(c *checkpoint.Checkpoint) string {
	for _, n := range c.Graph.Nodes {
		if n.Op.Name == "embedding" {
			for _, v := range n.Args {
				switch v.Type.DType {
				case graph.F16, graph.BF16:
					return v.Type.DType.String()
				case graph.Q8:
					return "q8_0"
				}
			}
		}
	}
	return "f32"
}

// vocabulary is the tokenizer as metadata: its files as they are, and the lists that other
// programs read, where these can say what the files do.
func (w *writer) vocabulary(vocab int) (out []gguf.Pair, note string, err error) {
	data, config, err := w.tokenizer()
	if err != nil {
		return nil, "", err
	}
	none := []gguf.Pair{{Key: "tokenizer.ggml.model", Value: "no_vocab"}}
	if data == nil {
		return none, w.untokenized(vocab), nil
	}
	v, err := tokenizer.VocabularyOf(data, config)
	if err == nil && len(v.Tokens) > vocab {
		err = fmt.Errorf("tokenizer: %d tokens, and the model's vocabulary has %d", len(v.Tokens), vocab)
	}
	if err != nil {
		note, out = fmt.Sprintf("other programs cannot have the tokenizer (%v); Krait reads its files from the metadata", err), none
	} else {
		v.Fill(vocab)
		v.Metadata(func(key string, value any) { out = append(out, gguf.Pair{Key: key, Value: value}) })
	}
	out = append(out, gguf.Pair{Key: tokenizer.FileKey, Value: string(data)})
	if config != nil {
		out = append(out, gguf.Pair{Key: tokenizer.ConfigKey, Value: string(config)})
	}
	return out, note, nil
}

// tokenizer returns the tokenizer files of the checkpoint, or those that its GGUF metadata stands
// for; nil if it has no tokenizer.
func (w *writer) tokenizer() (data, config []byte, err error) {
	file, err := checkpoint.GGUFAt(w.from)
	if err != nil {
		return nil, nil, err
	}
	if file == "" {
		read := func(name string, limit int64) []byte {
			data, err2 := files.Read(filepath.Join(w.from, name), limit)
			if !errors.Is(err2, os.ErrNotExist) {
				err = errors.Join(err, err2)
			}
			return data
		}
		data, config = read("tokenizer.json", files.Tokenizer), read("tokenizer_config.json", files.Config)
		return data, config, err
	}
	f, err := gguf.Open(file)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	return tokenizer.FilesFrom(f.Value)
}

// untokenized is the note on a source without a tokenizer, unless its tokens are bytes.
func (w *writer) untokenized(vocab int) string {
	if vocab == tokenizer.ByteVocab {
		return ""
	}
	return fmt.Sprintf("%s has no tokenizer, so %s takes token ids only", w.from, w.to)
}

// shardBytes is how large a file of a folder's weights becomes.
const shardBytes = 5 << 30

// folder writes a Hugging Face folder.
func (w *writer) folder(c *checkpoint.Checkpoint, kind string) (*Made, error) {
	if kind != "" && kind != "f32" {
		return nil, fmt.Errorf("--type %s is a format of a GGUF file; %s does not end in .gguf, and becomes a folder, in which numbers keep their formats or become f32", kind, w.to)
	}
	f, err := c.Folder(kind == "f32")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", w.from, err)
	}
	f.Tell = w.tell
	made := &Made{Tensors: len(f.Tensors), Notes: f.Notes}
	var shards [][]checkpoint.Written[safetensors.Tensor]
	room := int64(0)
	for _, x := range f.Tensors {
		size := sizeOf(x.Tensor)
		if w.total += size; room < size {
			shards, room = append(shards, nil), shardBytes
		}
		room -= size
		shards[len(shards)-1] = append(shards[len(shards)-1], x)
	}
	made.Bytes, w.intact = w.total, c.Intact
	if err := w.add(0); err != nil {
		return nil, err
	}
	data, config, err := w.tokenizer()
	if err != nil {
		made.Notes = append(made.Notes, fmt.Sprintf("the folder has no tokenizer: %v", err))
	} else if note := w.untokenized(c.Model.Vocab); data == nil && note != "" {
		made.Notes = append(made.Notes, note)
	}
	out, err := folder.New(w.to, w.total, "", "", false)
	if err != nil {
		return nil, err
	}
	defer out.End()
	for _, shard := range shards {
		if err := w.shard(out, shard); err != nil {
			return nil, err
		}
	}
	if info, err := os.Stat(w.from); err == nil && info.IsDir() {
		if err := folder.Companions(w.from, w.to); err != nil {
			return nil, err
		}
	}
	for name, text := range map[string][]byte{"tokenizer.json": data, "tokenizer_config.json": config} {
		if text != nil {
			if err := files.Write(filepath.Join(w.to, name), text); err != nil {
				return nil, err
			}
		}
	}
	return made, out.Finish(f.Config)
}

func (w *writer) shard(out *folder.Folder, list []checkpoint.Written[safetensors.Tensor]) error {
	var names []string
	var tensors []safetensors.Tensor
	for _, x := range list {
		names, tensors = append(names, x.Tensor.Name), append(tensors, x.Tensor)
	}
	header, begins, err := safetensors.Header(tensors, map[string]string{"format": "pt"})
	if err != nil {
		return err
	}
	return out.Shard(names, func(f *os.File) error {
		if _, err := io.Copy(f, strings.NewReader(string(header))); err != nil {
			return err
		}
		for i, x := range list {
			if err := w.at(f, begins[i], x.Make); err != nil {
				return err
			}
		}
		return nil
	})
}

func sizeOf(t safetensors.Tensor) int64 {
	n := map[string]int64{"F64": 8, "F32": 4, "F16": 2, "BF16": 2}[t.DType]
	for _, d := range t.Shape {
		n *= int64(d)
	}
	return n
}

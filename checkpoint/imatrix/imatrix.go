// Package imatrix reads and writes importance matrices in llama.cpp's formats.
package imatrix

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/krait-ml/krait/checkpoint/gguf"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/files"
)

// Matrix is how large the inputs of a model's matrices are on a text.
type Matrix struct {
	Datasets    []string // the texts
	Chunks      int
	ChunkTokens int
	Entries     map[string]*Entry // by tensor of the GGUF file
}

// Entry is the inputs of a matrix [rows cols], or of several, such as experts.
type Entry struct {
	Sums   []float32 // of squares [matrices cols]
	Counts []float32 // tokens [matrices]
}

// Add counts an input of matrix k.
func (e *Entry) Add(k int, x []float32) {
	to := e.Sums[k*len(x):][:len(x)]
	for j, v := range x {
		to[j] += v * v
	}
	e.Counts[k]++
}

// Weights are the mean squares of a tensor's inputs, for matrices of cols columns, 1 for a matrix
// that had none; nil if the matrix has no entry.
func (m *Matrix) Weights(tensor string, matrices, cols int) ([]float32, error) {
	e := m.Entries[tensor]
	if e == nil {
		return nil, nil
	}
	if len(e.Sums) != matrices*cols {
		return nil, fmt.Errorf("%s has %d columns in the importance matrix and %d in the model; it is of another model", tensor, len(e.Sums), matrices*cols)
	}
	out := make([]float32, len(e.Sums))
	each := len(e.Sums) / len(e.Counts)
	for i, v := range e.Sums {
		if out[i] = 1; e.Counts[i/each] > 0 {
			out[i] = v / e.Counts[i/each]
		}
	}
	return out, nil
}

// The keys of the metadata, and how the names of tensors end.
const (
	datasets, chunkCount, chunkSize = "imatrix.datasets", "imatrix.chunk_count", "imatrix.chunk_size"

	sums, counts = ".in_sum2", ".counts"
)

// Write writes a GGUF file as llama-imatrix does.
func (m *Matrix) Write(w io.Writer) error {
	var tensors []gguf.Tensor
	for _, name := range slices.Sorted(maps.Keys(m.Entries)) {
		e := m.Entries[name]
		n := len(e.Counts)
		tensors = append(tensors,
			gguf.Tensor{Name: name + sums, Type: gguf.F32, Shape: []int{n, len(e.Sums) / n}, Data: graph.ArrayOf(e.Sums).Data},
			gguf.Tensor{Name: name + counts, Type: gguf.F32, Shape: []int{n, 1}, Data: graph.ArrayOf(e.Counts).Data})
	}
	return gguf.Write(w, []gguf.Pair{
		{Key: "general.type", Value: "imatrix"}, {Key: datasets, Value: m.Datasets},
		{Key: chunkCount, Value: uint32(m.Chunks)}, {Key: chunkSize, Value: uint32(m.ChunkTokens)},
	}, tensors)
}

// Read reads a GGUF file, or a .dat file of earlier versions.
func Read(path string) (m *Matrix, err error) {
	head := make([]byte, 4)
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	_, err = io.ReadFull(f, head)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("%s: not an importance matrix: %w", path, err)
	}
	if string(head) == "GGUF" {
		m, err = readGGUF(path)
	} else {
		m, err = readDat(path)
	}
	if err == nil {
		err = m.check()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

// check refuses sums that weigh nothing.
func (m *Matrix) check() error {
	if len(m.Entries) == 0 {
		return errors.New("it has no entries; krait calibrate importance and llama-imatrix write some")
	}
	for _, name := range slices.Sorted(maps.Keys(m.Entries)) {
		e := m.Entries[name]
		if len(e.Counts) == 0 || len(e.Sums) == 0 || len(e.Sums)%len(e.Counts) != 0 {
			return fmt.Errorf("%s has %d sums of %d matrices", files.Quote(name), len(e.Sums), len(e.Counts))
		}
		for _, v := range slices.Concat(e.Sums, e.Counts) {
			if !(v >= 0) || math.IsInf(float64(v), 0) {
				return fmt.Errorf("%s has the value %g; sums and counts must be finite, and not below 0", files.Quote(name), v)
			}
		}
	}
	return nil
}

func readGGUF(path string) (*Matrix, error) {
	f, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	m := &Matrix{Entries: map[string]*Entry{}}
	if v, ok := f.Value(datasets); ok {
		m.Datasets, _ = v.([]string)
	}
	for key, to := range map[string]*int{chunkCount: &m.Chunks, chunkSize: &m.ChunkTokens} {
		if v, ok := f.Value(key); ok {
			n, _ := v.(uint32)
			*to = int(n)
		}
	}
	for _, name := range f.Names() {
		tensor, ok := strings.CutSuffix(name, sums)
		if !ok {
			continue
		}
		a, _ := f.Tensor(name)
		b, ok := f.Tensor(tensor + counts)
		if !ok || a.Type != gguf.F32 || b.Type != gguf.F32 {
			return nil, fmt.Errorf("%s needs sums and counts in F32", files.Quote(tensor))
		}
		e := &Entry{}
		err := files.Guard(func() error {
			x, err := a.Float32s()
			y, err2 := b.Float32s()
			e.Sums, e.Counts = x, y
			return errors.Join(err, err2)
		})
		if err != nil {
			return nil, err
		}
		m.Entries[tensor] = e
	}
	return m, nil
}

// datLimit bounds a .dat file: mixtures of many experts have some hundred MB.
const datLimit = 4 << 30

// readDat reads the format of before 2025: a count; for each tensor a name, a number of calls and
// the sums, which are means times the calls; then the chunks and the text.
func readDat(path string) (*Matrix, error) {
	data, err := files.Read(path, datLimit)
	if err != nil {
		return nil, err
	}
	bad := errors.New("it is neither a GGUF file nor a whole .dat file of llama-imatrix")
	number := func() (n int, err error) {
		if len(data) < 4 {
			return 0, bad
		}
		n, data = int(int32(binary.LittleEndian.Uint32(data))), data[4:]
		return n, nil
	}
	bytes := func(unit int) ([]byte, error) {
		n, err := number()
		if err != nil || n < 1 || n > len(data)/unit {
			return nil, bad
		}
		b := data[:n*unit]
		data = data[n*unit:]
		return b, nil
	}
	m := &Matrix{Entries: map[string]*Entry{}}
	n, err := number()
	for range n {
		name, err := bytes(1)
		if err != nil {
			return nil, err
		}
		calls, err := number()
		if err != nil {
			return nil, err
		}
		values, err := bytes(4)
		if err != nil {
			return nil, err
		}
		x := graph.Array{DType: graph.F32, Shape: []int{len(values) / 4}, Data: values}
		m.Entries[string(name)] = &Entry{Sums: x.Float32s(), Counts: []float32{float32(max(calls, 1))}}
	}
	if len(data) > 0 && err == nil {
		m.Chunks, _ = number()
		if text, err := bytes(1); err == nil {
			m.Datasets = []string{string(text)}
		}
	}
	return m, err
}

package imatrix

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/krait-ml/krait/graph"
)

func some() *Matrix {
	m := &Matrix{Datasets: []string{"text"}, Chunks: 3, ChunkTokens: 512, Entries: map[string]*Entry{
		"blk.0.ffn_up_exps.weight": {Sums: []float32{0, 0, 0, 6, 8, 10}, Counts: []float32{0, 2}},
		"output.weight":            {Sums: make([]float32, 3), Counts: make([]float32, 1)},
	}}
	m.Entries["output.weight"].Add(0, []float32{1, -2, 3})
	m.Entries["output.weight"].Add(0, []float32{3, 2, 1})
	return m
}

func file(t testing.TB, data []byte) string {
	path := filepath.Join(t.TempDir(), "imatrix")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestWeights: sums come back from files, as means over the tokens; a matrix without tokens weighs
// all the same.
func TestWeights(t *testing.T) {
	var b bytes.Buffer
	if err := some().Write(&b); err != nil {
		t.Fatal(err)
	}
	m, err := Read(file(t, b.Bytes()))
	if err != nil || !reflect.DeepEqual(m, some()) {
		t.Fatalf("%+v, %v", m, err)
	}
	got, err := m.Weights("blk.0.ffn_up_exps.weight", 2, 3)
	if want := []float32{1, 1, 1, 3, 4, 5}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	got, err = m.Weights("output.weight", 1, 3)
	if want := []float32{5, 4, 5}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	if got, err := m.Weights("token_embd.weight", 1, 3); got != nil || err != nil {
		t.Errorf("of no entry: %v, %v", got, err)
	}
	if _, err := m.Weights("output.weight", 1, 4); err == nil || !strings.Contains(err.Error(), "output.weight has 3 columns in the importance matrix and 4 in the model") {
		t.Error(err)
	}
}

// dat is a file of before 2025.
func dat() []byte {
	b := binary.LittleEndian.AppendUint32(nil, 1)
	b = append(binary.LittleEndian.AppendUint32(b, 13), "output.weight"...)
	b = binary.LittleEndian.AppendUint32(b, 2)
	b = append(binary.LittleEndian.AppendUint32(b, 3), graph.ArrayOf([]float32{10, 8, 10}).Data...)
	b = binary.LittleEndian.AppendUint32(b, 7)
	return append(binary.LittleEndian.AppendUint32(b, 4), "text"...)
}

func TestDat(t *testing.T) {
	m, err := Read(file(t, dat()))
	if err != nil || m.Chunks != 7 || !reflect.DeepEqual(m.Datasets, []string{"text"}) {
		t.Fatalf("%+v, %v", m, err)
	}
	if got, _ := m.Weights("output.weight", 1, 3); !reflect.DeepEqual(got, []float32{5, 4, 5}) {
		t.Errorf("%v", got)
	}
	for n := range len(dat()) - 12 {
		if _, err := Read(file(t, dat()[:n])); err == nil {
			t.Errorf("%d bytes of a file are read", n)
		}
	}
}

// FuzzRead: damaged files of both formats are errors, or give weights that are finite.
func FuzzRead(f *testing.F) {
	var b bytes.Buffer
	if err := some().Write(&b); err != nil {
		f.Fatal(err)
	}
	for _, data := range [][]byte{b.Bytes(), dat()} {
		f.Add(data)
		f.Add(data[:len(data)/2])
	}
	f.Add(binary.LittleEndian.AppendUint32(nil, 1<<31-1))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Read(file(t, data))
		if err != nil {
			return
		}
		for name, e := range m.Entries {
			n := len(e.Counts)
			w, err := m.Weights(name, n, len(e.Sums)/n)
			for _, v := range w {
				if err != nil || v != v || v < 0 {
					t.Fatalf("%s: %v, %v", name, w, err)
				}
			}
		}
	})
}

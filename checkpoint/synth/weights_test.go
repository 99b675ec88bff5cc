package synth_test

import (
	"bytes"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/checkpoint/synth"
	"github.com/krait-ml/krait/graph"
)

// TestWeights: the weights of a graph are those of the folder of the same seed, byte by byte.
func TestWeights(t *testing.T) {
	list := []synth.Options{{Like: "mamba-130m", Layers: 1, Vocab: 2000}} // a table of two chunks
	for from, config := range configs(t) {
		list = append(list, synth.Options{Config: config, From: from})
	}
	for _, o := range list {
		dir := filepath.Join(t.TempDir(), "model")
		o.DType, o.Seed = "f32", 3
		write(t, dir, o)
		c, err := checkpoint.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		weights := synth.Weights(c.Graph, 3)
		for _, name := range c.Names() {
			want, err1 := c.Tensor(name)
			got, err2 := weights(name)
			if err1 != nil || err2 != nil || got.DType != want.DType || !slices.Equal(got.Shape, want.Shape) || !bytes.Equal(got.Data, want.Data) {
				t.Errorf("%s: tensor %s is %s %v, want %s %v (%v, %v)", o.Like+o.From, name, got.DType, got.Shape, want.DType, want.Shape, err1, err2)
			}
		}
	}
}

// TestOwnGraph: a parameter in each format has numbers of the scale that its operation needs.
func TestOwnGraph(t *testing.T) {
	const width = 2048 // 8 MiB of numbers: more than one chunk
	b := graph.New("own")
	x := b.Input("x", graph.TypeOf(graph.F32, graph.Symbol(graph.Tokens), graph.Size(width)))
	for _, d := range []graph.DType{graph.F32, graph.BF16, graph.F16, graph.Q8} {
		x = b.MatMul(d.String(), x, b.Param("w_"+d.String(), graph.TypeOf(d, graph.Size(width), graph.Size(width)), nil))
	}
	a := b.Map("a", "sigmoid", b.Param("decay", graph.TypeOf(graph.F32, graph.Size(width)), nil))
	b.Output("y", b.Scale("y", x, a))
	g, err := b.Graph()
	if err != nil {
		t.Fatal(err)
	}
	weights := krait.RandomWeights(g, 1)
	var list sync.WaitGroup // as ranks ask
	for _, name := range []string{"w_f32", "w_bf16", "w_f16", "w_q8", "decay", "w_f32", "w_q8"} {
		list.Go(func() {
			w, err := weights(name)
			if err != nil {
				t.Error(err)
				return
			}
			v, ok := g.Value(name)
			if !ok || w.DType != v.Type.DType {
				t.Errorf("%s is %s", name, w.DType)
			}
			if w, err = w.Convert(graph.F32); err != nil {
				t.Error(err)
			}
			values, square := w.Float32s(), 0.0
			for _, x := range values {
				square += float64(x) * float64(x)
			}
			if scale := math.Sqrt(square / float64(len(values)) * width); name != "decay" && math.Abs(scale-1) > 0.01 {
				t.Errorf("a row of %s has the length %g", name, scale)
			}
			if decay := func(x float32) float64 { return 1 / (1 + math.Exp(-float64(x))) }; name == "decay" &&
				(decay(slices.Min(values)) < 0.9-1e-6 || decay(slices.Max(values)) > 0.999+1e-6 || decay(slices.Max(values)) < 0.99) {
				t.Errorf("decays of %g to %g", decay(slices.Min(values)), decay(slices.Max(values)))
			}
		})
	}
	list.Wait()
	if _, err := weights("w"); err == nil || !strings.Contains(err.Error(), `graph own reads no tensor "w"`) {
		t.Error(err)
	}
}

// TestSharedTensor: two parameters that read rows of one tensor share it; other shapes are refused.
func TestSharedTensor(t *testing.T) {
	read := func(rows [2]graph.Piece, cols int) (graph.Array, error) {
		b := graph.New("shared")
		x := b.Input("x", graph.TypeOf(graph.F32, graph.Symbol(graph.Tokens), graph.Size(4)))
		y := b.MatMul("y", x, b.Param("first", graph.TypeOf(graph.F32, graph.Size(4), graph.Size(4)), &graph.Storage{Pieces: rows[:1]}))
		if cols == 4 {
			b.Output("z", b.MatMul("z", y, b.Param("second", graph.TypeOf(graph.F32, graph.Size(4), graph.Size(4)), &graph.Storage{Pieces: rows[1:]})))
		} else {
			b.Output("z", b.Scale("z", y, b.Param("second", graph.TypeOf(graph.F32, graph.Size(4)), &graph.Storage{Pieces: rows[1:]})))
		}
		g, err := b.Graph()
		if err != nil {
			t.Fatal(err)
		}
		return krait.RandomWeights(g, 1)("w")
	}
	apart := [2]graph.Piece{{Tensor: "w", Start: 0, Step: 2, Count: 4}, {Tensor: "w", Start: 1, Step: 2, Count: 4}}
	if w, err := read(apart, 4); err != nil || !slices.Equal(w.Shape, []int{8, 4}) {
		t.Errorf("shape %v, %v", w.Shape, err)
	}
	if _, err := read(apart, 1); err == nil || !strings.Contains(err.Error(), `parameters first and second read tensor "w" with shapes [7 4] and [8]`) {
		t.Error(err)
	}
}

// TestSave: saved weights are read again, and what a file cannot have is refused.
func TestSave(t *testing.T) {
	g, err := synth.Graph(synth.Options{Like: "mamba-130m", Layers: 1, Vocab: 50})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "weights.safetensors")
	weights := krait.RandomWeights(g, 5)
	if err := checkpoint.Save(path, g, weights); err != nil {
		t.Fatal(err)
	}
	find, end, err := checkpoint.OpenTensors(path)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	for _, p := range g.Leaves("param") {
		name := p.Storage.Pieces[0].Tensor
		got, err1 := find(name)
		want, err2 := weights(name)
		if err1 != nil || err2 != nil || got.DType != want.DType || !slices.Equal(got.Shape, want.Shape) || !bytes.Equal(got.Data, want.Data) {
			t.Errorf("%s: %v, %v", name, err1, err2)
		}
	}
	if _, err := find("nothing"); err == nil || !strings.Contains(err.Error(), "there is no tensor nothing") {
		t.Error(err)
	}
	blocks := func(string) (graph.Array, error) { return graph.Array{DType: graph.Q8}, nil }
	if err := checkpoint.Save(path, g, blocks); err == nil || !strings.Contains(err.Error(), "convert it first") {
		t.Error(err)
	}
}

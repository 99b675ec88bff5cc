// Ownmodule is a program in a module of its own, with an operation and a family of its own
// (package leaky): it writes a checkpoint of random weights, and then opens, compiles, proves,
// draws and runs it on three ranks.
package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"

	"example.com/ownmodule/leaky"
	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/checkpoint/safetensors"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lab/proof"
	"github.com/krait-ml/krait/lab/validate"
	"github.com/krait-ml/krait/visualize"
)

const width, inner, layers, vocab = 12, 20, 2, 256

// checkpoint writes a Hugging Face folder of the family.
func checkpoint(dir string) error {
	config := fmt.Sprintf(`{"model_type": %q, "vocab_size": %d, "hidden_size": %d, "intermediate_size": %d, "num_hidden_layers": %d}`,
		leaky.ModelType, vocab, width, inner, layers)
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o644); err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(1, 2))
	var list []safetensors.Tensor
	add := func(name string, number func() float64, shape ...int) {
		t := safetensors.Tensor{Name: name, DType: "F32", Shape: shape}
		n := 1
		for _, size := range shape {
			n *= size
		}
		for range n {
			t.Data = binary.LittleEndian.AppendUint32(t.Data, math.Float32bits(float32(number())))
		}
		list = append(list, t)
	}
	weight := func() float64 { return rng.NormFloat64() / 3 }
	one := func() float64 { return 1 }
	decay := func() float64 { return 0.2 + 0.7*rng.Float64() }
	add("embeddings.weight", rng.NormFloat64, vocab, width)
	add("norm_f.weight", one, width)
	for i := range layers {
		layer := fmt.Sprintf("layers.%d.", i)
		add(layer+"norm.weight", one, width)
		add(layer+"mixer.in_proj.weight", weight, inner, width)
		add(layer+"mixer.gate_proj.weight", weight, inner, width)
		add(layer+"mixer.out_proj.weight", weight, width, inner)
		add(layer+"mixer.decay", decay, inner)
	}
	return safetensors.WriteFile(filepath.Join(dir, "model.safetensors"), list, nil)
}

// prove compiles the graph for three ranks, and proves and executes what came of it.
func prove(ctx context.Context, w io.Writer, g *graph.Graph, picture string) error {
	c, sharded, err := proof.Of(ctx, g, krait.Sharding{Ranks: 3}, validate.Options{})
	if err != nil {
		return err
	}
	fmt.Fprint(w, c)
	file, err := os.Create(picture)
	if err != nil {
		return err
	}
	defer file.Close()
	return visualize.Dot(file, sharded, visualize.Options{})
}

func run(w io.Writer, dir, picture string) error {
	ctx := context.Background()
	if err := checkpoint(dir); err != nil {
		return err
	}
	var texts []string
	for _, ranks := range []int{1, 3} {
		m, err := krait.Open(dir, krait.Options{Strict: true, Sharding: krait.Sharding{Ranks: ranks}})
		if err != nil {
			return err
		}
		defer m.Close()
		if ranks == 3 {
			if err := prove(ctx, w, m.Graph(), picture); err != nil {
				return err
			}
		}
		out, err := m.GenerateIDs(ctx, []int{'k', 'r', 'a', 'i', 't'}, krait.Generate{MaxTokens: 8})
		if err != nil {
			return err
		}
		texts = append(texts, fmt.Sprint(out.IDs))
		fmt.Fprintf(w, "%d ranks: %v\n", ranks, out.IDs)
	}
	if texts[0] != texts[1] {
		return fmt.Errorf("one rank and three say %q", texts)
	}
	return nil
}

func main() {
	dir, err := os.MkdirTemp("", "leaky")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	picture := filepath.Join(os.TempDir(), "leaky.dot")
	if err := run(os.Stdout, dir, picture); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s is the picture: dot -Tsvg draws it\n", picture)
}

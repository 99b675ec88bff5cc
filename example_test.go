package krait_test

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"os"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/exec/comm"
	"github.com/krait-ml/krait/exec/comm/mpi"
	"github.com/krait-ml/krait/exec/devices"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/text/tokenizer"
)

// A model continues a text; the embedded one needs no files.
func Example() {
	m, err := krait.Embedded(krait.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	out, err := m.Generate(context.Background(), "In the beginning", krait.Generate{MaxTokens: 40})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%q: %s\n", out.Text, out.Reason)
	// Output:
	// " of the children of Israel, and the chil": token limit
}

// Tokens come as they are chosen; to leave the loop ends the generation.
func ExampleModel_Stream() {
	m, err := krait.Embedded(krait.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	n := 0
	for token, err := range m.Stream(context.Background(), "And God said", krait.Generate{}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(token.Text)
		if n++; n == 20 {
			break
		}
	}
	// Output:
	// unto him, What shal
}

// More prompts than slots wait for theirs.
func ExampleModel_GenerateBatch() {
	m, err := krait.Embedded(krait.Options{Slots: 2})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	list, err := m.GenerateBatch(context.Background(), []string{"Moses", "Aaron", "David"}, krait.Generate{MaxTokens: 12})
	if err != nil {
		log.Fatal(err)
	}
	for _, g := range list {
		fmt.Printf("%q\n", g.Text)
	}
	// Output:
	// " shall be a "
	// " and the chi"
	// " the son of "
}

// A sequence is stepped by hand: it forks, and is saved to go on in another process.
func ExampleSequence() {
	ctx := context.Background()
	m, err := krait.Embedded(krait.Options{Keep: []string{"layers.0.h"}})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	s, err := m.NewSequence()
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	prompt := []int{'I', 'n', ' ', 't', 'h'}
	fed, err := s.Feed(ctx, prompt, krait.Selection{Logits: []int{1, 4}, Values: []string{"layers.0.h"}})
	if err != nil {
		log.Fatal(err)
	}
	rows := fed.Values["layers.0.h"]
	fmt.Println(len(fed.Logits), "rows of", len(fed.Logits[0]), "logits;", len(rows), "rows of", len(rows[0]), "of the kept value")

	fork, err := s.Fork() // from here on each goes its own way
	if err != nil {
		log.Fatal(err)
	}
	defer fork.Close()
	if _, err := fork.Step(ctx, 'e', ' '); err != nil {
		log.Fatal(err)
	}
	var file bytes.Buffer // or an *os.File
	if err := fork.Save(&file); err != nil {
		log.Fatal(err)
	}
	if err := s.Load(&file); err != nil {
		log.Fatal(err)
	}
	n, err := s.Len()
	fmt.Println(n, "tokens", err)
	// Output:
	// 2 rows of 256 logits; 5 rows of 128 of the kept value
	// 7 tokens <nil>
}

// A model of your own graph has all that an opened one has.
func ExampleNew() {
	const vocab, width = 256, 2
	b := graph.New("counts")
	ids := b.Input("ids", graph.TypeOf(graph.I32, graph.Symbol(graph.Tokens))) // the tokens of the batch
	rows := b.Input("rows", graph.TypeOf(graph.I32, graph.Symbol(graph.Rows))) // those whose logits are wanted
	words, d := graph.Units(vocab, 1), graph.Size(width)                       // ranks may own words; the width is whole
	in := b.Param("in", graph.TypeOf(graph.F32, words, d), nil)                // a row per token
	out := b.Param("out", graph.TypeOf(graph.F32, words, d), nil)              // [out, in], as in checkpoints
	last := b.SelectRows("last", b.Embedding("x", ids, in), rows)              // f32[o width]
	b.Output("logits", b.MatMul("logits", last, out))                          // f32[o vocab]
	g, err := b.Graph()
	if err != nil {
		log.Fatal(err)
	}
	// After token i, token i+1 has the largest of the logits -(j - (i+1))²/2 + (i+1)²/2.
	inputs, outputs := make([]float32, vocab*width), make([]float32, vocab*width)
	for i := range vocab {
		inputs[2*i], inputs[2*i+1] = float32(i+1), 1
		outputs[2*i], outputs[2*i+1] = float32(i), -float32(i*i)/2
	}
	weights := krait.Tensors(map[string]graph.Array{
		"in": graph.ArrayOf(inputs, vocab, width), "out": graph.ArrayOf(outputs, vocab, width)})
	m, err := krait.New(g, weights, tokenizer.Bytes{}, krait.Options{Sharding: krait.Sharding{Ranks: 3}})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	text, err := m.Generate(context.Background(), "abc", krait.Generate{MaxTokens: 10})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(text.Text)
	// Output: defghijklm
}

// A file system may be embedded in the program, or a folder.
func ExampleOpenFS() {
	m, err := krait.OpenFS(os.DirFS("testdata/golden/mamba-a"), krait.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	fmt.Println(m.Family(), m.Vocab(), "tokens")
	// Output:
	// mamba 256 tokens
}

// Perplexity by the bits that each token of a text takes.
func ExampleModel_Evaluate() {
	m, err := krait.Embedded(krait.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	ids, err := tokenizer.Bytes{}.Encode("And the LORD spake unto Moses, saying,", true)
	if err != nil {
		log.Fatal(err)
	}
	e, err := m.Evaluate(context.Background(), ids, krait.Evaluate{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d tokens, %.2f bits each\n", e.Scored, e.BitsPerToken())
	// Output:
	// 37 tokens, 0.28 bits each
}

// The embedded model runs on two ranks of a simulated GPU.
func Example_device() {
	d, err := devices.Open("cuda-sim", devices.Options{})
	if err != nil {
		log.Fatal(err)
	}
	m, err := krait.Embedded(krait.Options{Device: d, Sharding: krait.Sharding{Ranks: 2}})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	out, err := m.Generate(context.Background(), "In the", krait.Generate{MaxTokens: 4})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%q\n", out.Text)
}

// Under mpirun each process runs a rank of a model; that of rank 0 has it.
func Example_processes() {
	ctx := context.Background()
	link, err := mpi.Join(ctx)
	if err != nil {
		log.Fatal(err)
	}
	all := comm.Connect(link, comm.Options{})
	m, err := krait.Embedded(krait.Options{Processes: all})
	if err != nil {
		log.Fatal(err)
	}
	if all.Rank() > 0 {
		err = m.Follow(ctx)
	} else {
		_, err = m.Generate(ctx, "In the beginning", krait.Generate{})
	}
	m.Close()
	if err := all.Close(err); err != nil {
		log.Fatal(err)
	}
}

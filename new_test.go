package krait

import (
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/text/tokenizer"
)

// TestNew: a model of a graph does what the opened model of the same graph does.
func TestNew(t *testing.T) {
	for _, ranks := range []int{1, 3} {
		c, err := checkpoint.Open("testdata/golden/jamba")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		text := graph.Print(c.Graph)
		o := Options{Slots: 2, Keep: []string{"layers.0.h"}, PrefixCache: 1 << 20, Sharding: Sharding{Ranks: ranks}}
		mine, err := New(c.Graph, c.Tensor, nil, o)
		if err != nil {
			t.Fatal(err)
		}
		defer mine.Close()
		theirs := openModel(t, "testdata/golden/jamba", o)
		if graph.Print(c.Graph) != text {
			t.Error("New changed the graph")
		}
		prompt := tokensOf(theirs, 30, 1)
		for range 2 { // the second with the prefix cache
			got, err1 := mine.GenerateIDs(t.Context(), prompt, Generate{MaxTokens: 8, Temperature: 1, Seed: 2})
			want, err2 := theirs.GenerateIDs(t.Context(), prompt, Generate{MaxTokens: 8, Temperature: 1, Seed: 2})
			if err1 != nil || err2 != nil || !slices.Equal(got.IDs, want.IDs) || got.CachedTokens != want.CachedTokens {
				t.Errorf("%d ranks: %v %v, want %v %v", ranks, got, err1, want, err2)
			}
		}
		got, err1 := mine.Evaluate(t.Context(), prompt, Evaluate{})
		want, err2 := theirs.Evaluate(t.Context(), prompt, Evaluate{})
		if err1 != nil || err2 != nil || got.Bits != want.Bits {
			t.Errorf("%d ranks: %v bits, %v; want %v, %v", ranks, got, err1, want, err2)
		}
		if mine.Vocab() != theirs.Vocab() || mine.Ranks() != ranks || mine.Parameters() != theirs.Parameters() {
			t.Errorf("%d tokens, %d ranks, %d parameters", mine.Vocab(), mine.Ranks(), mine.Parameters())
		}
		if _, err := mine.Generate(t.Context(), "a", Generate{}); err == nil || !strings.Contains(err.Error(), "without a tokenizer") {
			t.Error(err)
		}
	}
}

// smallest is a graph of a table and a product, without what chooses tokens.
func smallest(t testing.TB, vocab, width int) *graph.Graph {
	t.Helper()
	b := graph.New("smallest")
	ids := b.Input("ids", graph.TypeOf(graph.I32, graph.Symbol(graph.Tokens)))
	rows := b.Input("rows", graph.TypeOf(graph.I32, graph.Symbol(graph.Rows)))
	table := b.Param("table", graph.TypeOf(graph.F32, graph.Units(vocab, 1), graph.Size(width)), nil)
	x := b.Embedding("x", ids, table)
	b.Output("logits", b.MatMul("logits", b.SelectRows("last", x, rows), table))
	g, err := b.Graph()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestNewChooses: what chooses tokens is added, and the caller's tokenizer is used.
func TestNewChooses(t *testing.T) {
	g := smallest(t, 256, 2)
	table := make([]float32, 512)
	for i := range 256 {
		table[2*i] = float32(i) // the largest logit is the last one's
	}
	for _, ranks := range []int{1, 3} {
		m, err := New(g, Tensors(map[string]graph.Array{"table": graph.ArrayOf(table, 256, 2)}), endingBytes{}, Options{Sharding: Sharding{Ranks: ranks}})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		got, err := m.Generate(t.Context(), "a", Generate{MaxTokens: 3})
		if err != nil || got.Reason != ReachedEOS || m.Name != "smallest" || m.Family() != "smallest" {
			t.Errorf("%d ranks: %+v, %v", ranks, got, err)
		}
		if got, err = m.Generate(t.Context(), "a", Generate{MaxTokens: 3, IgnoreEOS: true}); err != nil || !slices.Equal(got.IDs, []int{255, 255, 255}) {
			t.Errorf("%d ranks: %+v, %v", ranks, got, err)
		}
	}
}

// endingBytes is bytes that end with the last of them.
type endingBytes struct{ tokenizer.Bytes }

func (endingBytes) EOS() (int, bool) { return 255, true }

// TestNewRefuses: what a graph lacks is said.
func TestNewRefuses(t *testing.T) {
	none := Tensors(nil)
	b := graph.New("bare")
	b.Output("y", b.Map("y", "silu", b.Input("x", graph.TypeOf(graph.F32, graph.Symbol(graph.Tokens), graph.Size(2)))))
	bare, err := b.Graph()
	if err != nil {
		t.Fatal(err)
	}
	b = graph.New("all tokens")
	b.Output("logits", b.Map("y", "silu", b.Input("x", graph.TypeOf(graph.F32, graph.Symbol(graph.Tokens), graph.Size(2)))))
	tokens, err := b.Graph()
	if err != nil {
		t.Fatal(err)
	}
	b = graph.New("no ids")
	b.Output("logits", b.Map("y", "silu", b.Input("x", graph.TypeOf(graph.F32, graph.Symbol(graph.Rows), graph.Size(2)))))
	ids, err := b.Graph()
	if err != nil {
		t.Fatal(err)
	}
	for want, open := range map[string]func() (*Model, error){
		"needs weights":                             func() (*Model, error) { return New(smallest(t, 4, 2), nil, nil, Options{}) },
		"tensor table is not among the weights":     func() (*Model, error) { return New(smallest(t, 4, 2), none, nil, Options{}) },
		"graph bare: a model needs the output":      func() (*Model, error) { return New(bare, none, nil, Options{}) },
		"the output logits is f32[t 2]; a model":    func() (*Model, error) { return New(tokens, none, nil, Options{}) },
		"graph no ids: a model needs the input ids": func() (*Model, error) { return New(ids, none, nil, Options{}) },
		"has no value nothing":                      func() (*Model, error) { return New(smallest(t, 4, 2), none, nil, Options{Keep: []string{"nothing"}}) },
	} {
		if _, err := open(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

package cli

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/lowering"
)

// transformer is graph text of three blocks of attention and a gated MLP.
func transformer(hidden, heads, kv, head, mlp int) string {
	text := fmt.Sprintf("graph \"t\" stage=model ranks=1\ninput %%h : f32[t %d]\ninput %%seg : i32[s 3]\ninput %%past : i32[s]\n", hidden)
	residual := "h"
	for i := range 3 {
		text += fmt.Sprintf(`
block layers.%[1]d
  param @norm : f32[%[2]d]
  %%n = rmsnorm %%/%[7]s @norm {eps=1e-05}
  param @wq : f32[%[3]d/%[5]d %[2]d]
  %%q = matmul %%n @wq
  param @wk : f32[%[4]d/%[5]d %[2]d]
  %%k = matmul %%n @wk
  param @wv : f32[%[4]d/%[5]d %[2]d]
  %%v = matmul %%n @wv
  state %%keys : f32[s c %[4]d/%[5]d]
  state %%values : f32[s c %[4]d/%[5]d]
  %%a %%keys2 %%values2 = attention %%q %%k %%v %%keys %%values %%/seg %%/past {scale=1}
  param @wo : f32[%[2]d %[3]d/%[5]d]
  %%o = matmul %%a @wo
  %%mid = add %%/%[7]s %%o
  param @norm2 : f32[%[2]d]
  %%n2 = rmsnorm %%mid @norm2 {eps=1e-05}
  param @wg : f32[%[6]d/1 %[2]d]
  %%g = matmul %%n2 @wg
  param @wu : f32[%[6]d/1 %[2]d]
  %%u = matmul %%n2 @wu
  %%s = silu %%g
  %%gu = mul %%s %%u
  param @wd : f32[%[2]d %[6]d/1]
  %%d = matmul %%gu @wd
  %%h = add %%mid %%d
`, i, hidden, heads*head, kv*head, head, mlp, residual)
		residual = fmt.Sprintf("layers.%d.h", i)
	}
	return text + "\noutput y = %layers.2.h\n"
}

// accounts works out the three executions of a graph.
func accounts(t *testing.T, text string, ranks int, z stepSizes, payload string) (list []*executionReport) {
	t.Helper()
	g, err := graph.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range executions {
		a := accountantOf(z, ranks, x.strategy, x.place)
		if a.g, err = (krait.Sharding{Ranks: ranks, Strategy: x.strategy, Payload: payload}).Compile(g); err != nil {
			t.Fatal(err)
		}
		if a.schedules, err = lowering.Lower(a.g); err != nil {
			t.Fatal(err)
		}
		r, err := a.report(x.name, z)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, r)
	}
	return list
}

// TestTable holds the account against numbers of the textbook, which counts 2 bytes an
// element, and here are 4.
func TestTable(t *testing.T) {
	const half = 2
	list := accounts(t, transformer(4096, 32, 8, 128, 512), 4, stepSizes{Batch: 8, Prompt: 2048}, "")
	for i, want := range []struct {
		sublayers      string
		sent, textbook int64
		residual       int64
	}{
		{"core  0, output all_reduce 201326592, MLP, down all_reduce 201326592, ", 402653184, 402653184, 134217728},
		{"projections all_gather 100663296, core  0, output reduce_scatter 100663296, MLP, up all_gather 100663296, MLP, down reduce_scatter 100663296, ", 402653184, 201326592, 33554432},
		{"projections all_gather 100663296, core  0, output reduce_scatter 100663296, MLP, up all_gather 100663296, MLP, down reduce_scatter 100663296, ", 402653184, 251658240, 33554432},
		{"keys and values all_gather 50331648, core  0, output all_gather 100663296, ", 150994944, 50331648, 33554432},
	} {
		r := list[i]
		b := r.second() // the first takes a whole input, the last gathers the output
		text := ""
		for _, l := range b.Lines {
			text += fmt.Sprintf("%s %s %d, ", l.Sublayer, l.Kind, l.Sent.Counted/half)
		}
		if text != want.sublayers || b.Sent.Counted != half*want.sent || b.Sent.Formula != half*want.sent || *b.Sent.Textbook != half*want.textbook {
			t.Errorf("%s: %s sent %+v, textbook %d; want %s %+v", r.Name, text, b.Sent, *b.Sent.Textbook, want.sublayers, want)
		}
		cache := int64(half * 16777216)
		if r.Strategy == "context" { // each rank keeps all
			cache *= 4
		}
		if r.Residual.Counted != half*want.residual || r.Residual.Formula != half*want.residual || b.Cache.Counted != cache || b.Cache.Formula != cache {
			t.Errorf("%s: residual %+v, cache %+v", r.Name, r.Residual, b.Cache)
		}
	}
}

// TestTableOfCoveredHeads: where ranks have fewer KV heads than query heads to share out, a rank
// keeps the ones that its heads read, by formula and as counted.
func TestTableOfCoveredHeads(t *testing.T) {
	goldens.CI(t)
	_, g, err := checkpoint.Describe("../testdata/golden/jamba") // 4 heads, 2 KV heads
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{"jamba": graph.Print(g), "6 heads, 3 KV heads": transformer(32, 6, 3, 8, 16), "12 heads, 2 KV heads": transformer(32, 12, 2, 8, 16), "1 KV head": transformer(32, 4, 1, 8, 16)}
	for name, text := range texts {
		for _, ranks := range []int{2, 3, 4, 8} {
			cached := int64(0)
			for _, r := range accounts(t, text, ranks, stepSizes{Batch: 8, Prompt: 24}, "") {
				for _, b := range r.Blocks {
					for _, l := range b.Lines {
						if l.Sent.Formula != l.Sent.Counted {
							t.Errorf("%s on %d ranks, %s: %s sends %+v", name, ranks, r.Name, l.Sublayer, l.Sent)
						}
					}
					if cached += b.Cache.Counted; b.Cache.Formula != b.Cache.Counted {
						t.Errorf("%s on %d ranks, %s: cache %+v", name, ranks, r.Name, b.Cache)
					}
				}
				if r.Residual.Formula != r.Residual.Counted {
					t.Errorf("%s on %d ranks, %s: residual stream %+v", name, ranks, r.Name, r.Residual)
				}
			}
			if cached == 0 {
				t.Errorf("%s on %d ranks has no KV cache", name, ranks)
			}
		}
	}
}

// TestTextbook holds the terms of the account, each by itself, against numbers that are
// known: of 2 bytes an element, as TestTable's.
func TestTextbook(t *testing.T) {
	goldens.CI(t)
	const half, blocks = 2, 32
	for _, c := range []struct {
		what   string
		prompt int64
		of     func(classic, sequence *executionReport) int64
		want   int64
	}{
		{"an all_reduce", 2048, func(classic, _ *executionReport) int64 { return classic.line("output").Sent.Counted }, 201326592},
		{"a reduce_scatter", 2048, func(_, s *executionReport) int64 { return s.line("output").Sent.Counted }, 100663296},
		{"an all_gather", 2048, func(_, s *executionReport) int64 { return s.line("projections").Sent.Counted }, 100663296},
		{"keys and values that are gathered", 2048, func(_, s *executionReport) int64 { return *s.line("core").Sent.Textbook }, 50331648},
		{"the residual stream", 2048, func(classic, _ *executionReport) int64 { return classic.Residual.Counted }, 134217728},
		{"a rank's share of it", 2048, func(_, s *executionReport) int64 { return s.Residual.Counted }, 33554432},
		{"a rank's cache of a block", 2048, func(classic, _ *executionReport) int64 { return classic.second().Cache.Counted }, 16777216},
		{"all caches of 32 blocks", 2048, func(_, s *executionReport) int64 { return blocks * 4 * s.second().Cache.Counted }, 2147483648},
		{"the residual stream of a token each", 1, func(classic, _ *executionReport) int64 { return classic.Residual.Counted }, 65536},
		{"a rank's share of that", 1, func(_, s *executionReport) int64 { return s.Residual.Counted }, 16384},
	} {
		list := accounts(t, transformer(4096, 32, 8, 128, 512), 4, stepSizes{Batch: 8, Prompt: c.prompt}, "")
		if got := c.of(list[0], list[2]); got != half*c.want {
			t.Errorf("%s: %d bytes, want %d", c.what, got/half, c.want)
		}
	}
}

// TestKeysAndValues: where attention's weights and the MLP's are whole, its ranks gather keys and
// values, and nothing else: what the textbook counts.
func TestKeysAndValues(t *testing.T) {
	const half, ranks = 2, 4
	file := filepath.Join(t.TempDir(), "context.place")
	text := "border even\n*.w? whole\n*.[ovgusd] even whole\n*.q even\n*.k even whole\n*.gu even\n*.a even\n*.keys* whole\n*.values* whole\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	g, err := graph.Parse(transformer(4096, 32, 8, 128, 512))
	if err != nil {
		t.Fatal(err)
	}
	if g, err = (krait.Sharding{Ranks: ranks, Place: file}).Compile(g); err != nil {
		t.Fatal(err)
	}
	schedules, err := lowering.Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	p, err := lowering.NewPlan(schedules)
	if err != nil {
		t.Fatal(err)
	}
	z := graph.Sizes{Tokens: 8 * 2048, Seqs: 8}
	list, sent := "", int64(0)
	for _, c := range p.Collectives {
		if graph.BlockOf(c.Name) == "layers.1" {
			list += c.Kind + " "
			sent += c.Bytes.At(z) * (ranks - 1) / ranks
		}
	}
	if list != "all_gather " || sent != half*50331648 {
		t.Errorf("a block has %sand a rank sends %d bytes in it", list, sent/half)
	}
}

// second is the second block; equal blocks are one.
func (r *executionReport) second() *blockReport { return &r.Blocks[min(1, len(r.Blocks)-1)] }

// line is what the second block sends for a sublayer.
func (r *executionReport) line(sublayer string) lineReport {
	for _, l := range r.second().Lines {
		if l.Sublayer == sublayer {
			return l
		}
	}
	return lineReport{}
}

// TestTableCounts: for models, ranks and batches of any size formulas are what is counted.
func TestTableCounts(t *testing.T) {
	goldens.CI(t)
	rng := rand.New(rand.NewPCG(1, 15))
	draws := 8
	if goldens.All() {
		draws = 30
	}
	for range draws {
		ranks := 2 + rng.IntN(7)
		kv := ranks * (1 + rng.IntN(2))
		text := transformer(1+rng.IntN(300), kv*(1+rng.IntN(3)), kv, 2*(1+rng.IntN(8)), ranks*(1+rng.IntN(50)))
		z := stepSizes{Batch: 1 + rng.Int64N(12), Prompt: 1 + rng.Int64N(500)}
		for _, r := range accounts(t, text, ranks, z, []string{"", "fp16", "int8/64"}[rng.IntN(3)]) {
			if r.Residual.Formula != r.Residual.Counted {
				t.Errorf("%s on %d ranks, %s: residual %+v", r.Name, ranks, z, r.Residual)
			}
			for _, b := range r.Blocks {
				if b.Cache.Formula != b.Cache.Counted {
					t.Errorf("%s on %d ranks, %s: cache %+v", r.Name, ranks, z, b.Cache)
				}
				for _, l := range b.Lines {
					if l.Sent.Formula != l.Sent.Counted {
						t.Errorf("%s on %d ranks, %s, %s: %+v", r.Name, ranks, z, l.Sublayer, l.Sent)
					}
				}
			}
		}
	}
}

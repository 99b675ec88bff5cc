package graph_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/krait-ml/krait/checkpoint/synth"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/passes"
)

// hybrid is the model that published figures are of, as near as a family comes to it: 4
// layers of attention, 24 of SSM, and an MLP in each, of width 4096 and state 128.
func hybrid(t *testing.T, expand int) *graph.Graph {
	t.Helper()
	g, err := synth.Graph(synth.Options{Config: fmt.Appendf(nil, `{"model_type": "bamba", "hidden_size": 4096, "num_hidden_layers": 28,
		"attn_layer_indices": [3, 10, 17, 24], "num_attention_heads": 32, "num_key_value_heads": 32, "intermediate_size": 10923,
		"mamba_expand": %d, "mamba_n_heads": %d, "mamba_d_head": 64, "mamba_d_state": 128, "mamba_n_groups": 1, "mamba_d_conv": 4,
		"vocab_size": 1000, "tie_word_embeddings": false}`, expand, 64*expand)})
	if err == nil {
		g, err = passes.Compile(g, passes.Options{Stop: graph.ModelStage, States: states(t, "conv=bf16,cache=bf16,ssm=bf16")})
	}
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func states(t *testing.T, text string) passes.States {
	t.Helper()
	s, err := passes.ParseStates(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestPrefillPublished: op rows give the published formulas (Pan et al. 2025, in 16 bits):
// of L tokens attention takes 8LD² + 4L²D, an MLP 16LD² and an SSM 12LD² + 16LDN + 10L.
func TestPrefillPublished(t *testing.T) {
	const d, n, l = 4096, 128, 1000
	g := hybrid(t, 2)
	work := map[string]float64{}
	for _, x := range g.Nodes {
		part := strings.Split(x.Name()+"...", ".")[2]
		if op := x.Op.Name; op == "matmul" || op == "attention" || op == "ssd_scan" {
			work[part+" "+op] += x.Cost().FLOPs.Float(graph.Sizes{Tokens: l, Seqs: 1, Pairs: l * (l + 1) / 2})
		}
	}
	heads := 2. * d / 64
	for name, want := range map[string]float64{
		"attention matmul": 4 * 8 * l * d * d,
		// A token sees those before it, and not those after it: half the square.
		"attention attention": 4 * 2 * l * (l + 1) * d,
		"mlp matmul":          28 * 6 * l * d * 10923, // three matrices of 8/3 D for two of 4 D
		// B and C, a scan of 6 operations where the formula has all of 16LDN; and the time steps.
		"mixer matmul":   24 * l * (12*d*d + 4*d*n + 2*d*heads),
		"mixer ssd_scan": 24 * l * 12 * d * n,
	} {
		if work[name] != want {
			t.Errorf("%s: %v FLOPs, want %v; there are %v", name, work[name], want, work)
		}
	}
	p := g.Prefill()
	for _, c := range []struct {
		what      string
		got, want float64
	}{
		{"squared", p.PerTokenSquared, 4 * 4 * d / 2},
		{"MLP", work["mlp matmul"], 7_516_192_768_000},
		{"SSM", work["mixer matmul"] + work["mixer ssd_scan"], 5_033_165_040_000},
		{"a token", p.PerToken, (4*8*d*d + 28*16*d*d + 24*(12*d*d+16*d*n+10))},
	} {
		if math.Abs(c.got-c.want) > 0.01*c.want {
			t.Errorf("%s: %v FLOPs, published %v", c.what, c.got, c.want)
		}
	}
	var sum float64
	for _, w := range work {
		sum += w
	}
	if all := p.PerToken*l + p.PerTokenSquared*l*l; all < sum || all > 1.005*sum {
		t.Errorf("%v FLOPs for %d tokens, of which matrices, attention and scans take %v", all, l, sum)
	}
}

// TestPrefillBytes: caches are as published. So are states: the published ones have D
// channels in the scan, 2D in the convolution, and keep 4 inputs of it, where 3 do.
func TestPrefillBytes(t *testing.T) {
	const d, n = 4096, 128
	narrow, wide := hybrid(t, 1).Prefill(), hybrid(t, 2).Prefill()
	if narrow.CacheBytes != 65_536 || wide.CacheBytes != 65_536 {
		t.Errorf("%d and %d bytes per token", narrow.CacheBytes, wide.CacheBytes)
	}
	scan, conv := int64(2*d*n), int64(2*(2*d+2*n))
	if want := 24 * (scan + 3*(conv-2*d)); narrow.StateBytes != want {
		t.Errorf("%d bytes of states, want %d", narrow.StateBytes, want)
	}
	if want := 24 * (2*scan + 3*conv); wide.StateBytes != want {
		t.Errorf("%d bytes of states, want %d", wide.StateBytes, want)
	}
	published := narrow.StateBytes - 24*3*(conv-2*d) + 24*4*conv
	if published != 26_787_840 || published/24 != 1_116_160 {
		t.Errorf("published are 26787840 bytes of states, in these terms %d", published)
	}
	if blocks := 10_000 / 16 * (16*narrow.CacheBytes + published); blocks != 17_397_760_000 {
		t.Errorf("10,000 tokens by blocks of 16 have %d bytes", blocks)
	}
}

// TestDeltaCost: of a layer of the 27B of Qwen3.5, with 16 heads of keys and 48 of values of width
// 128, a token takes two products with the state, a decay of it and a product that is added, and
// the state is 3 MiB, of which 48 layers have the published 144 MiB.
func TestDeltaCost(t *testing.T) {
	for decays, want := range map[int]int64{1: 48, 128: 48 * 128} {
		const keys, values, width = 16, 48, 128
		b := graph.New("delta")
		in := func(name string, d graph.Dim) *graph.Value {
			return b.Input(name, graph.TypeOf(graph.F32, graph.Symbol(graph.Tokens), d))
		}
		kd, vd := graph.Units(keys*width, width), graph.Units(values*width, width)
		state := b.State("S", graph.TypeOf(graph.F32, graph.Symbol(graph.Seqs), graph.Units(values, 1), graph.Size(width), graph.Size(width)))
		seg := b.Input("seg", graph.TypeOf(graph.I32, graph.Symbol(graph.Seqs), graph.Size(3)))
		g, beta := in("g", graph.Units(values*decays, decays)), in("beta", graph.Units(values, 1))
		b.Output("y", b.DeltaScan("y", in("q", kd), in("k", kd), in("v", vd), g, beta, state, seg, 1))
		model, err := b.Graph()
		if err != nil {
			t.Fatal(err)
		}
		const tokens, sequences = 5, 2
		c, z := model.Cost(), graph.Sizes{Tokens: tokens, Seqs: sequences}
		stateBytes := int64(48 * 128 * 128 * 4)
		for what, n := range map[string][2]int64{
			"FLOPs": {c.FLOPs.At(z), 7 * tokens * 48 * 128 * 128},
			"read":  {c.Read.At(z), sequences*(stateBytes+3*4) + tokens*4*(2*16*128+48*128+48+want)},
			"write": {c.Write.At(z), sequences*stateBytes + tokens*4*48*128},
			"state": {48 * model.Prefill().StateBytes, 144 << 20},
		} {
			if n[0] != n[1] {
				t.Errorf("%d decays of a head: %s is %d, want %d", decays, what, n[0], n[1])
			}
		}
	}
}

// TestPrefillOfSteps: the two coefficients are what the costs of a prompt grow by, for
// every family.
func TestPrefillOfSteps(t *testing.T) {
	for _, name := range []string{"mamba-130m", "mamba2-130m", "zamba-7b", "zamba2-1.2b", "jamba-52b", "bamba-9b", "falcon-h1-0.5b", "granite-4.0-h-tiny", "nemotron-3-nano-30b-a3b"} {
		g, err := synth.Graph(synth.Options{Like: name})
		if err != nil {
			t.Fatal(err)
		}
		p, flops := g.Prefill(), g.Cost().FLOPs
		at := func(l int64) float64 {
			return flops.Float(graph.Sizes{Tokens: l, Seqs: 1, Rows: 1, Cached: l, Pairs: l * (l + 1) / 2})
		}
		for _, l := range []int64{1, 2, 1000, 1 << 20} {
			got, want := p.PerToken*float64(l)+p.PerTokenSquared*float64(l*l), at(l)-at(0)
			if math.Abs(got-want) > 1e-9*want {
				t.Errorf("%s: %d tokens take %v FLOPs, want %v", name, l, got, want)
			}
		}
	}
}

// TestPrefillByKind: kinds add up to the whole, and have their bytes.
func TestPrefillByKind(t *testing.T) {
	g := hybrid(t, 2)
	whole, kinds := g.Prefill(), g.PrefillByKind()
	var sum graph.Prefill
	for _, kind := range graph.PrefillKinds {
		p := kinds[kind]
		sum.PerToken += p.PerToken
		sum.PerTokenSquared += p.PerTokenSquared
		sum.CacheBytes += p.CacheBytes
		sum.StateBytes += p.StateBytes
	}
	if sum != whole || len(kinds) != 4 {
		t.Errorf("kinds have %+v, the graph %+v", sum, whole)
	}
	if a, s, o := kinds["attention"], kinds["SSM"], kinds["MLP"]; a.CacheBytes != whole.CacheBytes || a.PerTokenSquared != whole.PerTokenSquared ||
		s.StateBytes != whole.StateBytes || o.CacheBytes+o.StateBytes != 0 || o.PerToken < 28*6*4096*10923 {
		t.Errorf("attention %+v, SSM %+v, MLP %+v", a, s, o)
	}
}

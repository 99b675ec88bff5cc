package krait

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/prop"
)

// mtpForward computes MTP heads in float64 as vLLM's qwen3_next_mtp.py, qwen3_5_mtp.py and
// nemotron_h_mtp.py do, from the tensors of a checkpoint by their names.
type mtpForward struct {
	weights             Weights
	embeddings          string
	eps                 float64
	heads, groups, size int     // of attention
	rotary              int     // channels of a head
	theta               float64 // base of rotation
	top                 int     // experts per token
	centred             bool    // norms have 1 + w
}

// matrix returns a tensor, and its last two axes as rows; of which the nth matrix.
func (f *mtpForward) matrix(name string, nth int) [][]float64 {
	a, err := f.weights(name)
	if err != nil {
		panic(err)
	}
	cols := a.Shape[len(a.Shape)-1]
	rows := 1
	if len(a.Shape) > 1 {
		rows = a.Shape[len(a.Shape)-2]
	}
	x := a.Float32s()[nth*rows*cols:]
	var out [][]float64
	for r := range rows {
		row := make([]float64, cols)
		for c := range row {
			row[c] = float64(x[r*cols+c])
		}
		out = append(out, row)
	}
	return out
}

func (f *mtpForward) vector(name string) []float64 { return f.matrix(name, 0)[0] }

func (f *mtpForward) has(name string) bool { _, err := f.weights(name); return err == nil }

func times(w [][]float64, x []float64) []float64 {
	out := make([]float64, len(w))
	for i, row := range w {
		for j, v := range row {
			out[i] += v * x[j]
		}
	}
	return out
}

func (f *mtpForward) linear(name string, x []float64) []float64 {
	return times(f.matrix(name+".weight", 0), x)
}

func (f *mtpForward) norm(name string, x []float64) []float64 {
	w, sum := f.vector(name+".weight"), 0.0
	for _, v := range x {
		sum += v * v
	}
	out := make([]float64, len(x))
	for i, v := range x {
		if out[i] = v * w[i]; f.centred {
			out[i] += v
		}
		out[i] /= math.Sqrt(sum/float64(len(x)) + f.eps)
	}
	return out
}

func added(x, y []float64) []float64 {
	out := slices.Clone(x)
	for i := range y {
		out[i] += y[i]
	}
	return out
}

func logistic(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// rotate rotates the halves of the first channels of a head at a position.
func (f *mtpForward) rotate(x []float64, at int) {
	half := f.rotary / 2
	for i := range half {
		sin, cos := math.Sincos(float64(at) * math.Pow(f.theta, -float64(i)/float64(half)))
		x[i], x[i+half] = x[i]*cos-x[i+half]*sin, x[i+half]*cos+x[i]*sin
	}
}

// attend is causal attention over normed rows.
func (f *mtpForward) attend(at string, rows [][]float64) (out [][]float64) {
	n := f.size
	var keys, values [][]float64
	gated := f.rotary > 0 // the families with rotation have the gates
	for t, x := range rows {
		q, k, v := f.linear(at+"q_proj", x), f.linear(at+"k_proj", x), f.linear(at+"v_proj", x)
		if gated {
			for g := range f.groups {
				head := f.norm(at+"k_norm", k[g*n:][:n])
				f.rotate(head, t)
				copy(k[g*n:], head)
			}
		}
		keys, values = append(keys, k), append(values, v)
		y := make([]float64, f.heads*n)
		for h := range f.heads {
			query := q[h*n:]
			if gated {
				query = f.norm(at+"q_norm", q[2*h*n:][:n])
				f.rotate(query, t)
			}
			g, sum := h/(f.heads/f.groups), 0.0
			for s := range t + 1 {
				score := 0.0
				for c := range n {
					score += query[c] * keys[s][g*n+c]
				}
				p := math.Exp(score / math.Sqrt(float64(n)))
				sum += p
				for c := range n {
					y[h*n+c] += p * values[s][g*n+c]
				}
			}
			for c := range n {
				if y[h*n+c] /= sum; gated {
					y[h*n+c] *= logistic(q[(2*h+1)*n+c])
				}
			}
		}
		out = append(out, f.linear(at+"o_proj", y))
	}
	return out
}

// gate is down(silu(gate x) · up x).
func swiglu(gate, up, down [][]float64, x []float64) []float64 {
	g, u := times(gate, x), times(up, x)
	for i := range g {
		g[i] *= logistic(g[i]) * u[i]
	}
	return times(down, g)
}

// best lists the indices of the top scores.
func (f *mtpForward) best(scores []float64) []int {
	index := make([]int, len(scores))
	for i := range index {
		index[i] = i
	}
	slices.SortFunc(index, func(a, b int) int { return int(math.Copysign(1, scores[b]-scores[a])) })
	return index[:f.top]
}

// qwenMLP is the feed-forward network of Qwen: dense, or experts and a shared one.
func (f *mtpForward) qwenMLP(at string, x []float64) []float64 {
	m := func(name string, nth int) [][]float64 { return f.matrix(at+name, nth) }
	if !f.has(at + "gate.weight") {
		return swiglu(m("gate_proj.weight", 0), m("up_proj.weight", 0), m("down_proj.weight", 0), x)
	}
	scores, sum := f.linear(at+"gate", x), 0.0
	chosen := f.best(scores)
	for _, e := range chosen {
		sum += math.Exp(scores[e])
	}
	shared := swiglu(m("shared_expert.gate_proj.weight", 0), m("shared_expert.up_proj.weight", 0), m("shared_expert.down_proj.weight", 0), x)
	out := make([]float64, len(x))
	share := logistic(f.linear(at+"shared_expert_gate", x)[0])
	for i, v := range shared {
		out[i] = share * v
	}
	for _, e := range chosen {
		var gate, up, down [][]float64
		if f.has(at + "experts.gate_up_proj") {
			both := m("experts.gate_up_proj", e)
			gate, up, down = both[:len(both)/2], both[len(both)/2:], m("experts.down_proj", e)
		} else {
			one := fmt.Sprintf("experts.%d.", e)
			gate, up, down = m(one+"gate_proj.weight", 0), m(one+"up_proj.weight", 0), m(one+"down_proj.weight", 0)
		}
		for i, v := range swiglu(gate, up, down, x) {
			out[i] += math.Exp(scores[e]) / sum * v
		}
	}
	return out
}

// nemotronExperts is the mixture of experts of Nemotron 3, in a latent space, with scaled weights.
func (f *mtpForward) nemotronExperts(at string, x []float64, scale float64) []float64 {
	square := func(name string, x []float64) []float64 {
		h := f.linear(name+"up_proj", x)
		for i, v := range h {
			h[i] = max(v, 0) * max(v, 0)
		}
		return f.linear(name+"down_proj", h)
	}
	scores, sum := f.linear(at+"gate", x), 0.0
	for i := range scores {
		scores[i] = logistic(scores[i])
	}
	chosen := f.best(added(scores, f.vector(at+"gate.e_score_correction_bias")))
	for _, e := range chosen {
		sum += scores[e]
	}
	latent := f.linear(at+"fc1_latent_proj", x)
	y := make([]float64, len(latent))
	for _, e := range chosen {
		for i, v := range square(fmt.Sprintf("%sexperts.%d.", at, e), latent) {
			y[i] += scores[e] / sum * scale * v
		}
	}
	return added(f.linear(at+"fc2_latent_proj", y), square(at+"shared_experts.", x))
}

// run returns the hidden state and logits of each pair of a hidden state and a token.
func (f *mtpForward) run(hidden [][]float64, ids []int, normE, normH, fc, last string, layers func(rows [][]float64) [][]float64) (states, logits [][]float64) {
	table, head := f.matrix(f.embeddings, 0), f.matrix("lm_head.weight", 0)
	var rows [][]float64
	for i, id := range ids {
		rows = append(rows, f.linear(fc, slices.Concat(f.norm(normE, table[id]), f.norm(normH, hidden[i]))))
	}
	for _, x := range layers(rows) {
		x = f.norm(last, x)
		states, logits = append(states, x), append(logits, times(head, x))
	}
	return states, logits
}

// qwen is the head of Qwen3-Next and Qwen3.5.
func (f *mtpForward) qwen(hidden [][]float64, ids []int) (states, logits [][]float64) {
	return f.run(hidden, ids, "mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden", "mtp.fc", "mtp.norm", func(rows [][]float64) [][]float64 {
		var normed [][]float64
		for _, x := range rows {
			normed = append(normed, f.norm("mtp.layers.0.input_layernorm", x))
		}
		for i, y := range f.attend("mtp.layers.0.self_attn.", normed) {
			x := added(rows[i], y)
			rows[i] = added(x, f.qwenMLP("mtp.layers.0.mlp.", f.norm("mtp.layers.0.post_attention_layernorm", x)))
		}
		return rows
	})
}

// nemotron is the head of Nemotron 3.
func (f *mtpForward) nemotron(hidden [][]float64, ids []int) (states, logits [][]float64) {
	return f.run(hidden, ids, "mtp.layers.0.enorm", "mtp.layers.0.hnorm", "mtp.layers.0.eh_proj", "mtp.layers.1.final_layernorm", func(rows [][]float64) [][]float64 {
		var normed [][]float64
		for _, x := range rows {
			normed = append(normed, f.norm("mtp.layers.0.norm", x))
		}
		for i, y := range f.attend("mtp.layers.0.mixer.", normed) {
			x := added(rows[i], y)
			rows[i] = added(x, f.nemotronExperts("mtp.layers.1.mixer.", f.norm("mtp.layers.1.norm", x), 2.5))
		}
		return rows
	})
}

// headedGoldens are the families with heads, and how their forward computes them.
var headedGoldens = map[string]mtpForward{
	"qwen3-next":        {embeddings: "model.embed_tokens.weight", eps: 1e-6, heads: 4, groups: 2, size: 16, rotary: 4, theta: 1e4, top: 2, centred: true},
	"qwen3-5":           {embeddings: "model.embed_tokens.weight", eps: 1e-6, heads: 4, groups: 2, size: 16, rotary: 8, theta: 1e6, centred: true},
	"qwen3-5-moe":       {embeddings: "model.embed_tokens.weight", eps: 1e-6, heads: 4, groups: 2, size: 16, rotary: 8, theta: 1e6, top: 2, centred: true},
	"nemotron-h-latent": {embeddings: "backbone.embeddings.weight", eps: 1e-5, heads: 4, groups: 2, size: 16, top: 2},
}

// TestMTPForward: logits and hidden states of the heads, in chunks, are those of a float64 forward
// written from vLLM's, on one rank and on two.
func TestMTPForward(t *testing.T) {
	for golden, f := range headedGoldens {
		for ranks := range 2 {
			t.Run(fmt.Sprint(golden, " ranks ", ranks+1), func(t *testing.T) {
				m, err := Open(headed(t, golden, nil), Options{Slots: 1, Speculate: "mtp", Sharding: Sharding{Ranks: ranks + 1, Strategy: []string{"", "sequence"}[ranks]}})
				if err != nil {
					t.Fatal(err)
				}
				defer m.Close()
				if n := len(m.drafts.engine.Schedules()); n != ranks+1 {
					t.Errorf("the head has %d ranks", n)
				}
				r := rand.New(rand.NewPCG(prop.Seed(t), 1))
				f.weights = m.source.weights
				var hidden [][]float64
				var rows []float32
				var ids []int
				const tokens, width = 20, 48
				for range tokens {
					x := make([]float64, width)
					for i := range x {
						rows = append(rows, float32(r.NormFloat64()))
						x[i] = float64(rows[len(rows)-1])
					}
					hidden, ids = append(hidden, x), append(ids, r.IntN(256))
				}
				run := f.qwen
				if !f.centred {
					run = f.nemotron
				}
				states, logits := run(hidden, ids)
				slot, err := m.drafts.engine.Alloc()
				if err != nil {
					t.Fatal(err)
				}
				for at := 0; at < tokens; {
					n := min(1+r.IntN(7), tokens-at)
					b := exec.Batch{Sequences: []exec.Sequence{{Slot: slot, Tokens: ids[at:][:n]}}, Inputs: map[string]graph.Array{"hidden": graph.ArrayOf(rows[at*width:][:n*width], n, width)}}
					out, err := m.drafts.engine.Step(t.Context(), &b)
					if err != nil {
						t.Fatal(err)
					}
					at += n
					for name, want := range map[string][]float64{"hidden": states[at-1], "logits": logits[at-1]} {
						got, err := out.Output(name)
						if err != nil {
							t.Fatal(err)
						}
						for i, w := range want {
							if d := math.Abs(float64(got.Row(0)[i]) - w); !(d <= 1e-4) {
								t.Fatalf("token %d: %s %d is %v, want %v", at-1, name, i, got.Row(0)[i], w)
							}
						}
					}
				}
			})
		}
	}
}

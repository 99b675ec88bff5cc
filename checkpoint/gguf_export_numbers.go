package checkpoint

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/krait-ml/krait/checkpoint/gguf"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/models"
)

// converted is an array in the format of a tensor, of whose matrices it has those from first on.
func (e *ggufExport) converted(a graph.Array, t gguf.Tensor, first int) ([]byte, error) {
	to := t.Type
	if mixed, ok := e.types[t.Name]; ok {
		to = mixed
	}
	d := to.DType()
	weights, err := e.importance(a, t, d, first)
	if err != nil {
		return nil, err
	}
	return e.out.convert(a, d, weights, func(rows graph.Array, weights []float32) ([]byte, error) {
		made, err := converted(rows, d, weights)
		if err == nil && d.Quantized() {
			e.out.Loss.Add(rows.Float32s(), made.Float32s())
		}
		return made.Data, err
	})
}

// importance is the weights of columns, [matrices cols], nil if there are none.
func (e *ggufExport) importance(a graph.Array, t gguf.Tensor, to graph.DType, first int) ([]float32, error) {
	if e.mixture.Importance == nil || !to.Quantized() || to == a.DType || to == graph.Q8 {
		return nil, nil
	}
	last := len(t.Shape) - 1
	cols, all, here := t.Shape[last], 1, 1
	for _, n := range t.Shape[:last-1] {
		all *= n
	}
	for _, n := range a.Shape[:len(a.Shape)-2] {
		here *= n
	}
	weights, err := e.mixture.Importance(t.Name, all, cols)
	if err != nil {
		return nil, err
	}
	if first == 0 {
		e.out.Weighable++
	}
	if weights == nil {
		if first == 0 {
			e.out.Unweighed++
		}
		return nil, nil
	}
	return weights[first*cols:][:here*cols], nil
}

// converted is an array in a format of GGUF, rounded with the weights of its columns if there are
// some.
func converted(a graph.Array, to graph.DType, weights []float32) (graph.Array, error) {
	if weights != nil {
		wide, err := a.Convert(graph.F32)
		if err != nil {
			return wide, err
		}
		return wide.ToBlocks(to, weights)
	}
	b, err := a.Convert(to)
	if err == nil && to == graph.F16 {
		for _, v := range a.Float32s() {
			if math.Abs(float64(v)) >= 65520 && !math.IsInf(float64(v), 0) {
				return b, fmt.Errorf("an element is %g, which f16 cannot hold; choose another type", v)
			}
		}
	}
	return b, err
}

// scaled multiplies rows.
func scaled(a graph.Array, by []float64) graph.Array {
	x := a.Float32s()
	line := len(x) / max(1, len(by))
	for i := range x {
		x[i] *= float32(by[i/line])
	}
	return graph.ArrayOf(x, a.Shape...)
}

// rates are A of A_log.
func rates(logs []float32) []float32 {
	out := make([]float32, len(logs))
	for i, x := range logs {
		out[i] = float32(-min(math.Exp(float64(x)), math.MaxFloat32))
	}
	return out
}

// logs are A_log of A, as near as they can be told.
func logs(rates []float32) []float32 {
	out := make([]float32, len(rates))
	for i, a := range rates {
		out[i] = float32(math.Log(-float64(a)))
	}
	return out
}

// keepRates writes A_log where A does not give it back.
func (e *ggufExport) keepRates(layer int, name string) {
	a, err := e.Tensor(name)
	if err != nil {
		e.errs = append(e.errs, err)
		return
	}
	if x := a.Float32s(); !slices.Equal(logs(rates(x)), x) {
		e.put(ggufKeepRates+strconv.Itoa(layer), x)
	}
}

// keptRates is A_log as the metadata have it, where it is that of A; nil where not.
func keptRates(f *gguf.File, name string, a []float32) []float32 {
	for part := range strings.SplitSeq(name, ".") {
		v, _ := f.Value(ggufKeepRates + part)
		if x, ok := v.([]float32); ok && slices.Equal(rates(x), a) {
			return x
		}
	}
	return nil
}

// bytesOf are values in f32.
func bytesOf(x []float32) []byte {
	out := make([]byte, 0, 4*len(x))
	for _, v := range x {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
	}
	return out
}

// falconFactors are the factors of the config that go into the matrices, for each row.
func falconFactors(c *models.Config) func(rest string, rows int) []float64 {
	in, out := c.Scale("attention_in_multiplier"), c.Scale("attention_out_multiplier")
	ssmIn, ssmOut, key := c.Scale("ssm_in_multiplier"), c.Scale("ssm_out_multiplier"), c.Scale("key_multiplier")
	fields, mlp := c.Scales("ssm_multipliers", 5), c.Scales("mlp_multipliers", 2)
	group := c.Int("mamba_n_groups", 1, 1) * c.Int("mamba_d_state", 256, 1)
	heads := c.Int("mamba_n_heads", 128, 1)
	whole := map[string]float64{
		"token_embd.weight": c.Scale("embedding_multiplier"), "output.weight": c.Scale("lm_head_multiplier"),
		"attn_q.weight": in, "attn_k.weight": in * key, "attn_v.weight": in, "attn_k.bias": key, "attn_output.weight": out, "attn_output.bias": out,
		"ssm_out.weight": ssmOut, "ssm_out.bias": ssmOut, "ffn_gate.weight": mlp[0], "ffn_gate.bias": mlp[0], "ffn_down.weight": mlp[1], "ffn_down.bias": mlp[1],
	}
	return func(rest string, rows int) []float64 {
		by := slices.Repeat([]float64{1}, rows)
		switch rest {
		case "ssm_in.weight", "ssm_in.bias":
			inner := (rows - 2*group - heads) / 2
			for i := range by {
				field := 0
				for _, end := range []int{inner, 2 * inner, 2*inner + group, 2*inner + 2*group} {
					if i >= end {
						field++
					}
				}
				if by[i] = fields[field]; rest == "ssm_in.weight" {
					by[i] *= ssmIn
				}
			}
		default:
			f, ok := whole[rest]
			if !ok || f == 1 {
				return nil
			}
			for i := range by {
				by[i] = f
			}
		}
		if slices.Max(by) == 1 && slices.Min(by) == 1 {
			return nil
		}
		return by
	}
}

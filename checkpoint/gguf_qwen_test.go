package checkpoint

import (
	"fmt"
	"slices"
	"testing"

	"github.com/krait-ml/krait/checkpoint/gguf"
)

// TestHeadsOfValues: GGUF files of gated delta nets are as llama.cpp's converter writes them: heads
// of values tiled, but for qwen3next, fields grouped by heads of keys apart, and norms plus 1.
func TestHeadsOfValues(t *testing.T) {
	const keys, per, key, value, hidden = 2, 2, 8, 12, 48
	tile := func(x []float32, width int) (out []float32) { // [keys per width] to [per keys width]
		for j := range per {
			for k := range keys {
				out = append(out, x[(k*per+j)*width:][:width]...)
			}
		}
		return out
	}
	grouped := func(x []float32, at, width int) (out []float32) { // a field of [keys fields]
		for k := range keys {
			out = append(out, x[(k*(2*key+2*per*value)+at)*hidden:][:width*hidden]...)
		}
		return out
	}
	for _, c := range []struct {
		golden, theirs, ours string
		want                 func(x []float32) []float32
	}{
		{"qwen3-5", "attn_gate.weight", "in_proj_z.weight", func(x []float32) []float32 { return tile(x, value*hidden) }},
		{"qwen3-5", "attn_qkv.weight", "in_proj_qkv.weight", func(x []float32) []float32 {
			qk := 2 * keys * key * hidden
			return slices.Concat(x[:qk], tile(x[qk:], value*hidden))
		}},
		{"qwen3-5", "ssm_conv1d.weight", "conv1d.weight", func(x []float32) []float32 {
			qk := 2 * keys * key * 4
			return slices.Concat(x[:qk], tile(x[qk:], value*4))
		}},
		{"qwen3-5", "ssm_alpha.weight", "in_proj_a.weight", func(x []float32) []float32 { return tile(x, hidden) }},
		{"qwen3-5", "ssm_dt.bias", "dt_bias", func(x []float32) []float32 { return tile(x, 1) }},
		{"qwen3-5", "ssm_a", "A_log", func(x []float32) []float32 { return tile(rates(x), 1) }},
		{"qwen3-5", "ssm_norm.weight", "norm.weight", func(x []float32) []float32 { return x }},
		{"qwen3-5", "ssm_out.weight", "out_proj.weight", func(x []float32) (out []float32) {
			for row := range slices.Chunk(x, keys*per*value) {
				out = append(out, tile(row, value)...)
			}
			return out
		}},
		{"qwen3-5", "attn_norm.weight", "../input_layernorm.weight", plusOne},
		{"qwen3-next", "attn_qkv.weight", "in_proj_qkvz.weight", func(x []float32) []float32 {
			return slices.Concat(grouped(x, 0, key), grouped(x, key, key), grouped(x, 2*key, per*value))
		}},
		{"qwen3-next", "attn_gate.weight", "in_proj_qkvz.weight", func(x []float32) []float32 { return grouped(x, 2*key+per*value, per*value) }},
		{"qwen3-next", "ssm_ba.weight", "in_proj_ba.weight", func(x []float32) []float32 { return x }},
		{"qwen3-next", "post_attention_norm.weight", "../post_attention_layernorm.weight", plusOne},
	} {
		ck, err := Open("../testdata/golden/" + c.golden)
		if err != nil {
			t.Fatal(err)
		}
		defer ck.Close()
		prefix := map[string]string{"qwen3-5": nestedPrefix, "qwen3-next": "model."}[c.golden] + "layers.0."
		ours := prefix + "linear_attn." + c.ours
		if c.ours[:2] == ".." {
			ours = prefix + c.ours[3:]
		}
		a, err := ck.Tensor(ours)
		if err != nil {
			t.Fatal(err)
		}
		_, tensors := ggufOf(t, c.golden)
		i := slices.IndexFunc(tensors, func(x gguf.Tensor) bool { return x.Name == "blk.0."+c.theirs })
		if i < 0 {
			t.Fatalf("%s: no %s", c.golden, c.theirs)
		}
		got, err := tensors[i].Float32s()
		if want := c.want(a.Float32s()); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %s is not what llama.cpp makes of %s: %v", c.golden, c.theirs, ours, err)
		}
	}
}

func plusOne(x []float32) []float32 {
	for i := range x {
		x[i]++
	}
	return x
}

// TestHeadsOfValuesBack: the order that is read is the inverse of the one that is written.
func TestHeadsOfValuesBack(t *testing.T) {
	for _, h := range []ggufHeads{{2, 6, 3, 5}, {3, 6, 1, 2}, {4, 4, 2, 2}, {1, 5, 2, 3}} {
		for _, rest := range []string{"attn_qkv.weight", "attn_gate.weight", "ssm_alpha.weight", "ssm_a", "ssm_out.weight", "attn_q.weight"} {
			rows, line := h.values, 7
			switch rest {
			case "attn_qkv.weight":
				rows = 2*h.keys*h.key + h.values*h.value
			case "attn_gate.weight":
				rows = h.values * h.value
			case "ssm_out.weight":
				rows, line = 11, h.values*h.value
			}
			data := make([]byte, rows*line)
			for i := range data {
				data[i] = byte(i)
			}
			tiles := h.tiles(rest, rows, line)
			if moves := rest != "attn_q.weight" && h.values > h.keys; moves != (tiles.width > 0) {
				t.Errorf("%v %s: %+v", h, rest, tiles)
			}
			if tiles.width == 0 {
				continue
			}
			there := h.order(data, tiles, false)
			if back := h.order(there, tiles, true); !slices.Equal(back, data) || h.keys > 1 && slices.Equal(there, data) {
				t.Errorf("%s", fmt.Sprint(h, rest, ": ", back))
			}
		}
	}
}

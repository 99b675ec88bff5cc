package models

import (
	"strings"
	"testing"
)

// TestConfigText: what is written reads as what was read.
func TestConfigText(t *testing.T) {
	const text = `{"num_hidden_layers": 4, "time_step_limit": [0.0, Infinity], "layers_block_type": ["a", "b", "c", "d"],
"layer_types": ["a", "b", "b", "c"], "hybrid_override_pattern": "M-*E",
"attn_layer_indices": [1, 3], "note": "Infinity \\ and \"NaN\""}`
	c, err := ParseConfig("config.json", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Cut(3); err != nil {
		t.Fatal(err)
	}
	c.Set("vocab_size", 7)
	out, err := c.Text()
	if err != nil {
		t.Fatal(err)
	}
	again, err := ParseConfig("config.json", out)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if n := again.Int("num_hidden_layers", 0, 1); n != 3 {
		t.Errorf("%d layers", n)
	}
	if n := again.Int("vocab_size", 0, 1); n != 7 {
		t.Errorf("%d tokens", n)
	}
	if r := again.Range("time_step_limit"); r[1] < 1e300 {
		t.Errorf("limits %v", r)
	}
	if k := again.Kinds("layers_block_type", 3, "a", "b", "c"); len(k) != 3 {
		t.Errorf("kinds %v", k)
	}
	if k := again.Kinds("layer_types", 3, "a", "b"); len(k) != 3 {
		t.Errorf("kinds %v", k)
	}
	if p := again.values["hybrid_override_pattern"]; p != "M-*" {
		t.Errorf("pattern %v", p)
	}
	if i := again.Indices("attn_layer_indices", 3); len(i) != 1 {
		t.Errorf("indices %v", i)
	}
	if again.values["note"] != c.values["note"] || len(again.errs) > 0 {
		t.Errorf("%v, %v", again.values, again.errs)
	}
	if err := c.Cut(4); err == nil || !strings.Contains(err.Error(), "4 layers cannot be cut from num_hidden_layers 3") {
		t.Errorf("got %v", err)
	}
}

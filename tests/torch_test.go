package tests

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/checkpoint/safetensors"
	"github.com/krait-ml/krait/internal/torchsave"
)

var torchClasses = map[string]string{"F32": "FloatStorage", "F16": "HalfStorage", "BF16": "BFloat16Storage", "F64": "DoubleStorage"}

// torchFolder is a golden as PyTorch writes it, with another config where edit makes one,
// and other names where rename does.
func torchFolder(t *testing.T, golden string, edit func(config map[string]any) map[string]any, rename func(name string) string) string {
	t.Helper()
	set, err := safetensors.OpenDir(filepath.Join("../testdata/golden", golden))
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	var list []torchsave.Tensor
	for _, name := range set.Names() {
		x, _ := set.Tensor(name)
		n := 1
		for _, d := range x.Shape {
			n *= d
		}
		list = append(list, torchsave.Tensor{Name: rename(name), Class: torchClasses[x.DType], Shape: x.Shape, Elems: n, Data: x.Data})
		if name == "backbone.embeddings.weight" && golden == "mamba-a" { // which the original code has twice
			again := list[len(list)-1]
			again.Name = "lm_head.weight"
			list = append(list, again)
		}
	}
	dir := filepath.Join(t.TempDir(), golden)
	data, err := torchsave.Archive(torchsave.Program(list), list)
	if err == nil {
		err = os.Mkdir(dir, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "pytorch_model.bin"), data, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join("../testdata/golden", golden, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	if edit != nil {
		var config map[string]any
		if err := json.Unmarshal([]byte(strings.ReplaceAll(string(text), "Infinity", "1e300")), &config); err != nil {
			t.Fatal(err)
		}
		if text, err = json.Marshal(edit(config)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

func same(name string) string { return name }

// TestTorch: folders with a pytorch_model.bin are those with safetensors, and folders of
// the original code the same models: with one norm for each group of Mamba-2, though.
func TestTorch(t *testing.T) {
	original := func(name string) string {
		return strings.Replace(name, "backbone.embeddings.", "backbone.embedding.", 1)
	}
	theirs := func(c map[string]any) map[string]any {
		cfg := map[string]any{"d_state": c["state_size"], "d_conv": c["conv_kernel"], "expand": c["expand"]}
		tied := true
		if c["model_type"] == "mamba2" {
			cfg["layer"], cfg["headdim"], cfg["ngroups"] = "Mamba2", c["head_dim"], c["n_groups"]
			tied = c["tie_word_embeddings"] == true
		} else {
			cfg["dt_rank"] = c["time_step_rank"]
		}
		return map[string]any{"d_model": c["hidden_size"], "n_layer": c["num_hidden_layers"], "vocab_size": c["vocab_size"].(float64) - 3, "pad_vocab_size_multiple": 8,
			"ssm_cfg": cfg, "rms_norm": true, "residual_in_fp32": true, "fused_add_norm": true, "tie_embeddings": tied, "attn_layer_idx": []int{}, "attn_cfg": map[string]any{}}
	}
	for _, golden := range []string{"mamba-a", "mamba2-g1", "jamba"} {
		nearLogits(t, torchFolder(t, golden, nil, same), filepath.Join("../testdata/golden", golden), krait.Options{}, 0)
	}
	for _, golden := range []string{"mamba-a", "mamba2-g1"} {
		nearLogits(t, torchFolder(t, golden, theirs, original), filepath.Join("../testdata/golden", golden), krait.Options{Sharding: krait.Sharding{Ranks: 2}}, 1e-4)
	}
	grouped := torchFolder(t, "mamba2-g4", func(c map[string]any) map[string]any {
		c["gated_norm_groups"] = c["n_groups"]
		delete(c, "time_step_limit")
		return c
	}, same)
	nearLogits(t, torchFolder(t, "mamba2-g4", theirs, original), grouped, krait.Options{}, 0)
	whole := logitsAfter(t, "../testdata/golden/mamba2-g4", krait.Options{})
	if got := logitsAfter(t, grouped, krait.Options{}); fmt.Sprint(got) == fmt.Sprint(whole) {
		t.Error("one norm for each group gives what one over all gives")
	}
}

// TestStateSpacesErrors: what the original code can do and Krait cannot is said.
func TestStateSpacesErrors(t *testing.T) {
	for want, change := range map[string]func(c map[string]any){
		"attn_layer_idx is [1]; it must be absent":        func(c map[string]any) { c["attn_layer_idx"] = []int{1} },
		"d_intermediate is 64; it must be absent":         func(c map[string]any) { c["d_intermediate"] = 64 },
		"rms_norm is false; it must be true":              func(c map[string]any) { c["rms_norm"] = false },
		"ssm_cfg: layer is \"Mamba3\"; it must be one of": func(c map[string]any) { c["ssm_cfg"] = map[string]any{"layer": "Mamba3"} },
		"ssm_cfg: norm_before_gate is true; it must be absent": func(c map[string]any) {
			c["ssm_cfg"] = map[string]any{"layer": "Mamba2", "headdim": 16, "norm_before_gate": true}
		},
		"ssm_cfg: wings is 2; it must be absent: Krait does not know": func(c map[string]any) { c["ssm_cfg"] = map[string]any{"wings": 2} },
		"ssm_cfg: headdim is 7; it must be a divisor of the inner width, 128": func(c map[string]any) {
			c["ssm_cfg"] = map[string]any{"layer": "Mamba2", "headdim": 7}
		},
		"ssm_cfg is 3; it must be an object": func(c map[string]any) { c["ssm_cfg"] = 3 },
	} {
		dir := torchFolder(t, "mamba-a", func(map[string]any) map[string]any {
			c := map[string]any{"d_model": 64, "n_layer": 3, "vocab_size": 256, "ssm_cfg": map[string]any{"dt_rank": 8}}
			change(c)
			return c
		}, same)
		if _, err := krait.Open(dir, krait.Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

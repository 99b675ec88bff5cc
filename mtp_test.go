package krait

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/krait-ml/krait/checkpoint/synth"
	"github.com/krait-ml/krait/text/tokenizer"
)

// headed writes a checkpoint like a golden with random weights and an MTP head, in f32.
func headed(t *testing.T, golden string, keys map[string]any) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata/golden", golden, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var config map[string]any
	if err := json.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	in := config
	if nested, ok := config["text_config"].(map[string]any); ok {
		in = nested
	}
	in["mtp_num_hidden_layers"] = 1
	if golden == "nemotron-h-latent" {
		delete(in, "mtp_num_hidden_layers")
		in["num_nextn_predict_layers"] = 1
	}
	for k, v := range keys {
		in[k] = v
	}
	if text, err = json.Marshal(config); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if _, err := synth.Write(t.Context(), dir, synth.Options{Config: text, From: golden, DType: "f32", Force: true}); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestMTP(t *testing.T) {
	for _, golden := range []string{"qwen3-next", "qwen3-5", "qwen3-5-moe", "nemotron-h-latent"} {
		t.Run(golden, func(t *testing.T) {
			m, err := Open(headed(t, golden, nil), Options{Slots: 2, Speculate: "mtp"})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			m.tokens = tokenizer.Bytes{}
			for _, w := range m.Warnings {
				t.Error(w)
			}
			prompt := []int{'a', 'b', 'c', 'a', 'b'}
			want, err := m.GenerateIDs(t.Context(), prompt, Generate{MaxTokens: 60, Speculate: "off", IgnoreEOS: true})
			if err != nil {
				t.Fatal(err)
			}
			g, err := m.newGenerator(prompt, Generate{MaxTokens: 60, IgnoreEOS: true})
			if err != nil {
				t.Fatal(err)
			}
			g.eager = true
			g.finish(g.run(t.Context(), prompt))
			if wrong := same(g.out, want); wrong != "" || g.err != nil {
				t.Error(wrong, g.err)
			}
			t.Logf("%d of %d by %s", g.out.Accepted, g.out.Drafts, g.out.Drafter)
		})
	}
}

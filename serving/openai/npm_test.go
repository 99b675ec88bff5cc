package openai_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/serving/openai"
)

// TestOpenAIPackage: OpenAI's own package for Node, of the version in testdata/npm, gets from
// every call that is supported what Krait generates, streamed or not, and knows the errors.
func TestOpenAIPackage(t *testing.T) {
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("there is no node")
	}
	if _, err := os.Stat("testdata/npm/node_modules/openai"); err != nil {
		t.Skip("its package is not there: npm ci in serving/openai/testdata/npm")
	}
	keys, err := openai.ReadKeys(strings.NewReader(fmt.Sprintf("ann %x\n", sha256.Sum256([]byte("sesame")))))
	if err != nil {
		t.Fatal(err)
	}
	s, h, m := server(t, openai.Options{Keys: keys}, 2)
	caller := play(t, actor{"<think>\nLet me see.\n</think>\n\nOne moment.\n" + scripts["hermes"], thinker(false), nil}, openai.Options{})
	node := exec.Command("node", "calls.mjs", h.URL+"/v1", "sesame", genesis, caller.URL+"/v1")
	node.Dir = "testdata/npm"
	var said strings.Builder
	node.Stderr = &said
	text, err := node.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, said.String())
	}
	var out struct {
		Text  string
		Usage struct {
			Completion int `json:"completion_tokens"`
		}
		Calls []string
	}
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	want, err := m.Generate(t.Context(), genesis, krait.Generate{MaxTokens: 24, Temperature: 0.8, Seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	if out.Text != want.Text || out.Usage.Completion != len(want.IDs) {
		t.Errorf("the package got %q of %d tokens, and Generate gives %q of %d", out.Text, out.Usage.Completion, want.Text, len(want.IDs))
	}
	if len(out.Calls) != 20 {
		t.Errorf("calls: %q", out.Calls)
	}
	until(t, "the server is idle", func() bool { return s.Load() == openai.Load{} })
}

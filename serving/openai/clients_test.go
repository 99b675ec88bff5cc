package openai_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/serving/openai"
)

// stage is what the clients of others are run against, as the JSON of their first argument.
type stage struct {
	API      string `json:"api"` // the embedded model, of a server with keys
	Key      string `json:"key"`
	Prompt   string `json:"prompt"`
	Caller   string `json:"caller"`   // a model that thinks, says something and calls two functions
	Required string `json:"required"` // the same without the sentence
	Recipe   string `json:"recipe"`   // models that say JSON
	Computer string `json:"computer"`
}

// newStage serves the models.
func newStage(t *testing.T) (stage, *krait.Model, *openai.Server) {
	t.Helper()
	keys, err := openai.ReadKeys(strings.NewReader(fmt.Sprintf("ann %x\n", sha256.Sum256([]byte("sesame")))))
	if err != nil {
		t.Fatal(err)
	}
	s, h, m := server(t, openai.Options{Keys: keys}, 2)
	says := func(text, template string) string {
		return play(t, actor{text, template, nil}, openai.Options{Name: "tiny-mamba"}).URL + "/v1"
	}
	return stage{
		API: h.URL + "/v1", Key: "sesame", Prompt: genesis,
		Caller:   says("<think>\nLet me see.\n</think>\n\nOne moment.\n"+scripts["hermes"], thinker(false)),
		Required: says("<think>\nLet me see.\n</think>\n\n"+scripts["hermes"], thinker(false)),
		Recipe:   says(`{"recipe": {"name": "Lasagna", "ingredients": [{"name": "noodles", "amount": "9 sheets"}], "steps": ["Layer all.", "Bake it."]}}`, chatting("")),
		Computer: says(`{"full_name": "Mark I", "legacy": "positive", "notable_facts": ["It could see.", "It learned."], "origin": {"organization": "Cornell", "year_of_construction": 1958}}`, chatting("")),
	}, m, s
}

// said runs a client, and reads what it says.
func (s stage) said(t *testing.T, dir, name string, args ...string) (out struct {
	Calls  []string
	Text   string
	Tokens int
}) {
	t.Helper()
	given, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	client := exec.Command(name, append(args, string(given))...)
	client.Dir = dir
	var wrong strings.Builder
	client.Stderr = &wrong
	text, err := client.Output()
	if err != nil {
		t.Fatalf("%v: %s%s", err, text, wrong.String())
	}
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return out
}

// TestNPM: OpenAI's package for Node, Vercel's AI SDK and LangChain, of the versions in
// testdata/npm, run the examples of their documentation, and know the errors. OpenAI's gets what
// Krait generates, streamed or not.
func TestNPM(t *testing.T) {
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("there is no node")
	}
	const dir = "testdata/npm"
	if _, err := os.Stat(filepath.Join(dir, "node_modules/@langchain/openai")); err != nil {
		t.Skip("the packages are not there: npm ci in serving/openai/testdata/npm")
	}
	given, m, s := newStage(t)
	for script, calls := range map[string]int{"openai": 26, "ai": 47, "langchain": 30} {
		t.Run(script, func(t *testing.T) {
			out := given.said(t, dir, "node", script+".mjs")
			if len(out.Calls) != calls {
				t.Errorf("%d calls: %q", len(out.Calls), out.Calls)
			}
			if script != "openai" {
				return
			}
			want, err := m.Generate(t.Context(), genesis, krait.Generate{MaxTokens: 24, Temperature: 0.8, Seed: 7})
			if err != nil {
				t.Fatal(err)
			}
			if out.Text != want.Text || out.Tokens != len(want.IDs) {
				t.Errorf("the package got %q of %d tokens, and Generate gives %q of %d", out.Text, out.Tokens, want.Text, len(want.IDs))
			}
		})
	}
	until(t, "the server is idle", func() bool { return s.Load() == openai.Load{} })
}

// TestGoModules: OpenAI's package for Go, and the one of its community, of the versions in
// testdata/clients, run the examples of their documentation, and know the errors.
func TestGoModules(t *testing.T) {
	if !goldens.All() {
		t.Skip("CI builds the clients for Go, which takes as long as all else here")
	}
	const dir = "testdata/clients"
	program := filepath.Join(t.TempDir(), "clients")
	// OpenAI's package is large: to optimize it takes longer than all else.
	build := exec.Command("go", "build", "-gcflags=github.com/openai/...=-N -l -dwarf=false", "-ldflags=-s -w", "-o", program, ".")
	build.Dir, build.Env = dir, append(os.Environ(), "GOPROXY=off", "GOFLAGS=-mod=readonly -trimpath")
	if text, err := build.CombinedOutput(); strings.Contains(string(text), "GOPROXY=off") {
		t.Skip("the modules are not there: go mod download in serving/openai/testdata/clients")
	} else if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	given, _, s := newStage(t)
	if out := given.said(t, dir, program); len(out.Calls) != 32 {
		t.Errorf("%d calls: %q", len(out.Calls), out.Calls)
	}
	until(t, "the server is idle", func() bool { return s.Load() == openai.Load{} })
}

package krait

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/krait-ml/krait/text/chat"
)

// TestChatTemplate: of a folder, of a GGUF file, and without one.
func TestChatTemplate(t *testing.T) {
	for _, path := range []string{"testdata/golden/mamba-a", "testdata/golden/gguf/mamba-a-f32.gguf"} {
		if _, err := openModel(t, path, Options{}).ChatTemplate(); !errors.Is(err, chat.ErrNone) {
			t.Errorf("%s: %v", path, err)
		}
	}
	dir := t.TempDir()
	for name, from := range map[string]string{"config.json": "testdata/golden/mamba-a/config.json", "model.safetensors": "testdata/golden/mamba-a/model.safetensors"} {
		data, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), data, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "chat_template.jinja"), []byte("{{ messages[0].content }}!"), 0o644); err != nil {
		t.Fatal(err)
	}
	tmpl, err := openModel(t, dir, Options{}).ChatTemplate()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := tmpl.Render([]chat.Message{{Content: "a"}}, chat.Options{}); got != "a!" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

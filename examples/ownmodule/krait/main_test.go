package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// asKrait makes the program of the tests run as krait.
const asKrait = "OWNMODULE_AS_KRAIT"

func TestMain(m *testing.M) {
	if os.Getenv(asKrait) != "" {
		main()
	}
	os.Exit(m.Run())
}

// krait runs a command and returns its output.
func krait(t *testing.T, args ...string) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(path, args...)
	c.Env = append(os.Environ(), asKrait+"=1")
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("krait %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// TestCommands: commands of krait know the module's family and operation.
func TestCommands(t *testing.T) {
	dir := t.TempDir()
	config, text, model := filepath.Join(dir, "config.json"), filepath.Join(dir, "leaky.ir"), filepath.Join(dir, "model")
	const small = `{"model_type": "acme_leaky", "vocab_size": 256, "hidden_size": 12, "intermediate_size": 20, "num_hidden_layers": 2}`
	if err := os.WriteFile(config, []byte(small), 0o644); err != nil {
		t.Fatal(err)
	}
	krait(t, "graph", dir, "-o", text)
	for _, from := range []string{dir, text} {
		if out := krait(t, "prove", from, "--tp", "3"); !strings.Contains(out, "acme_leaky on 3 ranks: proved") {
			t.Errorf("krait prove %s:\n%s", from, out)
		}
	}
	if out := krait(t, "graph", "schedule", text, "--tp", "3"); !strings.Contains(out, "leaky_integrate") {
		t.Errorf("krait graph schedule:\n%s", out)
	}
	krait(t, "synth", "-q", "--config", config, "--dtype", "f32", model)
	one, three := krait(t, "generate", "-q", "--ids", "-n", "4", "-m", model, "1 2 3"), krait(t, "generate", "-q", "--ids", "-n", "4", "--tp", "3", "-m", model, "1 2 3")
	if one != three || len(strings.Fields(one)) != 4 {
		t.Errorf("one rank generates %q, three %q", one, three)
	}
}

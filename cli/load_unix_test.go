//go:build unix

package cli

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestLoad: what the command prints of a server of this program that wants a key.
func TestLoad(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	keys := file("keys", fmt.Sprintf("ann %x\n", sha256.Sum256([]byte("sesame"))))
	address, server, _ := answering(t, "--api-keys", keys, "--tp", "2")
	defer func() { server.Process.Kill(); server.Wait() }()
	key, svg := file("key", "sesame\n"), filepath.Join(dir, "sweep.svg")
	trace := file("trace", `{"at": 0, "input": [[5, 9]], "output": [[50, 3]]}`+"\n"+`{"at": 0.001, "input": [[5, 8], 70], "output": [[80, 4]]}`+"\n")
	try := func(environment string, args ...string) (string, string, error) {
		c, out, errs := command(t, append([]string{"load", "--url", address, "--requests", "3"}, args...)...)
		c.Env = append(c.Env, keyVariable+"="+environment)
		err := c.Run()
		return out.String(), errs.String(), err
	}
	text, errs, err := try("sesame", "--concurrency", "1,2", "--prompt-tokens", "2", "--max-tokens", "4", "--ignore-eos", "--svg", svg)
	for _, want := range []string{`completions of tiny-mamba, 3 requests per load`, `(?m)^1 at once +3 +0 ( +\d+\.\d\d){9}( +\d+\.\d){3}$`, `(?m)^2 at once +3 +0 `} {
		if err != nil || !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("%v %s\nno %s in\n%s", err, errs, want, text)
		}
	}
	if drawn, err := os.ReadFile(svg); err != nil || strings.Count(string(drawn), "<circle") != 2 || !strings.Contains(string(drawn), ">tiny-mamba, 2 ranks<") {
		t.Errorf("%v: %s", err, drawn)
	}
	var r struct {
		Requests int
		Loads    []struct {
			OK     int
			Tokens int `json:"completion_tokens"`
			Prompt int `json:"prompt_tokens"`
			Rate   float64
		}
	}
	text, errs, err = try("", "--key-file", key, "--trace", trace, "--vocab", "90", "--ignore-eos", "--json")
	if json.Unmarshal([]byte(text), &r) != nil || err != nil || r.Requests != 2 || len(r.Loads) != 1 || r.Loads[0].OK != 2 || r.Loads[0].Tokens != 7 || r.Loads[0].Prompt != 18 {
		t.Errorf("%v %s %s", err, errs, text)
	}
	text, errs, err = try("", "--key-file", key, "--chat", "--rate", "500", "--max-tokens", "3", "--trace", trace, "--requests", "1", "--json")
	if json.Unmarshal([]byte(text), &r) != nil || err != nil || r.Requests != 1 || r.Loads[0].OK != 1 || r.Loads[0].Rate != 500 {
		t.Errorf("%v %s %s", err, errs, text)
	}
	text, errs, err = try("wrong", "--model", "m", "--concurrency", "2")
	if err == nil || !strings.Contains(text, "2 at once: 3 requests failed, status 401: ") || errs != "krait: no request succeeded\n" {
		t.Errorf("%v %s %s", err, errs, text)
	}
	if _, errs, err = try("", "--concurrency", "2"); err == nil || !strings.Contains(errs, "list models: ") || !strings.Contains(errs, "status 401") {
		t.Errorf("%v %s", err, errs)
	}
}

package hub

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/krait-ml/krait/checkpoint/hub/hubtest"
)

// weights is a file of several reads.
var weights = strings.Repeat("0123456789abcdef", 20_000)

// tiny is a repository with more than one checkpoint.
func tiny() hubtest.Repo {
	return hubtest.Repo{Large: 1 << 16, Files: map[string]string{
		"config.json": `{"model_type":"mamba"}`, "tokenizer.json": "{}", "README.md": "# tiny", "LICENSE": "free",
		"model.safetensors": weights, "pytorch_model.bin": weights + "torch", "onnx/config.json": "{}",
	}}
}

// newHub is a hub with an empty cache and short times.
func newHub(t *testing.T, endpoint string, env ...string) *Hub {
	t.Helper()
	values := map[string]string{"HF_HOME": t.TempDir(), "HF_ENDPOINT": endpoint}
	for i := 0; i < len(env); i += 2 {
		values[env[i]] = env[i+1]
	}
	h, err := New(func(name string) string { return values[name] })
	if err != nil {
		t.Fatal(err)
	}
	h.stall, h.backoff = 2*time.Second, time.Millisecond
	return h
}

func mustParse(t *testing.T, text string) Name {
	t.Helper()
	n, ok := Parse(text)
	if !ok {
		t.Fatalf("%s is no name", text)
	}
	return n
}

func mustPull(t *testing.T, h *Hub, name string, o Options) *Pulled {
	t.Helper()
	got, err := h.Pull(t.Context(), mustParse(t, name), o)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// filesOf lists the files of a snapshot.
func filesOf(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			name, _ := filepath.Rel(dir, path)
			names = append(names, filepath.ToSlash(name))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: %v; want %v", what, got, want)
	}
}

// TestParse: names are told from paths.
func TestParse(t *testing.T) {
	for text, want := range map[string]Name{
		"org/name":                   {"org/name", "", ""},
		"org/name@v1.0":              {"org/name", "v1.0", ""},
		"org/name@refs/pr/1":         {"org/name", "refs/pr/1", ""},
		"org/name/a-Q4_K_M.gguf":     {"org/name", "", "a-Q4_K_M.gguf"},
		"org/name/q4/a.gguf":         {"org/name", "", "q4/a.gguf"},
		"org/name@v1/q4/a.gguf":      {"org/name", "v1", "q4/a.gguf"},
		"Qwen/Qwen3.5-0.8B":          {"Qwen/Qwen3.5-0.8B", "", ""},
		"nvidia/NVIDIA-Nemotron_v2x": {"nvidia/NVIDIA-Nemotron_v2x", "", ""},
	} {
		n, ok := Parse(text)
		if !ok || n != want || n.String() != text {
			t.Errorf("%s: %+v (%s), %t", text, n, n, ok)
		}
	}
	for _, text := range []string{
		"", "org", "org/", "/name", "./name", "../name", "~/name", "/org/name", "org/name/", "org/name/x", "org/name@", "org/..", "org/na..me", "org/name@../x",
		"org/name@a//b", "org/name@/a", "a--b/c", "org/x.gguf", "org/x.ir", "org/x.safetensors", "org/name/../x.gguf", "org/name//x.gguf", `org/name/a\b.gguf`,
		"org/na me", "org/name@v 1", "https://huggingface.co/org/name", "org\\name", "-org/name", strings.Repeat("o", 200) + "/n",
	} {
		if n, ok := Parse(text); ok {
			t.Errorf("%q: %+v", text, n)
		}
	}
}

// TestEnvironment: the variables of Hugging Face's programs are honoured.
func TestEnvironment(t *testing.T) {
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, "token"), []byte("from-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct{ env, cache, endpoint, token, offline string }{
		{"", filepath.Join(home, "hub"), "https://huggingface.co", "from-file", "false"},
		{"HF_TOKEN= of-env ", filepath.Join(home, "hub"), "https://huggingface.co", "of-env", "false"},
		{"HF_HUB_CACHE=/models", "/models", "https://huggingface.co", "from-file", "false"},
		{"HF_ENDPOINT=http://mirror:8080/hf/", filepath.Join(home, "hub"), "http://mirror:8080/hf", "from-file", "false"},
		{"HF_HUB_OFFLINE=YES", filepath.Join(home, "hub"), "https://huggingface.co", "from-file", "true"},
		{"HF_HUB_OFFLINE=0", filepath.Join(home, "hub"), "https://huggingface.co", "from-file", "false"},
	} {
		h, err := New(func(name string) string {
			if name == "HF_HOME" {
				return home
			}
			value, _ := strings.CutPrefix(x.env, name+"=")
			if value == x.env {
				return ""
			}
			return value
		})
		if err != nil {
			t.Fatal(err)
		}
		same(t, x.env, []string{h.Cache, h.endpoint.String(), h.token, strconv.FormatBool(h.Offline)}, []string{x.cache, x.endpoint, x.token, x.offline})
	}
	for _, bad := range []string{"huggingface.co", "ftp://x", "https://", "://"} {
		if _, err := New(func(name string) string { return map[string]string{"HF_HOME": home, "HF_ENDPOINT": bad}[name] }); err == nil || !strings.Contains(err.Error(), "it must be a URL") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// TestPull: one checkpoint comes into the layout of Hugging Face's cache, and nothing comes twice.
func TestPull(t *testing.T) {
	s := hubtest.New(t)
	s.Put("org/tiny", tiny())
	h := newHub(t, s.URL)
	n := mustParse(t, "org/tiny")
	if _, err := h.Find(n, Config); !errors.Is(err, ErrMissing) {
		t.Errorf("in an empty cache: %v", err)
	}
	config := mustPull(t, h, "org/tiny", Options{Part: Config})
	same(t, "files of Config", filesOf(t, config.Path), "[config.json]")
	if _, err := h.Find(n, Weights); !errors.Is(err, ErrMissing) {
		t.Errorf("with a config alone: %v", err)
	}
	same(t, "files of Tokenizer", filesOf(t, mustPull(t, h, "org/tiny", Options{Part: Tokenizer}).Path), "[LICENSE config.json tokenizer.json]")
	s.Requests()
	var begun, last, total int64
	got := mustPull(t, h, "org/tiny", Options{
		Begin: func(files int, bytes int64) { begun = bytes },
		Tell:  func(done, all int64) { last, total = done, all },
	})
	same(t, "files", filesOf(t, got.Path), "[LICENSE config.json model.safetensors tokenizer.json]")
	same(t, "requests", len(s.Requests()), 2)
	same(t, "bytes", []int64{begun, got.Fetched, last, total}, []int64{int64(len(weights)), int64(len(weights)), got.Bytes, got.Bytes})
	same(t, "path", got.Path, filepath.Join(h.Cache, "models--org--tiny", "snapshots", got.Commit))
	link, err := os.Readlink(filepath.Join(got.Path, "model.safetensors"))
	same(t, "link", []any{link[:len("../../blobs/")], len(filepath.Base(link)), err}, "[../../blobs/ 64 <nil>]")
	ref, err := os.ReadFile(filepath.Join(h.Cache, "models--org--tiny", "refs", "main"))
	same(t, "ref", []any{string(ref), err}, []any{got.Commit, nil})
	data, err := os.ReadFile(filepath.Join(got.Path, "model.safetensors"))
	if err != nil || string(data) != weights {
		t.Errorf("the weights are not those of the server: %v", err)
	}
	found, err := h.Find(n, Weights)
	same(t, "found", []any{found, err}, []any{got.Path, nil})
	again := mustPull(t, h, "org/tiny", Options{Begin: func(int, int64) { t.Error("a second pull downloads") }})
	same(t, "a second pull", again.Fetched, 0)

	// main is another commit now, of which only one file is new; the old snapshot stays.
	r := tiny()
	r.Files["config.json"] = `{"model_type":"mamba2"}`
	s.Put("org/tiny", r)
	s.Requests()
	newer := mustPull(t, h, "org/tiny", Options{})
	same(t, "bytes of a commit", newer.Fetched, len(r.Files["config.json"]))
	if found, _ := h.Find(n, Weights); found != newer.Path || newer.Path == got.Path {
		t.Errorf("main is %s; want %s", found, newer.Path)
	}
	for _, name := range []string{"org/tiny@" + got.Commit, "org/tiny@" + newer.Commit} {
		if _, err := h.Find(mustParse(t, name), Weights); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	mustPull(t, h, "org/tiny@v1", Options{})
	all, err := h.List()
	var lines []string
	for _, c := range all {
		lines = append(lines, fmt.Sprint(c.Name, c.Path != "", c.Bytes == newer.Bytes || c.Bytes == got.Bytes, c.Partial))
	}
	same(t, "list", fmt.Sprint(lines, err), fmt.Sprintf("[org/tiny true true 0 org/tiny@%s true true 0] <nil>", got.Commit))
}

// TestShards: the files that an index names come, and no other.
func TestShards(t *testing.T) {
	s := hubtest.New(t)
	r := hubtest.Repo{Files: map[string]string{
		"config.json": "{}", "a.safetensors": "first", "b.safetensors": "second", "other.safetensors": "third",
		"model.safetensors.index.json": `{"weight_map":{"x":"b.safetensors","y":"a.safetensors","z":"b.safetensors"}}`,
	}}
	s.Put("org/sharded", r)
	h := newHub(t, s.URL)
	got := mustPull(t, h, "org/sharded", Options{})
	same(t, "files", filesOf(t, got.Path), "[a.safetensors b.safetensors config.json model.safetensors.index.json]")
	found, err := h.Find(mustParse(t, "org/sharded"), Weights)
	same(t, "found", []any{found, err}, []any{got.Path, nil})
	if err := os.Remove(filepath.Join(got.Path, "b.safetensors")); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Find(mustParse(t, "org/sharded"), Weights); !errors.Is(err, ErrMissing) {
		t.Errorf("without a shard: %v", err)
	}
	for index, want := range map[string]string{
		`{"weight_map":{"x":"c.safetensors"}}`:             "names c.safetensors, which is no file of the repository",
		`{"weight_map":{"x":"../../../../a.safetensors"}}`: "model.safetensors.index.json",
	} {
		r.Files["model.safetensors.index.json"] = index
		s.Put("org/sharded", r)
		if _, err := h.Pull(t.Context(), mustParse(t, "org/sharded"), Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", index, err)
		}
	}
}

// TestGGUF: a pattern or a name selects one GGUF file, in all its parts.
func TestGGUF(t *testing.T) {
	s := hubtest.New(t)
	s.Put("org/quants", hubtest.Repo{Files: map[string]string{
		"config.json": "{}", "m-Q4_K_M.gguf": "four", "m-Q8_0.gguf": "eight", "mmproj-m.gguf": "eyes",
		"big/m-F16-00001-of-00002.gguf": "one", "big/m-F16-00002-of-00002.gguf": "two", "cut/m-BF16-00001-of-00002.gguf": "one",
	}})
	h := newHub(t, s.URL)
	for _, x := range []struct{ name, pattern, path, files string }{
		{"org/quants", "q4_k_m", "m-Q4_K_M.gguf", "[m-Q4_K_M.gguf]"},
		{"org/quants", "*/m-F16*", "big/m-F16-00001-of-00002.gguf", "[big/m-F16-00001-of-00002.gguf big/m-F16-00002-of-00002.gguf m-Q4_K_M.gguf]"},
		{"org/quants/m-Q8_0.gguf", "", "m-Q8_0.gguf", "[big/m-F16-00001-of-00002.gguf big/m-F16-00002-of-00002.gguf m-Q4_K_M.gguf m-Q8_0.gguf]"},
	} {
		got := mustPull(t, h, x.name, Options{GGUF: x.pattern})
		dir := filepath.Join(h.Cache, "models--org--quants", "snapshots", got.Commit)
		same(t, x.name+x.pattern, []any{got.Path, filesOf(t, dir)}, []any{filepath.Join(dir, filepath.FromSlash(x.path)), x.files})
	}
	for _, x := range []struct{ name, pattern, want string }{
		{"org/quants", "", "several GGUF files match: big/m-F16-00001-of-00002.gguf, cut/m-BF16-00001-of-00002.gguf, m-Q4_K_M.gguf, m-Q8_0.gguf; select one with krait pull --gguf PATTERN"},
		{"org/quants", "Q5", `has no GGUF file that matches "Q5"; it has: big/`},
		{"org/quants", "[", "the pattern is malformed"},
		{"org/quants", "BF16", "lacks cut/m-BF16-00002-of-00002.gguf"},
		{"org/quants/m-Q5.gguf", "", `has no file "m-Q5.gguf"`},
	} {
		if _, err := h.Pull(t.Context(), mustParse(t, x.name), Options{GGUF: x.pattern}); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s --gguf %q: %v", x.name, x.pattern, err)
		}
	}
	if _, err := h.Find(mustParse(t, "org/quants"), Weights); err == nil || !strings.Contains(err.Error(), "has 3 GGUF files in the cache; name one: org/quants/big/m-F16-00001-of-00002.gguf or ") {
		t.Errorf("three models: %v", err)
	}
	one := newHub(t, s.URL)
	got := mustPull(t, one, "org/quants", Options{GGUF: "Q8_0"})
	found, err := one.Find(mustParse(t, "org/quants"), Config)
	same(t, "one model", []any{found, err}, []any{got.Path, nil})
}

// TestRefused: what cannot be had is named, with what to do.
func TestRefused(t *testing.T) {
	s := hubtest.New(t)
	s.Put("org/tiny", tiny())
	gated := tiny()
	gated.Gated = true
	s.Put("org/gated", gated)
	s.Put("org/empty", hubtest.Repo{Files: map[string]string{"README.md": "soon"}})
	s.Put("org/configless", hubtest.Repo{Files: map[string]string{"model.safetensors": "x"}})
	s.Token = "secret"
	for _, x := range []struct{ name, token, want string }{
		{"org/none", "", "org/none is no repository of models at HOST, or a private one; check the name, or set HF_TOKEN"},
		{"org/none", "secret", "org/none is no repository of models at HOST, or a private one; check the name"},
		{"org/tiny@v2", "", `org/tiny has no revision "v2" at HOST; a revision is a branch, a tag or a commit`},
		{"org/gated", "", "is gated: accept its conditions at http://HOST/org/gated, and set HF_TOKEN to a token of that account"},
		{"org/gated", "other", "is gated, and the account of HF_TOKEN has no access: accept its conditions at http://HOST/org/gated"},
		{"org/gated", "secret", ""},
		{"org/empty", "", "org/empty has no weights that Krait reads: model.safetensors or pytorch_model.bin, whole or with an index, or a GGUF file"},
		{"org/configless", "", "org/configless has model.safetensors but no config.json"},
	} {
		h := newHub(t, s.URL, "HF_TOKEN", x.token)
		_, err := h.Pull(t.Context(), mustParse(t, x.name), Options{})
		want := strings.ReplaceAll(x.want, "HOST", h.Host())
		if want == "" && err != nil || want != "" && (err == nil || !strings.HasSuffix(err.Error(), want) && !strings.Contains(err.Error(), want)) {
			t.Errorf("%s with token %q: %v; want %s", x.name, x.token, err, want)
		}
		if err != nil && x.token != "" && strings.Contains(err.Error(), x.token+" ") {
			t.Errorf("the error has the token: %v", err)
		}
	}
	h := newHub(t, s.URL, "HF_HUB_OFFLINE", "1")
	s.Requests()
	if _, err := h.Pull(t.Context(), mustParse(t, "org/tiny"), Options{}); err == nil || !strings.Contains(err.Error(), "HF_HUB_OFFLINE is set") || len(s.Requests()) > 0 {
		t.Errorf("offline: %v", err)
	}
	s.Close()
	if _, err := newHub(t, s.URL).Pull(t.Context(), mustParse(t, "org/tiny"), Options{}); err == nil || !strings.Contains(err.Error(), "connection refused") || strings.Contains(err.Error(), "/api/") {
		t.Errorf("without a server: %v", err)
	}
}

// TestHostile: no listing leads a file out of its folder.
func TestHostile(t *testing.T) {
	for _, name := range []string{"../evil.gguf", "a/../../evil.gguf", "/etc/evil.gguf", `..\evil.gguf`, "a//b.gguf", "a/./b.gguf", "a\nb.gguf", ""} {
		s := hubtest.New(t)
		s.Put("org/bad", hubtest.Repo{Files: map[string]string{"config.json": "{}", "model.safetensors": "x", name: "evil"}})
		h := newHub(t, s.URL)
		if _, err := h.Pull(t.Context(), mustParse(t, "org/bad"), Options{}); err == nil || !strings.Contains(err.Error(), "whose name leads out of its folder: refused") {
			t.Errorf("%q: %v", name, err)
		}
	}
	const id = "0123456789012345678901234567890123456789"
	for body, want := range map[string]string{
		`{"sha":"../../x","siblings":[]}`: "which is no hash",
		`{"sha":"` + id + `","siblings":[{"rfilename":"config.json","size":2,"blobId":"../../x"}]}`:                        "gives \"config.json\" no size and hash",
		`{"sha":"` + id + `","siblings":[{"rfilename":"config.json","size":-1,"blobId":"` + id + `"}]}`:                    "no size and hash",
		`{"sha":"` + id + `","siblings":[{"rfilename":"config.json","blobId":"` + id + `","lfs":{"sha256":"","size":1}}]}`: "no size and hash",
		`<html>`: "malformed",
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, body) }))
		if _, err := newHub(t, s.URL).Pull(t.Context(), mustParse(t, "org/bad"), Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", body, err)
		}
		s.Close()
	}
	// A link in the cache leads out of it.
	s := hubtest.New(t)
	s.Put("org/tiny", tiny())
	for _, dir := range []string{"blobs", "snapshots", "refs"} {
		h := newHub(t, s.URL)
		outside := t.TempDir()
		if err := os.MkdirAll(filepath.Join(h.Cache, "models--org--tiny"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(outside, filepath.Join(h.Cache, "models--org--tiny", dir)); err != nil {
			t.Skip("no symbolic links here")
		}
		_, err := h.Pull(t.Context(), mustParse(t, "org/tiny"), Options{})
		if err == nil || len(filesOf(t, outside)) > 0 {
			t.Errorf("%s is a link: %v, %v", dir, err, filesOf(t, outside))
		}
	}
}

// TestToken: the token is sent to the endpoint, and to no other address that it redirects to.
func TestToken(t *testing.T) {
	s := hubtest.New(t)
	s.Put("org/tiny", tiny())
	var seen atomic.Int32
	cdn := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" || r.Header.Get("Cookie") != "" {
			t.Errorf("the token came to %s", r.URL)
		}
		seen.Add(1)
		hubtest.Serve(w, r, weights)
	}))
	t.Cleanup(cdn.Close)
	s.Serve = func(w http.ResponseWriter, r *http.Request, content string) bool {
		if r.Header.Get("Authorization") != "Bearer secret" {
			t.Errorf("%s came without the token", r.URL)
		}
		if content == weights {
			http.Redirect(w, r, cdn.URL+"/file?signature=private", http.StatusFound)
		}
		return content == weights
	}
	h := newHub(t, s.URL, "HF_TOKEN", "secret")
	mustPull(t, h, "org/tiny", Options{})
	same(t, "requests of the other address", seen.Load(), 1)

	// The address that it redirects to may be signed, and is in no error.
	cdn.Close()
	_, err := newHub(t, s.URL, "HF_TOKEN", "secret").Pull(t.Context(), mustParse(t, "org/tiny"), Options{})
	if err == nil || !strings.Contains(err.Error(), strings.TrimPrefix(cdn.URL, "http://")+": dial tcp") || strings.Contains(err.Error(), "private") {
		t.Errorf("at a closed address: %v", err)
	}

	// From https no redirect leads to http.
	plain := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, cdn.URL, http.StatusFound) }))
	t.Cleanup(plain.Close)
	h = newHub(t, plain.URL)
	inner := h.client.Transport.(authorized)
	inner.next = plain.Client().Transport
	h.client.Transport = inner
	if _, err := h.Pull(t.Context(), mustParse(t, "org/tiny"), Options{}); !errors.Is(err, errRedirect) {
		t.Errorf("to http: %v", err)
	}
}

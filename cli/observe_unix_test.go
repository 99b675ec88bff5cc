//go:build unix

package cli

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// started is krait as a process that has said where it listens, by what: admin, serving, prefill.
// Log is what it says meanwhile.
func started(t *testing.T, until string, args ...string) (at map[string]string, c *exec.Cmd, log func() string) {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	log = func() string {
		text, _ := os.ReadFile(file.Name())
		return string(text)
	}
	c = kraitCommand(t, args...)
	c.Stderr = file
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Process.Kill() })
	at = map[string]string{}
	for r := bufio.NewReader(out); at[until] == ""; {
		line, err := r.ReadString('\n')
		what, where, ok := strings.Cut(strings.TrimSpace(line), " at ")
		if at[what] = where; err != nil || !ok {
			c.Wait()
			t.Fatalf("%q, %v: %s", line, err, log())
		}
	}
	return at, c, log
}

// got is the answer to a GET.
func got(t *testing.T, url string) (status int, text string) {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	all, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(all)
}

// TestPrefillAdmin: a prefill server has metrics, health and readiness at its admin listener, and
// its log is JSON in all lines, with the id of the request.
func TestPrefillAdmin(t *testing.T) {
	reads, _, log := started(t, "prefill", "serve", "prefill", "--listen", "127.0.0.1:0", "--admin", "0", "--log", "json", "--prefix-cache", "1MiB")
	if !strings.HasPrefix(reads["admin"], "http://127.0.0.1:") {
		t.Errorf("admin at %s", reads["admin"])
	}
	serves, c, _ := started(t, "serving", "serve", "decode", "--listen", "127.0.0.1:0", "--admin", "unix:"+filepath.Join(t.TempDir(), "admin"), "--prefill", reads["prefill"])
	q, err := http.NewRequest("POST", serves["serving"]+"/v1/completions", strings.NewReader(`{"prompt": "`+genesis+`", "max_tokens": 2}`))
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set("X-Request-Id", "mine-42")
	r, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	for _, path := range []string{"/health", "/ready", "/debug/pprof/heap"} {
		if status, text := got(t, reads["admin"]+path); status != 200 {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
	_, text := got(t, reads["admin"]+"/metrics")
	for _, want := range []string{`krait_prefill_requests_total{model_name="tiny-mamba"} 1`, `krait_prefill_connections{model_name="tiny-mamba"} 1`,
		`krait_prefill_ended_total{end="released",model_name="tiny-mamba"} 1`, `krait_slots{model_name="tiny-mamba"} 8`} {
		if !strings.Contains(text, "\n"+want+"\n") {
			t.Errorf("no line %s in %s", want, text)
		}
	}
	if strings.Contains(text, "krait_step_prompt_tokens_total{model_name=\"tiny-mamba\"} 0\n") {
		t.Error("no step is counted")
	}
	socket := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", strings.TrimPrefix(serves["admin"], "unix:"))
	}}}
	if a, err := socket.Get("http://krait/debug/pprof/heap"); err != nil || a.StatusCode != 200 {
		t.Errorf("by a socket: %v, %v", a, err)
	}
	if status, _ := got(t, serves["serving"]+"/debug/pprof/heap"); status != 404 {
		t.Errorf("the API's /debug/pprof/ is %d", status)
	}
	c.Process.Signal(syscall.SIGTERM)
	c.Wait()
	lines := 0
	for line := range strings.Lines(log()) {
		var one map[string]any
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Errorf("%q: %v", line, err)
		}
		if lines++; one["msg"] == "prompt prefilled" && one["id"] != "mine-42" {
			t.Errorf("the log has %s", line)
		}
	}
	if lines < 3 {
		t.Errorf("the log is %s", log())
	}
}

// TestReloadCertificates: after SIGHUP new connections get the certificate that the file has now;
// a file that is wrong leaves the old one.
func TestReloadCertificates(t *testing.T) {
	dir := t.TempDir()
	certificates(t, dir)
	file := func(name string) string { return filepath.Join(dir, name) }
	at, c, log := started(t, "prefill", "serve", "prefill", "--listen", "127.0.0.1:0", "--tls-cert", file("server.pem"), "--tls-key", file("server.key"))
	shown := func() string {
		t.Helper()
		conn, err := tls.Dial("tcp", at["prefill"], &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return hex.EncodeToString(conn.ConnectionState().PeerCertificates[0].Signature)
	}
	reload := func(said string) {
		t.Helper()
		c.Process.Signal(syscall.SIGHUP)
		for end := time.Now().Add(20 * time.Second); !strings.Contains(log(), said); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("the log is %s", log())
			}
		}
	}
	first := shown()
	certificates(t, dir)
	if shown() != first {
		t.Error("the certificate changed without a signal")
	}
	reload("certificates reloaded")
	second := shown()
	if second == first {
		t.Error("the certificate is the old one")
	}
	if err := os.WriteFile(file("server.pem"), []byte("none"), 0o600); err != nil {
		t.Fatal(err)
	}
	reload("certificates not reloaded; the previous ones stay valid")
	if shown() != second {
		t.Error("a wrong file changed the certificate")
	}
}

//go:build unix

package cli

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// stale leaves a socket of a process that is gone.
func stale(t *testing.T, path string) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
}

// TestListenSocket: a stale socket is replaced, one with a listener is not, nor
// is a file; of several that start at once one listens.
func TestListenSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	listen := func() (net.Listener, error) {
		l, _, err := listenAt("--listen", "unix:"+path, nil)
		return l, err
	}
	stale(t, path)
	l, err := listen()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := listen(); err == nil || !strings.Contains(err.Error(), "another process listens at") {
		t.Errorf("a second server at a socket: %v", err)
	}
	if c, err := net.Dial("unix", path); err != nil {
		t.Errorf("the first server is not reached: %v", err)
	} else {
		c.Close()
	}
	l.Close()
	for range 20 {
		stale(t, path)
		var listening atomic.Int64
		var all sync.WaitGroup
		listeners := make(chan net.Listener, 8)
		for range cap(listeners) {
			all.Go(func() {
				if l, err := listen(); err == nil {
					listening.Add(1)
					listeners <- l
				}
			})
		}
		all.Wait()
		close(listeners)
		if n := listening.Load(); n != 1 {
			t.Fatalf("%d of 8 servers listen", n)
		}
		if c, err := net.Dial("unix", path); err != nil {
			t.Fatalf("the one that listens is not reached: %v", err)
		} else {
			c.Close()
		}
		for l := range listeners {
			l.Close()
		}
	}
	if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listen(); err == nil || !strings.Contains(err.Error(), "is not a socket") {
		t.Errorf("in place of a file: %v", err)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "text" {
		t.Errorf("the file is %q, %v", data, err)
	}
}

// TestServeRefused: an address, or a file of keys or certificates, that cannot be used is an error
// before the model is opened, and so is an address that other machines reach where nothing says who
// may ask.
func TestServeRefused(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	keyless := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer keyless.Close()
	keys := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keys, fmt.Appendf(nil, "ann %x", sha256.Sum256([]byte("ann"))), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, want string }{
		{"serve --listen " + taken.Addr().String() + " nowhere", "--listen: listen tcp " + taken.Addr().String()},
		{"serve prefill --listen " + taken.Addr().String() + " nowhere", "--listen: listen tcp " + taken.Addr().String()},
		{"serve --listen 0.0.0.0:0 nowhere", "other machines can reach it without a key: give --api-keys"},
		{"serve --listen :0 nowhere", "other machines can reach it"},
		{"serve prefill --listen 0.0.0.0:0 nowhere", "other machines can reach it without a key: give --token-file"},
		{"serve --listen 0.0.0.0:0 --insecure nowhere", "nowhere"},
		{"serve --listen 127.0.0.1:0 nowhere", "nowhere"},
		{"serve --listen 127.0.0.1:0 --tls-cert none --tls-key none nowhere", "--tls-cert and --tls-key: open none"},
		{"serve --listen 127.0.0.1:0 --api-keys none nowhere", "--api-keys: open none"},
		{"serve decode --listen 127.0.0.1:0 --prefill a:1 --prefill-token-file none nowhere", "--prefill-token-file: open none: no such file"},
		{"serve decode --listen 127.0.0.1:0 --prefill a:1 --prefill-tls-ca none nowhere", "--prefill-tls-ca: open none: no such file"},
		{"serve decode --listen 127.0.0.1:0 --prefill a:1 --prefill-tls-cert none nowhere", "--prefill-tls-cert and --prefill-tls-key need each other"},
		{"route --listen 127.0.0.1:0 --decode a:1 --tls-ca none", "--tls-ca: open none"},
		{"route --listen 0.0.0.0:0 --decode " + keyless.URL, "answers without a key"},
		{"route --listen 0.0.0.0:0 --api-keys " + keys + " --admin " + taken.Addr().String() + " --decode " + keyless.URL, "--admin: listen"},
	} {
		var said bytes.Buffer
		root := newRoot()
		root.SetArgs(strings.Fields(c.args))
		root.SetOut(&said)
		root.SetErr(&said)
		ctx, end := context.WithTimeout(t.Context(), 30*time.Second) // if it listens after all
		err := root.ExecuteContext(ctx)
		if end(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("krait %s: %v, want %s", c.args, err, c.want)
		}
	}
}

// TestServeSignals: SIGHUP reads the keys again, and keeps the old ones where the file is wrong;
// the second SIGTERM ends a server that drains.
func TestServeSignals(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	key := func(name string) string { return fmt.Sprintf("%s %x\n", name, sha256.Sum256([]byte(name))) }
	write(key("ann"))
	address, c, errs := answering(t, "--api-keys", file)
	ask := func(key, body string) *http.Response {
		t.Helper()
		q, err := http.NewRequest("POST", address+"/v1/completions", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Content-Type", "application/json")
		q.Header.Set("Authorization", "Bearer "+key)
		r, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatalf("%v: %s", err, errs)
		}
		t.Cleanup(func() { r.Body.Close() })
		return r
	}
	until := func(what string, is func() bool) {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("it does not come: %s", what)
			}
		}
	}
	const short = `{"prompt": "a", "max_tokens": 1}`
	if r := ask("ann", short); r.StatusCode != 200 {
		t.Fatal(r.Status)
	}
	write(key("bob"))
	c.Process.Signal(syscall.SIGHUP)
	until("the new key is taken", func() bool { return ask("bob", short).StatusCode == 200 })
	if r := ask("ann", short); r.StatusCode != 401 {
		t.Errorf("a key that was taken out: %s", r.Status)
	}
	write(key("bob") + "eve open\n")
	c.Process.Signal(syscall.SIGHUP)
	if r := ask("bob", `{"prompt": "a", "max_tokens": 900000, "ignore_eos": true, "stream": true}`); r.StatusCode != 200 { // and goes on
		t.Errorf("after a file that is wrong: %s", r.Status)
	}
	c.Process.Signal(syscall.SIGTERM)
	until("/ready is 503", func() bool {
		r, err := http.Get(address + "/ready")
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		return r.StatusCode == http.StatusServiceUnavailable
	})
	c.Process.Signal(syscall.SIGTERM)
	c.Wait()
	if s, ok := c.ProcessState.Sys().(syscall.WaitStatus); !ok || s.Signal() != syscall.SIGTERM {
		t.Errorf("after the second SIGTERM: %v", c.ProcessState)
	}
	if text := errs.String(); !strings.Contains(text, "API keys reloaded") || !strings.Contains(text, "API keys not reloaded; the previous ones stay valid") || !strings.Contains(text, "line 2") {
		t.Errorf("the log: %s", text)
	}
}

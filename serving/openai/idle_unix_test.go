//go:build unix

package openai_test

import (
	"net"
	"runtime"
	"syscall"
	"testing"

	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/serving/openai"
)

// TestIdleConnections: thousands of connections that ask nothing, or as many as the system lets
// this process have both ends of, take little memory each, and others are answered.
func TestIdleConnections(t *testing.T) {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	n := 2_000
	if goldens.All() {
		n = 10_000
	}
	if most := (int64(files.Cur) - 300) / 2; int64(files.Cur) > 0 && most < int64(n) {
		n = int(max(most, 0))
	}
	_, h, _ := server(t, openai.Options{}, 1)
	memory := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapInuse + m.StackInuse)
	}
	before := memory()
	half := "POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
	for i := range n {
		c, err := net.Dial("tcp", h.Listener.Addr().String())
		if err != nil {
			t.Fatalf("connection %d of %d: %v", i, n, err)
		}
		defer c.Close()
		if i%2 == 0 { // it has begun to ask
			if _, err := c.Write([]byte(half)); err != nil {
				t.Fatal(err)
			}
		}
	}
	ask(t, h, "/v1/completions", `{"prompt": "a", "max_tokens": 1}`)
	each := (memory() - before) / int64(max(n, 1))
	if each > 32<<10 {
		t.Errorf("%d bytes for each of %d connections", each, n)
	}
	t.Logf("%d connections, %d bytes each", n, each)
}

//go:build unix

package files

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestPipe: a named pipe is not read, and is written without being replaced.
func TestPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path, 10); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("read: %v", err)
	}
	got := make(chan string)
	go func() {
		f, err := os.Open(path)
		if err != nil {
			t.Error(err)
		}
		text, _ := io.ReadAll(f)
		got <- string(text)
	}()
	if err := Write(path, []byte("text")); err != nil {
		t.Error(err)
	}
	if text := <-got; text != "text" {
		t.Errorf("the reader got %q", text)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Type() != os.ModeNamedPipe {
		t.Errorf("the pipe became %v, %v", info.Mode(), err)
	}
}

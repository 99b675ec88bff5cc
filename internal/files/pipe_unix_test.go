//go:build unix

package files

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestReadPipe: a pipe is read to its end, which must come, within the limit.
func TestReadPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	written := func(text string, end bool) (stop func()) {
		stopped, done := make(chan bool), make(chan bool)
		go func() {
			defer close(done)
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = f.WriteString(text) // the reader may have had enough
			if !end {
				<-stopped
			}
			f.Close()
		}()
		return func() {
			close(stopped)
			<-done
		}
	}
	defer written("text", true)()
	if data, err := ReadPipe(path, 4); string(data) != "text" || err != nil {
		t.Errorf("%q, %v", data, err)
	}
	defer written("texts", true)()
	if _, err := ReadPipe(path, 4); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Error(err)
	}
	late := "did not come to its end"
	stop := written("text", false)
	if _, err := readPipe(path, 4, 50*time.Millisecond); err == nil || !strings.Contains(err.Error(), late) {
		t.Error(err)
	}
	stop()
	if _, err := readPipe(path, 4, 50*time.Millisecond); err == nil || !strings.Contains(err.Error(), late) {
		t.Error("without a writer:", err)
	}
	if _, err := ReadPipe(os.DevNull, 4); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Error(err)
	}
}

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

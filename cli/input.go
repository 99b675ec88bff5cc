package cli

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/krait-ml/krait/internal/files"
	"github.com/spf13/cobra"
)

// stdin is standard input, of which a read ends when the command is stopped.
func stdin(c *cobra.Command) io.Reader {
	return &stoppable{c.Context(), c.InOrStdin()}
}

type stoppable struct {
	ctx context.Context
	r   io.Reader
}

func (s *stoppable) Read(p []byte) (int, error) {
	type result struct {
		data []byte
		err  error
	}
	done := make(chan result, 1)
	go func() {
		data := make([]byte, len(p)) // not p: the read may end after the caller has given up
		n, err := s.r.Read(data)
		done <- result{data[:n], err}
	}()
	select {
	case <-s.ctx.Done():
		return 0, s.ctx.Err()
	case x := <-done:
		return copy(p, x.data), x.err
	}
}

// readText reads a text from a file of any kind; - is standard input.
func readText(c *cobra.Command, path string) ([]byte, error) {
	if path == "-" {
		return readAll(stdin(c), "standard input", files.Text)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readAll(&stoppable{c.Context(), f}, path, files.Text)
}

// readBounded reads a regular file that has a limit; - is standard input.
func readBounded(c *cobra.Command, path string, limit int64) ([]byte, error) {
	if path != "-" {
		return files.Read(path, limit)
	}
	return readAll(stdin(c), "standard input", limit)
}

func readAll(r io.Reader, name string, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s is larger than %d MiB, the limit", name, limit>>20)
	}
	return data, err
}

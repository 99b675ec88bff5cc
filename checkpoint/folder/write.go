package folder

import (
	"context"
	"io"
	"iter"
	"runtime"
	"sync"

	"github.com/krait-ml/krait/internal/files"
)

// Writer writes files by several goroutines and reports the bytes of all of them.
type Writer struct {
	total    int64
	progress func(done, total int64) // may be nil

	mu   sync.Mutex
	done int64
	err  error // the first
}

// NewWriter returns a writer of total bytes of tensors. It tells progress that none is written, so
// that a rate counts from here.
func NewWriter(total int64, progress func(done, total int64)) *Writer {
	if progress != nil {
		progress(0, total)
	}
	return &Writer{total: total, progress: progress}
}

// Piece is a part of a file, from byte At on. Make passes its bytes to write, once.
type Piece struct {
	At   int64
	Make func(write func([]byte) error) error
}

// Write writes a header and the pieces behind it to an empty file, until one fails.
func (w *Writer) Write(ctx context.Context, f io.WriterAt, header []byte, pieces iter.Seq[Piece]) error {
	if _, err := f.WriteAt(header, 0); err != nil {
		return err
	}
	jobs := make(chan Piece)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for p := range jobs {
				w.fail(files.Guard(func() error { return p.Make(func(data []byte) error { return w.put(f, data, p.At) }) }))
			}
		})
	}
	for p := range pieces {
		if w.fail(ctx.Err()) {
			break
		}
		jobs <- p
	}
	close(jobs)
	wg.Wait()
	return w.err
}

// put writes bytes and reports them.
func (w *Writer) put(f io.WriterAt, data []byte, at int64) error {
	if _, err := f.WriteAt(data, at); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done += int64(len(data)); w.progress != nil && w.err == nil {
		w.progress(w.done, w.total)
	}
	return nil
}

// fail keeps the first error, and reports whether there is one.
func (w *Writer) fail(err error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
	return w.err != nil
}

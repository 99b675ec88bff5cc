package quantize

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"sync"

	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/checkpoint/safetensors"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/files"
)

// writer makes files of tensors.
type writer struct {
	total int64
	tell  func(done, total int64)

	mu   sync.Mutex
	done int64
	err  error // the first
}

// chunkBytes is about what is written at a time.
const chunkBytes = 1 << 20

// chunk is rows of a tensor, or bytes of one that stays as it is, on their way to a file.
type chunk struct {
	t      *tensor
	lo, hi int
	at     int64 // in the file
}

// write writes a file; f is empty.
func (w *writer) write(ctx context.Context, f io.WriterAt, tensors []tensor) error {
	var list []safetensors.Tensor
	metadata := map[string]string{"format": "pt"}
	for _, t := range tensors {
		list = append(list, t.Tensor)
		if t.note != "" {
			metadata[checkpoint.BlocksKey(t.Name)] = t.note
		}
	}
	header, begins, err := safetensors.Header(list, metadata)
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(header, 0); err != nil {
		return err
	}
	jobs := make(chan chunk)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for c := range jobs {
				w.fail(files.Guard(func() error { return w.chunk(f, c) }))
			}
		})
	}
	w.send(ctx, jobs, tensors, begins)
	wg.Wait()
	return w.err
}

// send gives out the chunks of all tensors, until something fails.
func (w *writer) send(ctx context.Context, jobs chan<- chunk, tensors []tensor, begins []int64) {
	defer close(jobs)
	for i := range tensors {
		t := &tensors[i]
		n, line := t.lines()
		step := max(1, chunkBytes/max(1, line))
		for lo := 0; lo < n; lo += step {
			if w.fail(ctx.Err()) {
				return
			}
			jobs <- chunk{t, lo, min(lo+step, n), begins[i] + int64(lo)*int64(line)}
		}
	}
}

// lines is what a tensor is written in: how many, and the bytes of each.
func (t *tensor) lines() (n, bytes int) {
	if t.note == "" {
		return len(t.Data), 1
	}
	bytes = t.Shape[len(t.Shape)-1]
	return int(t.size()) / max(1, bytes), bytes
}

// fail keeps the first error, and says whether there is one.
func (w *writer) fail(err error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
	return w.err != nil
}

// chunk makes and writes a chunk.
func (w *writer) chunk(f io.WriterAt, c chunk) error {
	data, err := c.bytes()
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(data, c.at); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done += int64(len(data)); w.tell != nil {
		w.tell(w.done, w.total)
	}
	return nil
}

// bytes are rows in blocks, or as they were.
func (c *chunk) bytes() ([]byte, error) {
	if c.t.note == "" {
		return c.t.Data[c.lo:c.hi], nil
	}
	a := c.t.from
	cols := a.Shape[len(a.Shape)-1]
	line := cols * a.DType.Bytes()
	rows := graph.Array{DType: a.DType, Shape: []int{c.hi - c.lo, cols}, Data: a.Data[c.lo*line : c.hi*line]}
	if rows.From = a.From; c.lo > 0 {
		rows.From += fmt.Sprintf(", from row %d on", c.lo)
	}
	out, err := rows.Convert(graph.Q8)
	return out.Data, err
}

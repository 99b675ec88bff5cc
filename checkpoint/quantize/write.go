package quantize

import (
	"context"
	"io"
	"iter"

	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/checkpoint/folder"
	"github.com/krait-ml/krait/checkpoint/safetensors"
)

// chunkBytes is about what is written at a time.
const chunkBytes = 1 << 20

// write writes a file of tensors; f is empty.
func write(ctx context.Context, w *folder.Writer, f io.WriterAt, tensors []tensor) error {
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
	return w.Write(ctx, f, header, pieces(tensors, begins))
}

// pieces are rows of tensors, or bytes of those that stay as they are.
func pieces(tensors []tensor, begins []int64) iter.Seq[folder.Piece] {
	return func(yield func(folder.Piece) bool) {
		for i := range tensors {
			t := &tensors[i]
			n, line := t.lines()
			step := max(1, chunkBytes/max(1, line))
			for lo := 0; lo < n; lo += step {
				make := func(write func([]byte) error) error {
					data, err := t.rows(lo, min(lo+step, n))
					if err != nil {
						return err
					}
					return write(data)
				}
				if !yield(folder.Piece{At: begins[i] + int64(lo)*int64(line), Make: make}) {
					return
				}
			}
		}
	}
}

// lines is what a tensor is written in: how many, and the bytes of each.
func (t *tensor) lines() (n, bytes int) {
	if t.make == nil {
		return len(t.Data), 1
	}
	bytes = t.bytes() * t.Shape[len(t.Shape)-1]
	return int(t.size()) / max(1, bytes), bytes
}

// rows are rows of a tensor, or its bytes as they were.
func (t *tensor) rows(lo, hi int) ([]byte, error) {
	if t.make == nil {
		return t.Data[lo:hi], nil
	}
	return t.make(lo, hi)
}

package synth

import (
	"context"
	"encoding/binary"
	"io"
	"iter"
	"math"
	"sync"

	"github.com/krait-ml/krait/checkpoint/folder"
	"github.com/krait-ml/krait/checkpoint/safetensors"
	"github.com/krait-ml/krait/graph"
	"github.com/x448/float16"
)

// shardBytes is the size of a file at most, as Hugging Face's library has it.
const shardBytes = 5e9

// shards distributes tensors over files, in order.
func shards(tensors []tensor, d graph.DType, most int64) [][]tensor {
	if most == 0 {
		most = shardBytes
	}
	var out [][]tensor
	room := int64(-1)
	for _, t := range tensors {
		n := t.bytes(d)
		if n > room {
			out, room = append(out, nil), most
		}
		room -= n
		out[len(out)-1] = append(out[len(out)-1], t)
	}
	return out
}

func namesOf(tensors []tensor) []string {
	var out []string
	for _, t := range tensors {
		out = append(out, t.name)
	}
	return out
}

// writer makes files of tensors.
type writer struct {
	*folder.Writer
	dtype graph.DType
	seed  uint64
}

// chunks are memory to make chunks in.
var chunks = sync.Pool{New: func() any { return &buffers{make([]float32, chunkElems), make([]byte, 0, 4*chunkElems)} }}

type buffers struct {
	numbers []float32
	data    []byte
}

// write writes a file of tensors; f is empty.
func (w *writer) write(ctx context.Context, f io.WriterAt, tensors []tensor) error {
	var list []safetensors.Tensor
	for _, t := range tensors {
		list = append(list, safetensors.Tensor{Name: t.name, DType: names[w.dtype][1], Shape: t.shape})
	}
	header, begins, err := safetensors.Header(list, map[string]string{"format": "pt"})
	if err != nil {
		return err
	}
	return w.Write(ctx, f, header, w.pieces(tensors, begins))
}

// pieces are chunks of all tensors.
func (w *writer) pieces(tensors []tensor, begins []int64) iter.Seq[folder.Piece] {
	return func(yield func(folder.Piece) bool) {
		for i := range tensors {
			t := &tensors[i]
			for n := range t.chunks() {
				at := begins[i] + int64(n)*chunkElems*int64(w.dtype.Bytes())
				if !yield(folder.Piece{At: at, Make: func(write func([]byte) error) error { return w.chunk(t, n, write) }}) {
					return
				}
			}
		}
	}
}

// chunk makes chunk n of a tensor.
func (w *writer) chunk(t *tensor, n int, write func([]byte) error) error {
	b := chunks.Get().(*buffers)
	defer chunks.Put(b)
	part := b.numbers[:min(chunkElems, t.elems()-int64(n)*chunkElems)]
	t.make(w.seed, n, part)
	b.data = encode(b.data[:0], w.dtype, part)
	return write(b.data)
}

// encode appends numbers, rounded to nearest even.
func encode(b []byte, d graph.DType, list []float32) []byte {
	le := binary.LittleEndian
	for _, v := range list {
		bits := math.Float32bits(v)
		switch d {
		case graph.F32:
			b = le.AppendUint32(b, bits)
		case graph.F16:
			b = le.AppendUint16(b, float16.Fromfloat32(v).Bits())
		default:
			b = le.AppendUint16(b, uint16((bits+0x7fff+bits>>16&1)>>16))
		}
	}
	return b
}

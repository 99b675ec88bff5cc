package synth

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"

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
	dtype graph.DType
	seed  uint64
	total int64
	tell  func(done, total int64)

	mu   sync.Mutex
	done int64
	err  error // the first
}

// chunkElems is how many numbers are made at a time, each chunk from a seed of its
// own: which goroutine makes it does not matter.
const chunkElems = 1 << 20

// chunk is a piece of a tensor on its way to a file.
type chunk struct {
	t      *tensor
	number int
	at     int64 // in the file
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
	if _, err := f.WriteAt(header, 0); err != nil {
		return err
	}
	jobs := make(chan chunk)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() { w.work(f, jobs) })
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
		for n := 0; int64(n)*chunkElems < t.elems(); n++ {
			if w.fail(ctx.Err()) {
				return
			}
			jobs <- chunk{t, n, begins[i] + int64(n)*chunkElems*int64(w.dtype.Bytes())}
		}
	}
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

// work makes and writes chunks.
func (w *writer) work(f io.WriterAt, jobs <-chan chunk) {
	numbers, data := make([]float32, chunkElems), make([]byte, 0, 4*chunkElems)
	for c := range jobs {
		first := int64(c.number) * chunkElems
		part := numbers[:min(chunkElems, c.t.elems()-first)]
		c.t.fill(w.random(&c), part, c.t, first)
		data = encode(data[:0], w.dtype, part)
		_, err := f.WriteAt(data, c.at)
		if !w.fail(err) {
			w.progress(int64(len(data)))
		}
	}
}

// random is the chunk's source of numbers.
func (w *writer) random(c *chunk) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %s", c.number, c.t.name)
	return rand.New(rand.NewPCG(w.seed, h.Sum64()))
}

func (w *writer) progress(n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done += n; w.tell != nil {
		w.tell(w.done, w.total)
	}
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

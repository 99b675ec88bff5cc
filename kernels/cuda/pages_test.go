package cuda

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/krait-ml/krait/cuda/ptx"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// pages are the memory of a call's caches: pages by slot, each an allocation of its own.
type pages struct {
	width int
	slots [][]uint64
	bytes int // of which caches have rows
}

// paged puts a cache into pages of some size; one after another of the same call has
// rows in the same.
func (d *device) paged(t *kernels.Tensor, before Tensor, offset func() int) Tensor {
	d.t.Helper()
	size := t.DType.Bytes()
	out := Tensor{Tensor: *t, Ptr: before.Ptr}
	out.F32, out.U16, out.U8, out.Pages = nil, nil, nil, before.Pages
	if out.Pages == nil {
		tokens := []int{1, 3, 16, 48, 128, 1000}[(t.Cols+t.Dims[1]+offset())%6]
		out.Pages = &kernels.Pages{Tokens: tokens}
		p := &pages{width: ceilDiv(t.Dims[1], tokens), slots: make([][]uint64, t.Dims[0])}
		for range p.width {
			for slot := range p.slots { // of different slots, one after another
				p.slots[slot] = append(p.slots[slot], d.alloc(2*(tokens*t.Stride*size+256)))
			}
		}
		out.Ptr = d.alloc(8 * p.width * len(p.slots))
		if d.pages == nil {
			d.pages = map[uint64]*pages{}
		}
		d.pages[out.Ptr] = p
	}
	p := d.pages[out.Ptr]
	out.InPage = ceilDiv(p.bytes, 16)*16 + offset()*size
	p.bytes = out.InPage + out.Pages.Tokens*t.Stride*size
	d.write(out, t)
	return out
}

// turn writes the table for a batch's sequences.
func (d *device) turn(cache *Tensor, seg *kernels.Tensor) {
	d.t.Helper()
	p := d.pages[cache.Ptr]
	for s := range seg.Rows() {
		_, _, slot := seg.Segment(s)
		var b []byte
		for _, page := range p.slots[slot] {
			b = binary.LittleEndian.AppendUint64(b, page)
		}
		if err := d.mem.Write(cache.Ptr+uint64(8*s*p.width), b); err != nil {
			d.t.Fatal(err)
		}
	}
}

// row is the address of row i of a tensor, whose rows are stride apart.
func (d *device) row(t Tensor, i, stride int) uint64 {
	if t.Pages == nil {
		return t.offset(i * stride)
	}
	slot, token, n := i/t.Dims[1], i%t.Dims[1], t.Pages.Tokens
	return d.pages[t.Ptr].slots[slot][token/n] + uint64(t.InPage+token%n*stride*t.DType.Bytes())
}

// TestPageFaults: a page that the table does not have, and a page that is too short, are
// faults of every kernel that reads or writes there.
func TestPageFaults(t *testing.T) {
	op := findOp(t, "attention")
	for _, tokens := range []int{1, 40} {
		for name, fault := range map[string]func(b []byte){
			"no page":       func(b []byte) { clear(b) },
			"another place": func(b []byte) { binary.LittleEndian.PutUint64(b, binary.LittleEndian.Uint64(b)+1<<12) },
		} {
			d, dev := &draw{rng: newRand(1)}, newInterpreter(t)
			heads := func() kernels.Tensor {
				x := d.packed(graph.F32, tokens, 8)
				x.Full, x.Unit = 8, 4
				return x
			}
			cache := d.packed(graph.F32, 1, 48, 8)
			cache.Cols, cache.Stride, cache.Full, cache.Unit = 8, 8, 8, 4
			seg, past := d.packed(graph.I32, 1, 3), d.packed(graph.I32, 1)
			seg.I32, past.I32 = []int32{0, int32(tokens), 0}, []int32{8}
			c := call(graph.Attrs{"scale": 0.5}, []kernels.Tensor{heads(), cache, clone(&cache)}, heads(), heads(), heads(), cache, clone(&cache), seg, past)
			on := dev.deviceCall(op, &c, map[int]Tensor{}, func() int { return 0 })
			launches := dev.plan(op, on)
			dev.run(launches, 0)
			p := dev.pages[on.Args[3].Ptr]
			at := min(8/on.Args[3].Pages.Tokens, p.width-1) // that is written first
			b := binary.LittleEndian.AppendUint64(nil, p.slots[0][at])
			fault(b)
			if err := dev.mem.Write(on.Args[3].Ptr+uint64(8*at), b); err != nil {
				t.Fatal(err)
			}
			for _, l := range launches {
				var f *ptx.Fault
				if err := dev.launch(l, 0); !errors.As(err, &f) || f.Kind != ptx.OutOfBounds {
					t.Errorf("%s, %d tokens, %s: %v", name, tokens, l.Function, err)
				}
			}
		}
	}
}

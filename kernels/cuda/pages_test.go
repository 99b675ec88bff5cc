package cuda

import (
	"encoding/binary"

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
	out.F32, out.U16, out.Pages = nil, nil, before.Pages
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

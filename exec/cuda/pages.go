package cuda

import (
	"encoding/binary"

	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/internal/operand"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// Kernels find the pages of caches by a table that comes with the inputs: addresses of
// width pages for each sequence of the batch.

// firstWidth is the number of tokens per sequence that the first programs have room for.
const firstWidth = 64

// widen makes room for the KV pages of a batch's sequences. Programs are built for a number of
// pages per sequence, which doubles when it must grow.
func (m *machine) widen(w *exec.Work) error {
	need := 0
	for _, list := range w.BlockTables {
		need = max(need, len(list))
	}
	if need <= m.width {
		return nil
	}
	for m.width = max(m.width, (firstWidth+m.page-1)/m.page); m.width < need; {
		m.width *= 2
	}
	return m.each(func(g *gpu) error { return g.forget() })
}

// tokens is the most tokens of a sequence that programs have room for.
func (m *machine) tokens() int {
	if n := m.width * m.page; m.limit == 0 || n < m.limit {
		return n
	}
	return m.limit
}

const addressBytes = 8

// tableBytes is what the table of a batch takes, among the inputs after all others.
func (r *rank) tableBytes(z graph.Sizes) int {
	if r.pageBytes == 0 {
		return 0
	}
	return int(z.Seqs) * r.machine.width * addressBytes
}

func (r *rank) tableAt(z graph.Sizes) int { return r.inputAt(len(r.s.Buffers), z) }

// cache is a cache as kernels see it.
func (r *rank) cache(o *operand.Operand, z graph.Sizes) (t kernels.Tensor, table driver.Ptr) {
	t = o.Tensor
	t.Pages, t.InPage = &r.layout, r.inPage[o.Buffer]+o.Offset*o.DType.Bytes()
	return t, r.inputs.ptr + driver.Ptr(r.tableAt(z))
}

// fillTable writes the block table. Pages that a sequence does not have are null.
func (r *rank) fillTable(to []byte, pages [][]int32) {
	clear(to)
	for i, list := range pages {
		at := i * r.machine.width * addressBytes
		for _, page := range list {
			binary.LittleEndian.PutUint64(to[at:], uint64(r.pages[page]))
			at += addressBytes
		}
	}
}

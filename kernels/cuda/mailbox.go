package cuda

import (
	"fmt"

	"github.com/krait-ml/krait/graph"
)

// Mailbox sums over peer memory: each rank has a box in the memory of its GPU, into which the
// other ranks write (mailbox.h). Boxes of ranks that sum together have the same Ranks and Bytes.
type Mailbox struct {
	Ranks, Rank int
	Box         uint64 // the rank's own box
	Bytes       int    // largest payload, a multiple of 4096
	// OneShot is the most bytes that a rank sends to all others together in one shot, where each
	// sends its whole payload to all.
	OneShot int
}

// Least bytes of a chunk of 1024 elements, and the bytes before flags and data in a box.
const (
	chunkElems, chunkLeast = 1024, 2048
	boxTable, boxHead      = 64, 256
)

// Size is the size of a mailbox, in bytes. Those before [Mailbox.Head] must be zero at first.
func (m *Mailbox) Size() int64 { return int64(m.data()) + 2*int64(m.Ranks)*int64(m.Bytes) }

// Head is the size of a box's head, in bytes: the turn, a word that stops all waiting if it is not
// 0 (at [MailStop]), the addresses of all boxes (at [MailTable]), flags. Payloads follow.
func (m *Mailbox) Head() int64 { return int64(m.data()) }

// Offsets in a mailbox of the words that its owner writes.
const (
	MailStop  = 8
	MailTable = boxTable
)

func (m *Mailbox) chunks() int { return m.Bytes / chunkLeast }

func (m *Mailbox) data() int { return ceilDiv(boxHead+4*m.Ranks*m.chunks(), 256) * 256 }

// letter is an operand's place in what a rank sends.
type letter struct{ first, at, cols, chunks int }

// letters lays operands one after another, and reports whether they fit. Rows without gaps are as
// one.
func (m *Mailbox) letters(args, results []Tensor) (list []letter, fits bool) {
	var next letter
	for i := range args {
		x, y := &args[i], &results[i]
		rows, cols := x.Rows(), x.Cols
		if rows < 2 || x.Stride == cols && y.Stride == cols {
			rows, cols = 1, rows*cols
		}
		if x.DType.InBlocks() || x.DType != y.DType || cols > 1<<30 {
			return nil, false
		}
		next.cols, next.chunks = cols, rows*ceilDiv(cols, chunkElems)
		list = append(list, next)
		next.first += next.chunks
		if next.at += next.chunks * chunkElems * x.DType.Bytes(); next.at > m.Bytes {
			return nil, false
		}
	}
	return list, true
}

// Fits reports whether AllReduce can sum the operands: they are not in blocks, and take no more
// than Bytes.
func (m *Mailbox) Fits(args, results []Tensor) bool {
	_, fits := m.letters(args, results)
	return fits && m.Ranks <= MaxPeers
}

// AllReduce sums each operand over the ranks, rank 0 first, as [PeerSum] does, with the same bits
// on all ranks. All ranks launch it for operands of the same shapes. In one shot each rank sends
// its payload to all others and sums what it received; in two shots each sums a part and sends that
// to all. Two ranks always take one shot.
func (m *Mailbox) AllReduce(results, args []Tensor, wide bool) ([]Launch, error) {
	list, fits := m.letters(args, results)
	if !fits {
		return nil, fmt.Errorf("a sum over memory of GPUs is of %d bytes at most", m.Bytes)
	}
	oneShot := m.oneShot(args)
	last := -1 // the operand that is summed last
	for i := range list {
		if list[i].chunks > 0 {
			last = i
		}
	}
	var c Call
	for i := range list {
		x := &args[i]
		c.launch("mailbox", fmt.Sprint("mail_send_", x.DType.Bytes()), m.grid(list[i].chunks), mailBlock, 0,
			x.Ptr, x.stride(), aligned(x), m.mail(list[i], !oneShot, false))
	}
	for i := range list {
		x, y, n := &args[i], &results[i], list[i].chunks
		if !oneShot { // each sums its own
			n = (n - m.Rank + m.Ranks - 1) / m.Ranks
		}
		c.launch("mailbox", "mail_add_"+format(x.DType), m.grid(n), mailBlock, 0,
			y.Ptr, y.stride(), x.Ptr, x.stride(), aligned(x, y), wide, m.mail(list[i], !oneShot, oneShot && i == last))
	}
	for i := range list {
		if y := &results[i]; !oneShot {
			c.launch("mailbox", fmt.Sprint("mail_take_", y.DType.Bytes()), m.grid(list[i].chunks), mailBlock, 0,
				y.Ptr, y.stride(), aligned(y), m.mail(list[i], true, i == last))
		}
	}
	return c.launches, c.err
}

// AllReduceNorm is AllReduce of x in f32 and the add_rmsnorm behind it, with results s = a + sum
// and y. It has the bits of both apart. It reports false if x does not fit, or takes two shots.
func (m *Mailbox) AllReduceNorm(s, y, a, x, w Tensor, eps float64) ([]Launch, bool) {
	list, fits := m.letters([]Tensor{x}, []Tensor{x})
	if !fits || x.DType != graph.F32 || y.Cols != x.Cols || y.Rows() != x.Rows() || elements(&x) == 0 || !m.oneShot([]Tensor{x}) ||
		!besides(&s, &x) || !besides(&y, &x) {
		return nil, false
	}
	mail, stride := list[0], x.Cols // of rows in boxes
	if mail.cols == x.Cols {
		stride = ceilDiv(x.Cols, chunkElems) * chunkElems
	}
	var c Call
	c.launch("mailbox", "mail_send_4", m.grid(mail.chunks), mailBlock, 0, x.Ptr, x.stride(), aligned(&x), m.mail(mail, false, false))
	mail.cols = x.Cols
	c.launch("mailbox", y.suffixed("mail_add_norm"), m.grid(x.Rows()), normThreads(x.Cols), 0, Struct{y.Ptr, y.stride(), s.Ptr, s.stride(), a.Ptr, a.stride(), x.Ptr, x.stride(),
		w.Ptr, stride, aligned(&a, &x, &s, &y) && w.Ptr%16 == 0 && stride%4 == 0, float32(eps), m.mail(mail, false, true)})
	return c.launches, c.err == nil
}

// elements is the number of elements of a tensor.
func elements(t *Tensor) int { return t.Rows() * t.Cols }

// besides reports whether two tensors share no memory, or are in the same place element by element.
func besides(a, b *Tensor) bool {
	end := func(t *Tensor) uint64 { return t.offset((t.Rows()-1)*t.Stride + t.Cols) }
	return end(a) <= b.Ptr || end(b) <= a.Ptr || a.Ptr == b.Ptr && a.DType == b.DType && (a.Stride == b.Stride || a.Rows() == 1)
}

// oneShot reports whether each rank sends all to all others.
func (m *Mailbox) oneShot(args []Tensor) bool {
	return m.Ranks == 2 || (m.Ranks-1)*bytesOf(args) <= m.OneShot
}

var mailBlock = [3]int{chunkElems / 4}

func (m *Mailbox) grid(chunks int) [3]int { return [3]int{max(0, chunks), 1, 1} }

func (m *Mailbox) mail(l letter, own, ends bool) Struct {
	return Struct{m.Box, m.Ranks, m.Rank, m.chunks(), m.Bytes, m.data(), l.first, l.at, l.cols, own, ends}
}

// bytesOf is the size of tensors.
func bytesOf(list []Tensor) int {
	n := 0
	for i := range list {
		n += list[i].Rows() * list[i].DType.RowBytes(list[i].Cols)
	}
	return n
}

package cuda

import (
	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/graph"
	kernels "github.com/krait-ml/krait/kernels/cuda"
)

// ncclFunc is a function of NCCL: driver.Collectives.AllReduce, ….
type ncclFunc func(n driver.Collectives, s driver.Stream, send, recv driver.Ptr, count int64, f driver.Format) error

// ncclCall is one call of NCCL in a collective.
type ncclCall struct {
	run        ncclFunc
	send, recv driver.Ptr
	count      int64
	format     driver.Format
}

// viaNCCL issues the collective: its operands are made contiguous, the calls of a
// variadic one are a group, results are put where they belong.
func (x *collective) viaNCCL() error {
	for i := range x.before {
		if err := x.rank.put(&x.before[i]); err != nil {
			return x.rank.where(err)
		}
	}
	if err := x.group(); err != nil {
		return x.rank.where(err)
	}
	for i := range x.after {
		if err := x.rank.put(&x.after[i]); err != nil {
			return x.rank.where(err)
		}
	}
	return nil
}

func (x *collective) group() error {
	if len(x.calls) == 0 {
		return nil
	}
	n, s := x.rank.nccl, x.rank.stream(x.stream)
	if err := n.GroupStart(); err != nil {
		return err
	}
	for _, c := range x.calls {
		if err := c.run(n, s, c.send, c.recv, c.count, c.format); err != nil {
			return err
		}
	}
	return n.GroupEnd()
}

// most is the largest share of the whole that a rank holds, in elements: shares
// are padded to it.
func (x *collective) most(whole *kernels.Tensor) int {
	most := 0
	for _, part := range x.parts {
		n := 0
		for _, p := range part.List {
			if part.Rows {
				n += p.N * whole.Cols
			} else {
				n += p.N * whole.Rows()
			}
		}
		most = max(most, n)
	}
	return most
}

// stagingBytes is the memory in which a collective packs its payload, in bytes.
func (r *rank) stagingBytes(c *call) int64 {
	if !r.machine.nccl {
		return 0
	}
	n := 0
	for _, list := range [][]kernels.Tensor{c.on.Args, c.on.Results} {
		for i := range list {
			t := kernels.Raw(list[i])
			n += roundUp((elems(&t) + t.Rows()) * t.DType.Bytes())
		}
	}
	return int64(2 * (n + r.s.Ranks*ioAlign) * r.s.Ranks)
}

// stager packs operands into the rank's staging memory.
type stager struct {
	x   *collective
	at  driver.Ptr
	err error
}

// take is memory for rows of a tensor without gaps.
func (s *stager) take(d graph.DType, rows, cols int) kernels.Tensor {
	t := kernels.Tensor{Ptr: uint64(s.at)}
	t.DType, t.Cols, t.Stride = d, cols, d.RowBytes(cols)/d.Bytes()
	t.Dims[0] = rows
	s.at += driver.Ptr(roundUp(rows * d.RowBytes(cols)))
	return t
}

func (s *stager) launch(to *[]action, list []kernels.Launch) {
	more, err := s.x.rank.actions(s.x.name, s.x.stream, list)
	*to = append(*to, more...)
	if s.err == nil {
		s.err = err
	}
}

func (s *stager) call(run ncclFunc, send, recv uint64, count int, d graph.DType) {
	if count > 0 {
		s.x.calls = append(s.x.calls, ncclCall{run, driver.Ptr(send), driver.Ptr(recv), int64(count), formatOf(d)})
	}
}

// contiguous reports whether rows have no gaps.
func contiguous(t *kernels.Tensor) bool { return t.Stride == t.Cols || t.Rows() < 2 }

// reduce sums an operand where it is, unless its rows have gaps.
func (s *stager) reduce(from, to *kernels.Tensor) {
	if elems(from) == 0 {
		return
	}
	send, recv := *from, *to
	if !contiguous(from) {
		send = s.take(from.DType, from.Rows(), from.Cols)
		s.launch(&s.x.before, kernels.Copy(send, *from))
	}
	if s.x.rank.machine.device.BatchInvariant {
		s.sum(&send, to)
		return
	}
	if !contiguous(to) {
		recv = s.take(to.DType, to.Rows(), to.Cols)
		s.launch(&s.x.after, kernels.Copy(*to, recv))
	}
	s.call(driver.Collectives.AllReduce, send.Ptr, recv.Ptr, elems(from), from.DType)
}

// sum gathers the terms of all ranks and adds them in the order of the ranks, as over peer memory:
// NCCL's order depends on where an element lies in the payload.
func (s *stager) sum(send, to *kernels.Tensor) {
	n := s.x.rank.s.Ranks
	all := s.take(send.DType, n*send.Rows(), send.Cols)
	var terms []kernels.Tensor
	for r := range n {
		terms = append(terms, piece(all, true, r*send.Rows(), send.Rows()))
	}
	s.call(driver.Collectives.AllGather, send.Ptr, all.Ptr, elems(send), send.DType)
	s.add(to, terms)
}

// add appends the launch that adds up terms.
func (s *stager) add(to *kernels.Tensor, terms []kernels.Tensor) {
	list, err := kernels.PeerSum([]kernels.Tensor{*to}, terms, s.x.wide)
	if s.err == nil {
		s.err = err
	}
	s.launch(&s.x.after, list)
}

// packed are tensors for the pieces of a rank's share, one after another from an
// address on.
func (s *stager) packed(base uint64, rank int, whole *kernels.Tensor) []kernels.Tensor {
	var out []kernels.Tensor
	for _, p := range s.x.parts[rank].List {
		t := piece(*whole, s.x.parts[rank].Rows, 0, p.N)
		t.Ptr, t.Stride = base, t.Cols
		base += uint64(elems(&t) * t.DType.Bytes())
		out = append(out, t)
	}
	return out
}

// gather packs this rank's share of an operand, gathers the padded shares of all, and
// copies every piece to its place.
func (s *stager) gather(from, to *kernels.Tensor) {
	x := s.x
	most := x.most(to)
	switch {
	case most == 0:
		return
	case x.uneven(most, to) && contiguous(from) && contiguous(to):
		s.gatherEach(from, to)
		return
	}
	send, recv := s.take(from.DType, 1, most), s.take(from.DType, len(x.parts), most)
	s.launch(&x.before, kernels.Zero(send))
	me := x.rank.s.Rank
	for k, t := range s.packed(send.Ptr, me, to) {
		p := x.parts[me].List[k]
		s.copy(&x.before, t, piece(*from, x.parts[me].Rows, p.Part, p.N))
	}
	s.call(driver.Collectives.AllGather, send.Ptr, recv.Ptr, most, from.DType)
	for r := range x.parts {
		for k, t := range s.packed(recv.Ptr+uint64(r*most*to.DType.Bytes()), r, to) {
			p := x.parts[r].List[k]
			s.copy(&x.after, piece(*to, x.parts[r].Rows, p.Whole, p.N), t)
		}
	}
}

// scatter packs the shares of all ranks of an operand, sums them to their owners, and
// unpacks this rank's.
func (s *stager) scatter(from, to *kernels.Tensor) {
	x := s.x
	most := x.most(from)
	switch {
	case most == 0:
		return
	case from.DType.InBlocks() || x.uneven(most, from) && contiguous(from) && contiguous(to):
		s.scatterEach(from, to)
		return
	}
	send, recv := s.take(from.DType, len(x.parts), most), s.take(from.DType, 1, most)
	s.launch(&x.before, kernels.Zero(send))
	for r := range x.parts {
		for k, t := range s.packed(send.Ptr+uint64(r*most*from.DType.Bytes()), r, from) {
			p := x.parts[r].List[k]
			s.copy(&x.before, t, piece(*from, x.parts[r].Rows, p.Whole, p.N))
		}
	}
	if x.rank.machine.device.BatchInvariant {
		for r := range x.parts {
			s.exchange(r, piece(send, true, r, 1), recv)
		}
	} else {
		s.call(driver.Collectives.ReduceScatter, send.Ptr, recv.Ptr, most, from.DType)
	}
	me := x.rank.s.Rank
	for k, t := range s.packed(recv.Ptr, me, from) {
		p := x.parts[me].List[k]
		s.copy(&x.after, piece(*to, x.parts[me].Rows, p.Part, p.N), t)
	}
}

// uneven reports whether shares of rows, padded to the largest, would be twice the whole:
// of a piece of the batch a few ranks have rows, perhaps one.
func (x *collective) uneven(most int, whole *kernels.Tensor) bool {
	return x.parts[0].Rows && most*len(x.parts) >= 2*elems(whole)
}

// gatherEach sends the rows of each rank that has some to all, to where they belong.
func (s *stager) gatherEach(from, to *kernels.Tensor) {
	for r := range s.x.parts {
		for _, p := range s.x.parts[r].List {
			at := piece(*to, true, p.Whole, p.N)
			send := at.Ptr // on other ranks it is not read
			if r == s.x.rank.s.Rank {
				send = piece(*from, true, p.Part, p.N).Ptr
			}
			s.call(func(n driver.Collectives, on driver.Stream, send, recv driver.Ptr, count int64, f driver.Format) error {
				return n.Broadcast(on, send, recv, count, f, r)
			}, send, at.Ptr, elems(&at), to.DType)
		}
	}
}

// scatterEach sends each rank's rows to it, which adds them up in the order of the ranks.
// NCCL cannot add what is in blocks.
func (s *stager) scatterEach(from, to *kernels.Tensor) {
	for r := range s.x.parts {
		for _, p := range s.x.parts[r].List {
			part := piece(*to, true, 0, p.N)
			if r == s.x.rank.s.Rank {
				part = piece(*to, true, p.Part, p.N)
			}
			s.exchange(r, piece(*from, true, p.Whole, p.N), part)
		}
	}
}

// exchange sends rank r its rows, and adds up what all send to it: this rank's own, if r is this.
func (s *stager) exchange(r int, own, to kernels.Tensor) {
	if r == s.x.rank.s.Rank {
		s.addUp(own, to)
		return
	}
	raw := kernels.Raw(own)
	s.call(func(n driver.Collectives, on driver.Stream, send, _ driver.Ptr, count int64, f driver.Format) error {
		return n.Send(on, send, count, f, r)
	}, own.Ptr, own.Ptr, elems(&raw), raw.DType)
}

// addUp receives the other ranks' summands of these rows, and appends the launch that adds them.
func (s *stager) addUp(own, to kernels.Tensor) {
	var terms []kernels.Tensor
	for r := range s.x.parts {
		term := own
		if r != s.x.rank.s.Rank {
			term = s.take(own.DType, own.Rows(), own.Cols)
			raw := kernels.Raw(term)
			s.call(func(n driver.Collectives, on driver.Stream, _, recv driver.Ptr, count int64, f driver.Format) error {
				return n.Recv(on, recv, count, f, r)
			}, term.Ptr, term.Ptr, elems(&raw), raw.DType)
		}
		terms = append(terms, term)
	}
	s.add(&to, terms)
}

func (s *stager) copy(to *[]action, dst, src kernels.Tensor) {
	if elems(&dst) > 0 {
		s.launch(to, kernels.Copy(dst, src))
	}
}

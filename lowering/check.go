package lowering

import (
	"errors"
	"fmt"

	"github.com/krait-ml/krait/graph"
)

// Check proves that the schedule may run: tensors lie inside their memory; every read comes after
// the write that it means, and no memory is written before all who read what it held are done, in
// every order that streams and events allow; whatever outputs a batch wants, what is read was not
// left out. All that is wrong is in the error.
func (s *Schedule) Check() error {
	var errs []error
	if err := s.checkMesh(); err != nil {
		return err
	}
	errs = append(errs, s.checkBuffers()...)
	s.refs(func(r *Ref) {
		if err := s.checkRef(r); err != nil {
			errs = append(errs, err)
		}
	})
	errs = append(errs, s.checkLoops()...)
	for _, steps := range [][]Step{s.Init, s.Steps} {
		for i := range steps {
			if err := s.checkStep(&steps[i]); err != nil {
				errs = append(errs, err)
			} else if err := s.checkStepFor(&steps[i]); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", &steps[i], err))
			}
		}
	}
	if errs != nil {
		return errors.Join(errs...)
	}
	return errors.Join(append(s.checkChain(), s.checkOrder()...)...)
}

// checkBuffers: each has its size and lies in its region, and regions are as
// large as they need to be.
func (s *Schedule) checkBuffers() []error {
	var errs []error
	var ends [len(spaceNames)]int64
	for i := range s.Buffers {
		b := &s.Buffers[i]
		if err := errors.Join(s.checkShape(b), s.checkPlace(b), s.checkInputFor(b)); err != nil {
			errs = append(errs, fmt.Errorf("buffer %s: %w", b.Name, err))
		}
		end := b.Offset + b.Bytes // of pieces, also below 0
		if b.Space.aligned() {
			end = roundUp(end)
		}
		ends[b.Space] = max(ends[b.Space], end)
	}
	if errs != nil {
		return errs
	}
	for space, end := range ends {
		if s.Bytes[space] != end {
			errs = append(errs, fmt.Errorf("region %s has %d bytes, its buffers need %d", Space(space), s.Bytes[space], end))
		}
	}
	return errs
}

// checkShape: the type of a buffer is one that its region has, and says its size.
func (s *Schedule) checkShape(b *Buffer) error {
	bytes, space, err := sizeOf(s.Local(b.Type))
	if b.Type.DType.Quantized() {
		bytes = s.inBlocks(b.Type)
	}
	switch {
	case b.Type.DType.Quantized() && b.Space != Param:
		return fmt.Errorf("%s is in the region %s; only parameters are in blocks", b.Type, b.Space)
	case b.Space == Input || b.Space < Input && err != nil:
		return nil // no step makes them, so they may be of any shape
	case b.Narrow != graph.NarrowNever && (b.Space < PerToken || b.Type.DType != graph.F32):
		return fmt.Errorf("%s in the region %s is kept as %s; only activations of f32 may be", b.Type, b.Space, b.Narrow)
	case err != nil:
		return err
	}
	bytes, ok := s.room(b.Space, space, b.Narrow.Room(bytes))
	switch {
	case !ok:
		return fmt.Errorf("%s is in the region %s", b.Type, b.Space)
	case b.Bytes != bytes:
		return fmt.Errorf("%s takes %d bytes, not %d", b.Type, bytes, b.Bytes)
	}
	return nil
}

// has reports whether a tensor whose shape asks for one space may lie in another.
func (s Space) has(shape Space) bool {
	switch {
	case s == Cache || shape == Cache, s > Constant:
		return s == shape
	case s == Constant:
		return shape == Fixed
	}
	return true
}

// checkPlace: a buffer is inside of its region, and aligned.
func (s *Schedule) checkPlace(b *Buffer) error {
	to := int64(align)
	if b.Space == State && b.Part != nil { // which may follow other fields
		to = int64(b.Type.DType.Bytes())
	}
	least := int64(0)
	if before := b.Space.Before(); before != b.Space {
		least = -s.Bytes[before]
	}
	switch {
	case b.Offset < least || b.Bytes < 0 || b.Offset > s.Bytes[b.Space]-b.Bytes:
		return fmt.Errorf("bytes %d+%d of %d", b.Offset, b.Bytes, s.Bytes[b.Space])
	case b.Space.aligned() && b.Offset%to != 0:
		return fmt.Errorf("offset %d is not aligned to %d", b.Offset, to)
	}
	return nil
}

// checkRef: a view stays inside its buffer.
func (s *Schedule) checkRef(r *Ref) error {
	if r.Buffer < 0 || r.Buffer >= len(s.Buffers) {
		return fmt.Errorf("%s is in buffer %d of %d", r.Name, r.Buffer, len(s.Buffers))
	}
	b := &s.Buffers[r.Buffer]
	if why := viewOf(s.Local(b.Type), s.Local(r.Type), r.Offset, r.Stride); why != "" {
		return fmt.Errorf("%s[%d:%d] is not a view of %s, which is %s: %s", r.Name, r.Offset, r.Stride, b.Name, b.Type, why)
	}
	return nil
}

// viewOf says why a tensor of type t, its rows stride elements apart, is no part of
// one of type of; empty if it is.
func viewOf(of, t graph.Type, offset, stride int) string {
	width, cols := graph.RowElems(of.Dims), graph.RowElems(t.Dims)
	n, axis := firstAxis(of.Dims)
	count, same := firstAxis(t.Dims)
	switch {
	case t.DType != of.DType:
		return "another number format"
	case t.DType.Quantized() && !inLines(of, t, offset):
		return "lines of blocks are seen whole"
	case t.DType.InBlocks() && (offset != 0 || count != n || cols != width):
		return "blocks are seen whole"
	case axis != same:
		return "another first axis"
	case stride != width || cols > width:
		return "rows are apart, or longer"
	case offset < 0 || offset > n*width:
		return "it begins outside"
	case count*cols > 0 && offset%width > width-cols:
		return "it goes beyond the end of a row"
	case count*cols > 0 && offset/width > n-count:
		return "it goes beyond the last row"
	}
	return ""
}

// inLines reports whether a tensor of type t, of which an element of one of type of is the
// first, has the same lines along its last axis.
func inLines(of, t graph.Type, offset int) bool {
	line := of.Dims[len(of.Dims)-1].Len()
	return len(t.Dims) > 1 && t.Dims[len(t.Dims)-1].Len() == line && offset%max(1, line) == 0
}

// firstAxis is the size of the first axis, or 1 and its symbol.
func firstAxis(dims []graph.Dim) (int, rows) {
	if len(dims) == 0 {
		return 1, rows{}
	}
	if dims[0].Sym != 0 {
		return 1, rows{dims[0].Sym, dims[0].Over > 0}
	}
	return dims[0].Len(), rows{}
}

// checkStep: kind, stream and operation belong together.
func (s *Schedule) checkStep(st *Step) error {
	if st.Kind == Record || st.Kind == Wait {
		switch {
		case st.Stream >= numStreams:
			return fmt.Errorf("%s: there is no such stream", st)
		case st.Loop != 0:
			return fmt.Errorf("%s: it is in a loop; a loop is on one stream", st)
		}
		return nil
	}
	if st.Op != nil && st.between() {
		return s.checkPassing(st)
	}
	if st.Op != nil && st.chained() {
		return s.checkTurn(st)
	}
	if st.Op == nil || len(st.Results) == 0 {
		return fmt.Errorf("step %s has no operation or no result", st.Name)
	}
	kind, err := kindOf(st.Op)
	stream := Compute
	if kind == Collective && st.Loop == 0 {
		stream = Comm
	}
	switch {
	case err != nil:
		return err
	case kind != st.Kind || stream != st.Stream:
		return fmt.Errorf("%s is on the %s stream; it must be on %s", st, st.Stream, stream)
	case st.Op.Class == graph.View && !s.isColumns(st):
		return fmt.Errorf("%s: it is to copy a field of the second of two axes", st)
	case kind != Launch && len(st.Args) != len(st.Results):
		return fmt.Errorf("%s: %d operands and %d results", st, len(st.Args), len(st.Results))
	}
	return s.checkLooped(st)
}

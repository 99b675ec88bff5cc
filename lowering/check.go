package lowering

import (
	"errors"
	"fmt"

	"github.com/krait-ml/krait/graph"
)

// Check proves that the schedule may run: tensors lie inside their memory;
// every read comes after the write that it means, and no memory is written
// before all who read what it held are done, in every order that streams and
// events allow. All that is wrong is in the error.
func (s *Schedule) Check() error {
	var errs []error
	errs = append(errs, s.checkBuffers()...)
	s.refs(func(r *Ref) {
		if err := s.checkRef(r); err != nil {
			errs = append(errs, err)
		}
	})
	for _, steps := range [][]Step{s.Init, s.Steps} {
		for i := range steps {
			if err := s.checkStep(&steps[i]); err != nil {
				errs = append(errs, err)
			}
		}
	}
	if errs != nil {
		return errors.Join(errs...)
	}
	return errors.Join(s.checkOrder()...)
}

// CheckAll checks the schedules of all ranks, and that they meet in the same
// collectives in the same order.
func CheckAll(schedules []*Schedule) error {
	if len(schedules) == 0 {
		return errors.New("there is no schedule")
	}
	first := schedules[0].exchanges()
	for i, s := range schedules {
		if s.Rank != i || s.Ranks != len(schedules) {
			return fmt.Errorf("schedule %d of %d is for rank %d of %d", i, len(schedules), s.Rank, s.Ranks)
		}
		if err := s.Check(); err != nil {
			return fmt.Errorf("the schedule of rank %d: %w", i, err)
		}
		mine := s.exchanges()
		if len(mine) != len(first) {
			return fmt.Errorf("rank %d takes part in %d collectives, rank 0 in %d", i, len(mine), len(first))
		}
		for k, st := range mine {
			if !sameExchange(st, first[k]) {
				return fmt.Errorf("collective %d is %q on rank %d and %q on rank 0", k, st, i, first[k])
			}
		}
	}
	return nil
}

// exchanges lists the collectives in the order of the comm stream.
func (s *Schedule) exchanges() []*Step {
	var out []*Step
	for i := range s.Steps {
		if s.Steps[i].Kind == Exchange {
			out = append(out, &s.Steps[i])
		}
	}
	return out
}

func sameExchange(a, b *Step) bool {
	if a.String() != b.String() {
		return false
	}
	for i := range a.Args {
		if !a.Args[i].Type.Equal(b.Args[i].Type) {
			return false
		}
	}
	for i := range a.Results {
		if !a.Results[i].Type.Equal(b.Results[i].Type) {
			return false
		}
	}
	return true
}

// checkBuffers: each has its size and lies in its region, and regions are as
// large as they need to be.
func (s *Schedule) checkBuffers() []error {
	var errs []error
	var ends [len(spaceNames)]int64
	for i := range s.Buffers {
		b := &s.Buffers[i]
		fail := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("buffer "+b.Name+": "+format, args...))
		}
		bytes, space, err := sizeOf(s.Local(b.Type))
		switch {
		case b.Space > Input && err != nil:
			fail("%w", err)
		case b.Space == Constant && space != Fixed || (b.Space == Cache) != (space == Cache) && b.Space != Input && err == nil || b.Space > Constant && b.Space != space:
			fail("%s is in the region %s", b.Type, b.Space)
		case b.Space != Input && err == nil && b.Bytes != bytes:
			fail("%s takes %d bytes, not %d", b.Type, bytes, b.Bytes)
		case b.Offset < 0 || b.Bytes < 0 || b.Offset > s.Bytes[b.Space]-b.Bytes:
			fail("bytes %d+%d of %d", b.Offset, b.Bytes, s.Bytes[b.Space])
		case b.Space.aligned() && b.Offset%align != 0:
			fail("offset %d is not aligned to %d", b.Offset, align)
		default:
			end := b.Offset + b.Bytes
			if b.Space.aligned() {
				end = roundUp(end)
			}
			ends[b.Space] = max(ends[b.Space], end)
		}
	}
	for space, end := range ends {
		if s.Bytes[space] != end && errs == nil {
			errs = append(errs, fmt.Errorf("region %s has %d bytes, its buffers need %d", Space(space), s.Bytes[space], end))
		}
	}
	return errs
}

// checkRef: a view stays inside its buffer.
func (s *Schedule) checkRef(r *Ref) error {
	if r.Buffer < 0 || r.Buffer >= len(s.Buffers) {
		return fmt.Errorf("%s is in buffer %d of %d", r.Name, r.Buffer, len(s.Buffers))
	}
	b := &s.Buffers[r.Buffer]
	local, of := s.Local(r.Type).Dims, s.Local(b.Type).Dims
	cols, width := graph.RowElems(local), graph.RowElems(of)
	fail := func(why string) error {
		return fmt.Errorf("%s[%d:%d] is no view of %s, which is %s: %s", r.Name, r.Offset, r.Stride, b.Name, b.Type, why)
	}
	rows, n, same := firstAxes(local, of)
	switch {
	case r.Type.DType != b.Type.DType:
		return fail("another number format")
	case !same:
		return fail("another first axis")
	case r.Stride != width || cols > width:
		return fail("rows are apart, or longer")
	case r.Offset < 0 || r.Offset > n*width:
		return fail("it begins outside")
	case rows*cols > 0 && r.Offset%width > width-cols:
		return fail("it goes beyond the end of a row")
	case rows*cols > 0 && r.Offset/width > n-rows:
		return fail("it goes beyond the last row")
	}
	return nil
}

// firstAxes are the sizes of the first axes of a view and of its buffer; 1 and 1
// for the same symbol.
func firstAxes(view, of []graph.Dim) (rows, n int, ok bool) {
	size := func(dims []graph.Dim) (int, graph.Sym) {
		if len(dims) == 0 {
			return 1, 0
		}
		if dims[0].Sym != 0 {
			return 1, dims[0].Sym
		}
		return dims[0].Len(), 0
	}
	rows, a := size(view)
	n, b := size(of)
	return rows, n, a == b
}

// checkStep: kind, stream and operation belong together.
func (s *Schedule) checkStep(st *Step) error {
	if st.Kind == Record || st.Kind == Wait {
		if st.Stream >= numStreams {
			return fmt.Errorf("%s: there is no such stream", st)
		}
		return nil
	}
	if st.Op == nil || len(st.Results) == 0 {
		return fmt.Errorf("step %s has no operation or no result", st.Name)
	}
	kind, err := kindOf(st.Op)
	stream := Compute
	if kind == Exchange {
		stream = Comm
	}
	switch {
	case err != nil:
		return err
	case kind != st.Kind || stream != st.Stream:
		return fmt.Errorf("%s is on the %s stream; it must be on %s", st, st.Stream, stream)
	case kind != Launch && len(st.Args) != len(st.Results):
		return fmt.Errorf("%s: %d operands and %d results", st, len(st.Args), len(st.Results))
	}
	return nil
}

package graph

// Run is a stretch of consecutive elements along the sharded axis of the global
// tensor. A rank stores its runs one after another.
type Run struct{ Start, Len int }

// End is the index after the last element.
func (r Run) End() int { return r.Start + r.Len }

// within is what r and rows have in common; nothing begins where r does.
func (r Run) within(rows Run) Run {
	lo, hi := max(r.Start, rows.Start), min(r.End(), rows.End())
	if lo >= hi {
		return Run{r.Start, 0}
	}
	return Run{lo, hi - lo}
}

// ExtentsWithin is the first of what the rank holds of some rows, counted from the first
// that it holds, and how many there are, of a value whose rows lie as the batch says.
func (t Type) ExtentsWithin(b *Batch, ranks, rank int, rows Run) Run {
	all := t.Extents(b, ranks, rank)[0]
	r := all.within(rows)
	return Run{r.Start - all.Start, r.Len}
}

// Batch is what says how the rows of a batch lie over ranks: its sizes, and where its
// sequences end.
type Batch struct {
	Sizes
	Ends []int // of each sequence: the token after its last, counted in the batch
}

// Owned is the run of units that rank owns when units are split over ranks: as even as possible,
// possibly none. Everything that is split in the same number of units lies the same way.
func Owned(units, ranks, rank int) Run {
	lo, hi := rank*units/ranks, (rank+1)*units/ranks
	return Run{lo, hi - lo}
}

// whole is the run of tokens that rank has when ranks have whole sequences: each
// begins where the sequence begins or ends that does so closest to an even share.
func (b *Batch) whole(ranks, rank int) Run {
	lo := b.closest(rank, ranks)
	return Run{lo, b.closest(rank+1, ranks) - lo}
}

// closest is the end of a sequence that is closest to n/ranks of the tokens; of two
// that are as close, the first.
func (b *Batch) closest(n, ranks int) int {
	tokens, best := int(b.Tokens), 0
	far := func(at int) int { return max(at*ranks-n*tokens, n*tokens-at*ranks) }
	for _, end := range b.Ends {
		if far(end) < far(best) {
			best = end
		}
	}
	return best
}

// EvenShare is [Batch.LargestShare] of sequences that have the same number of tokens each.
func EvenShare(seqs, tokens, ranks int64) int64 { return (seqs + ranks - 1) / ranks * tokens }

// LargestShare is the most tokens that a rank has when ranks have whole sequences:
// what [Largest] stands for.
func (b *Batch) LargestShare(ranks int) int64 {
	most := 0
	for rank := range ranks {
		most = max(most, b.whole(ranks, rank).Len)
	}
	return int64(most)
}

// Extents lists, field by field, what a rank holds of the axis that t is
// sharded on. It is the only place where the offset of a shard is computed:
// weight slicing, state slicing, moving state between rank counts, cutting the rows of
// a batch and the checks all use it. A value that is not sharded gives nil: it is held
// whole. The batch says how rows lie; where t is not split so, it may be nil.
func (t Type) Extents(b *Batch, ranks, rank int) []Run {
	if t.Layout.Kind != Sharded {
		return nil
	}
	if t.Layout.ByBatch() {
		return []Run{b.rows(t.Dims[0].Sym, t.Layout.Place[0].Kind, ranks, rank)}
	}
	fields := t.Dims[t.Layout.Axis].Fields
	runs := make([]Run, len(fields))
	start := 0
	for i, f := range fields {
		r := placed(f, t.Layout.Place[i], ranks, rank)
		runs[i] = Run{start + r.Start*f.Grain(), r.Len * f.Grain()}
		start += f.Size
	}
	return runs
}

// rows is the run of rows that a rank has.
func (b *Batch) rows(s Sym, place PlaceKind, ranks, rank int) Run {
	switch {
	case b == nil:
		panic("BUG: which rows a rank has is asked for without a batch")
	case place == BySequence:
		return b.whole(ranks, rank)
	}
	return Owned(int(b.Of(s)), ranks, rank)
}

// placed is the run of the field's units that a rank holds.
func placed(f Field, p Placement, ranks, rank int) Run {
	switch p.Kind {
	case Split:
		return Owned(f.Units(), ranks, rank)
	case Cover:
		return covering(Owned(p.Of, ranks, rank), p.Of/f.Units())
	}
	return Run{0, f.Units()}
}

// covering is the run of groups, of size units each, that a run of units touches.
func covering(r Run, size int) Run {
	if r.Len == 0 {
		return Run{r.Start / size, 0}
	}
	lo := r.Start / size
	return Run{lo, (r.End()+size-1)/size - lo}
}

// Local is the type of what a rank holds: t with the sharded axis cut down to the rank's extents,
// and no layout. Of rows it has the largest share, since which is whose depends on the batch.
func (t Type) Local(ranks, rank int) Type {
	out := Type{DType: t.DType, Dims: append([]Dim(nil), t.Dims...)}
	if t.Layout.ByBatch() {
		if ranks > 1 {
			out.Dims[0] = largest(t.Dims[0].Sym, t.Layout.Place[0].Kind, ranks)
		}
		return out
	}
	for i, r := range t.Extents(nil, ranks, rank) {
		if i == 0 {
			d := t.Dims[t.Layout.Axis]
			out.Dims[t.Layout.Axis] = Dim{Fields: append([]Field(nil), d.Fields...)}
		}
		out.Dims[t.Layout.Axis].Fields[i].Size = r.Len
	}
	return out
}

// largest is the rows of the rank that has most.
func largest(s Sym, place PlaceKind, ranks int) Dim {
	if place == BySequence {
		return Symbol(Largest)
	}
	return Dim{Sym: s, Over: ranks}
}

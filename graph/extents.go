package graph

// Run is a stretch of consecutive elements along the sharded axis of the global
// tensor. A rank stores its runs one after another.
type Run struct{ Start, Len int }

// End is the index after the last element.
func (r Run) End() int { return r.Start + r.Len }

// Within is what r and rows have in common; nothing begins where r does.
func (r Run) Within(rows Run) Run {
	lo, hi := max(r.Start, rows.Start), min(r.End(), rows.End())
	if lo >= hi {
		return Run{r.Start, 0}
	}
	return Run{lo, hi - lo}
}

// ExtentsWithin is the first of what the rank holds of some rows, counted from the first
// that it holds, and how many there are, of a value whose rows lie as the batch says.
func (t Type) ExtentsWithin(b *Batch, ranks, rank int, rows Run) Run {
	var out Run
	for _, all := range t.Extents(b, ranks, rank) {
		out.Start += all.Within(Run{0, rows.Start}).Len
		out.Len += all.Within(rows).Len
	}
	return out
}

// PartBlock is the number of tokens at multiples of which sequences are cut, in parts for ranks and
// in chunks for steps: a multiple of the chunks of scans on all devices, so that a cut changes no
// bit.
const PartBlock = 64

// PartOf is the run of a sequence's new tokens that a rank has of them in parts: whole blocks of
// [PartBlock], as even as possible, and no token of a short sequence. It depends on the number of
// the tokens and of the ranks alone.
func PartOf(tokens, ranks, rank int) Run {
	r := Owned((tokens+PartBlock-1)/PartBlock, ranks, rank)
	lo, hi := min(r.Start*PartBlock, tokens), min(r.End()*PartBlock, tokens)
	return Run{lo, hi - lo}
}

// parts lists the run that a rank has of each sequence.
func (b *Batch) parts(ranks, rank int) []Run {
	runs, start := make([]Run, len(b.Ends)), 0
	for i, end := range b.Ends {
		r := PartOf(end-start, ranks, rank)
		runs[i], start = Run{start + r.Start, r.Len}, end
	}
	return runs
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
func EvenShare(place PlaceKind, seqs, tokens, ranks int64) int64 {
	if place != InParts {
		return (seqs + ranks - 1) / ranks * tokens
	}
	most := 0
	for rank := range int(ranks) {
		most = max(most, PartOf(int(tokens), int(ranks), rank).Len)
	}
	return seqs * int64(most)
}

// LargestShare is the most tokens that a rank has when ranks have whole sequences, or parts of
// them: what [Largest] stands for.
func (b *Batch) LargestShare(place PlaceKind, ranks int) int64 {
	most := 0
	for rank := range ranks {
		most = max(most, total(b.rows(Symbol(Tokens), place, ranks, rank)))
	}
	return int64(most)
}

// total is the length of all runs.
func total(runs []Run) (n int) {
	for _, r := range runs {
		n += r.Len
	}
	return n
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
		return b.rows(t.Dims[0], t.Layout.Place[0].Kind, ranks, rank)
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

// rows lists the runs of rows that a rank has: one, or in parts one of each sequence.
func (b *Batch) rows(d Dim, place PlaceKind, ranks, rank int) []Run {
	switch {
	case b == nil:
		panic("BUG: which rows a rank has is asked for without a batch")
	case place == BySequence:
		return []Run{b.whole(ranks, rank)}
	case place == InParts:
		return b.parts(ranks, rank)
	}
	return []Run{Owned(d.At(b.Sizes), ranks, rank)}
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
			out.Dims[0] = largest(t.Dims[0], t.Layout.Place[0].Kind, ranks)
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
func largest(d Dim, place PlaceKind, ranks int) Dim {
	switch {
	case place >= BySequence:
		return Symbol(Largest)
	case d.Times > 0: // as many parts of each sequence as ranks, see deriveParts
		return Symbol(d.Sym)
	}
	return Dim{Sym: d.Sym, Over: ranks}
}

package graph

// Pieces says where what a rank holds of a tensor is in the whole: stretches of
// each row, or of the rows when the first axis is sharded. Weights, inputs, state
// and what collectives move are cut along them, and by nothing else.
type Pieces struct {
	Rows bool
	List []Stretch
}

// Stretch is N neighbouring elements, or rows, of the whole and of the part.
type Stretch struct{ Whole, Part, N int }

// PiecesOf works the pieces out from the extents of a type that does not depend on the batch.
func PiecesOf(t Type, ranks, rank int) Pieces { return PiecesIn(nil, t, ranks, rank) }

// PiecesIn works the pieces out from the extents of a type in a batch.
func PiecesIn(b *Batch, t Type, ranks, rank int) Pieces {
	runs := t.Extents(b, ranks, rank)
	if runs == nil {
		runs = []Run{{Start: 0, Len: RowElems(t.Dims)}}
		t = TypeOf(t.DType, Symbol(Tokens), Size(runs[0].Len))
		t.Layout.Axis = 1
	}
	axis := t.Layout.Axis
	if t.Ragged() { // a row per sequence and token
		t.Dims = t.Dims[1:]
		axis--
	}
	outer, inner, held := 1, 1, 0
	for i, d := range t.Dims {
		if i > axis && axis > 0 {
			inner *= d.Len()
		} else if 0 < i && i < axis {
			outer *= d.Len()
		}
	}
	for _, r := range runs {
		held += r.Len
	}
	p := Pieces{Rows: axis == 0}
	for o := range outer {
		at := o * held
		for _, r := range runs {
			if r.Len > 0 {
				p.add(Stretch{(o*t.Dims[axis].Len() + r.Start) * inner, at * inner, r.Len * inner})
			}
			at += r.Len
		}
	}
	return p
}

// add appends a stretch, to the last one if it follows it: sequences that a rank has whole are one.
func (p *Pieces) add(x Stretch) {
	if n := len(p.List); n > 0 {
		last := &p.List[n-1]
		if last.Whole+last.N == x.Whole && last.Part+last.N == x.Part {
			last.N += x.N
			return
		}
	}
	p.List = append(p.List, x)
}

// PiecesWithin says what a rank holds of some rows, counted from their first, of a tensor
// whose rows lie as the batch says. In the part they are counted from the first that it holds.
func PiecesWithin(b *Batch, t Type, ranks, rank int, rows Run) Pieces {
	p, at := Pieces{Rows: true}, 0
	for _, r := range t.Extents(b, ranks, rank) {
		if r = r.Within(rows); r.Len > 0 {
			p.add(Stretch{r.Start - rows.Start, at, r.Len})
			at += r.Len
		}
	}
	return p
}

// Each visits stretches of n elements of a whole tensor of rows times cols: row
// and column in the whole, row and column in the part.
func (p *Pieces) Each(rows, cols int, f func(row, whole, partRow, part, n int)) {
	for _, x := range p.List {
		if !p.Rows {
			for row := range rows {
				f(row, x.Whole, row, x.Part, x.N)
			}
			continue
		}
		for i := range x.N {
			f(x.Whole+i, 0, x.Part+i, 0, cols)
		}
	}
}

// Cut copies what the rank holds of a tensor whose rows have cols elements of size
// bytes each; in part, which has room for it, they have stride.
func (p *Pieces) Cut(part, whole []byte, cols, stride, size int) {
	p.Each(len(whole)/max(1, cols*size), cols, func(row, from, partRow, to, n int) {
		copy(part[(partRow*stride+to)*size:][:n*size], whole[(row*cols+from)*size:])
	})
}

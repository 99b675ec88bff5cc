package ptx

import (
	"cmp"
	"math"
	"slices"
)

// Meter counts what a launch does.
type Meter struct {
	// Sample interprets only some blocks of a large grid: along each axis of the
	// grid the first, the last, and two in the middle, or all where blocks are so unlike
	// that some seem to have nothing to do. Counts of those between are taken to lie on a
	// line through them, which they do where blocks are alike, or have more to do one after
	// the other by the same amount. The results of a launch are invalid then. Launches
	// with atomics in global memory, by which blocks may find out that they are the last
	// one, run whole, unless those meet that differ along the third axis alone, all of
	// which run.
	Sample bool
	// Cheap is how many instructions of warps a launch may take that runs whole all the
	// same.
	Cheap  int64
	Counts Counts // of the last launch
	// Bytes asks for the bytes that a launch that runs whole loads and stores, in pieces
	// that do not touch, in ascending order.
	Bytes          bool
	Loaded, Stored []Piece
}

// Piece is some bytes of global memory.
type Piece struct{ At, End uint64 }

const (
	// fewBlocks run all, and so do fewPositions of the first two axes and somePositions
	// of the third, which often counts what differs, such as experts.
	fewBlocks, fewPositions, somePositions = 32, 4, 16
	// mostPositions are run all where blocks along an axis are unlike.
	mostPositions = 1 << 12
)

// positions are those along an axis that are run, and how many each stands for.
type positions struct {
	n      int
	at     []int
	weight []float64
}

// allOf runs all.
func allOf(n int) (p positions) {
	p.n = n
	for i := range n {
		p.at, p.weight = append(p.at, i), append(p.weight, 1)
	}
	return p
}

// someOf runs four.
func someOf(n int) positions {
	half, rest := (n-1)/2, float64(n-2)
	p := positions{n: n, at: []int{0, half, half + 1, n - 1}, weight: []float64{1, rest, 0, 1}}
	if n%2 == 0 {
		p.weight[1], p.weight[2] = rest/2, rest/2
	}
	return p
}

func (p *positions) all() bool { return len(p.at) == p.n }

// middle is the index of the position that stands for most.
func (p *positions) middle() int {
	if p.all() {
		return (p.n - 1) / 2
	}
	return 1
}

// metered runs a launch and counts.
func (x *execution) metered(m *Meter) error {
	defer func() { x.tally = nil }()
	n := int64(x.l.Grid[0]) * int64(x.l.Grid[1]) * int64(x.l.Grid[2])
	m.Counts = Counts{}
	if m.Sample && n > fewBlocks {
		done, err := x.sampled(m)
		if done || err != nil {
			return err
		}
	}
	before := x.warpInstrs
	t := newTally(x)
	x.tally = t
	for _, id := range blockOrder(x.l) {
		begun := x.warpInstrs
		if err := x.one(id); err != nil {
			return err
		}
		t.Longest = max(t.Longest, x.warpInstrs-begun)
	}
	m.Counts = t.Counts
	m.Counts.Blocks, m.Counts.Run, m.Counts.Instrs = n, n, x.warpInstrs-before
	m.Loaded, m.Stored = nil, nil
	for s, p := range t.prints {
		if s.store {
			m.Counts.Stores.Distinct += p.count()
		} else {
			m.Counts.Loads.Distinct += p.count()
		}
		if pieces := &m.Loaded; m.Bytes {
			if s.store {
				pieces = &m.Stored
			}
			*pieces = append(*pieces, p.pieces()...)
		}
	}
	byAddress := func(a, b Piece) int { return cmp.Compare(a.At, b.At) }
	slices.SortFunc(m.Loaded, byAddress)
	slices.SortFunc(m.Stored, byAddress)
	return nil
}

// sampled runs some blocks and counts all. It reports false where blocks depend on each
// other, leaving things as they were, and where the launch is a cheap one.
func (x *execution) sampled(m *Meter) (done bool, err error) {
	s := sampler{x: x}
	for a, n := range x.l.Grid {
		if few := [...]int{fewPositions, fewPositions, somePositions}[a]; n <= few {
			s.axes[a] = allOf(n)
		} else {
			s.axes[a] = someOf(n)
		}
	}
	done, err = s.run()
	if done && err == nil && s.refine() {
		done, err = s.run()
	}
	if !done || err != nil {
		return done, err
	}
	if m.Counts = s.total.counts(); m.Counts.Instrs <= m.Cheap {
		return false, nil
	}
	m.Counts.Run, m.Counts.Blocks = int64(len(s.all)), int64(x.l.Grid[0])*int64(x.l.Grid[1])*int64(x.l.Grid[2])
	for _, t := range s.all {
		m.Counts.Longest = max(m.Counts.Longest, t.Instrs)
	}
	m.Counts.Loads.Distinct, m.Counts.Stores.Distinct = s.distinct()
	return true, nil
}

// sampler has what was counted of the blocks that ran, by their places among the
// positions of the axes.
type sampler struct {
	x     *execution
	axes  [3]positions
	all   map[[3]int]*tally
	total weighted

	meet map[location][2]int // where blocks update global memory: their places along the first axes
	told []*tally            // of blocks that did, in their order
}

// location is one of global memory.
type location struct {
	r   *region
	off uint64
}

// run runs the blocks, and reports false where they depend on each other.
func (s *sampler) run() (bool, error) {
	s.revert()
	s.all, s.total, s.meet = map[[3]int]*tally{}, weighted{}, map[location][2]int{}
	for i := range s.axes[0].at {
		for j := range s.axes[1].at {
			for k := range s.axes[2].at {
				at := [3]int{i, j, k}
				weight := s.axes[0].weight[i] * s.axes[1].weight[j] * s.axes[2].weight[k]
				if weight == 0 && !s.onLine(at) {
					continue
				}
				if ok, err := s.block(at, weight); !ok || err != nil {
					return ok, err
				}
			}
		}
	}
	return true, nil
}

func (s *sampler) block(at [3]int, weight float64) (bool, error) {
	before := s.x.warpInstrs
	t := newTally(s.x)
	s.x.tally = t
	err := s.x.one([3]int{s.axes[0].at[at[0]], s.axes[1].at[at[1]], s.axes[2].at[at[2]]})
	if t.Atomics > 0 {
		s.told = append(s.told, t)
		if !s.apart(t, [2]int{at[0], at[1]}) {
			s.revert()
			return false, err
		}
	}
	t.Instrs = s.x.warpInstrs - before
	s.total.add(&t.Counts, weight)
	s.all[at] = t
	return true, err
}

// apart reports whether a block has met others along the third axis alone, where all run.
func (s *sampler) apart(t *tally, at [2]int) bool {
	for i := range t.undo {
		here := location{t.undo[i].r, t.undo[i].off}
		if other, ok := s.meet[here]; ok && other != at {
			return false
		}
		s.meet[here] = at
	}
	return s.x.l.Grid[2] > 1 && s.axes[2].all()
}

// revert takes the atomics of all blocks back.
func (s *sampler) revert() {
	for _, t := range slices.Backward(s.told) {
		t.revert()
	}
	s.told = nil
}

// onLine reports whether a block is in the middle but along one axis that is sampled.
func (s *sampler) onLine(at [3]int) bool {
	off := 0
	for a := range at {
		if p := &s.axes[a]; !p.all() && at[a] != p.middle() {
			off++
		}
	}
	return off <= 1
}

// refine takes all positions of axes along which blocks are unlike, and reports whether
// there are any.
func (s *sampler) refine() (changed bool) {
	middle := s.middle()
	for a := range s.axes {
		p := &s.axes[a]
		if p.all() || p.n > mostPositions {
			continue
		}
		at := middle
		var n [4]int64
		for i := range n {
			at[a] = i
			n[i] = s.all[at].Instrs
		}
		unlike := func(a, b int64) bool { return a > 2*b || b > 2*a }
		idle := 16*n[3] < n[1] // of experts' rows, say, there may be fewer than the batch has: then some in between are idle, too
		if unlike(n[0], n[1]) || unlike(n[1], n[2]) || n[3] > 2*n[1] || idle {
			s.axes[a], changed = allOf(p.n), true
		}
	}
	return changed
}

func (s *sampler) middle() (at [3]int) {
	for a := range at {
		at[a] = s.axes[a].middle()
	}
	return at
}

// distinct is how many bytes all blocks touch. What blocks have of an operand is taken
// to be a product over the axes that are sampled, along each of which it stays, moves, or
// grows.
func (s *sampler) distinct() (loads, stores int64) {
	joined := map[stream]map[[3]int]*footprint{}
	for at, t := range s.all {
		for a := range at {
			if s.axes[a].all() {
				at[a] = s.axes[a].middle()
			}
		}
		for key, p := range t.prints {
			if joined[key] == nil {
				joined[key] = map[[3]int]*footprint{}
			}
			joined[key][at] = p.with(joined[key][at])
		}
	}
	for key, prints := range joined {
		n := int64(math.Round(s.of(prints)))
		if key.store {
			stores += n
		} else {
			loads += n
		}
	}
	return loads, stores
}

// of is how many bytes of a stream all blocks touch.
func (s *sampler) of(prints map[[3]int]*footprint) float64 {
	one := float64(prints[s.middle()].count())
	n := one
	if one == 0 { // of some blocks only, which are taken to have none in common
		for at, p := range prints {
			w := float64(p.count())
			for a := range at {
				if !s.axes[a].all() {
					w *= s.axes[a].weight[at[a]]
				}
			}
			n += w
		}
		return n
	}
	for a := range s.axes {
		if !s.axes[a].all() {
			n *= s.along(a, prints) / one
		}
	}
	return n
}

// along is how many bytes of a stream the blocks along an axis touch, the other axes in
// the middle.
func (s *sampler) along(a int, prints map[[3]int]*footprint) float64 {
	p, at := &s.axes[a], s.middle()
	var line [4]*footprint
	sum, most := 0.0, 0.0
	for i := range line {
		at[a] = i
		line[i] = prints[at]
		n := float64(line[i].count())
		sum += n * p.weight[i]
		most = max(most, n)
	}
	common := float64(line[1].common(line[2]))
	if common == min(float64(line[1].count()), float64(line[2].count())) { // what one has the next has, too
		return most
	}
	first, last := min(common, float64(line[0].count())), min(common, float64(line[3].count()))
	return sum - first - common*float64(p.n-3) - last
}

// weighted is a sum of counts.
type weighted [15]float64

func (w *weighted) add(c *Counts, weight float64) {
	for i, v := range c.fields() {
		w[i] += float64(*v) * weight
	}
}

func (w *weighted) counts() (c Counts) {
	for i, v := range c.fields() {
		*v = int64(math.Round(w[i]))
	}
	return c
}

// fields are what adds up from block to block.
func (c *Counts) fields() [15]*int64 {
	return [...]*int64{&c.Instrs, &c.Special, &c.Matrix, &c.TF32, &c.Loads.Requests, &c.Loads.Bytes, &c.Loads.Sectors, &c.Loads.Least,
		&c.Stores.Requests, &c.Stores.Bytes, &c.Stores.Sectors, &c.Stores.Least, &c.Shared.Bytes, &c.Shared.Passes, &c.Shared.Least}
}

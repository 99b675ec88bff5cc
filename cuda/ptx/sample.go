package ptx

import "math"

// Meter counts what a launch does.
type Meter struct {
	// Sample interprets some blocks only, where there are many: along each axis of the
	// grid the first, the last, and two in the middle. Counts of those between are taken
	// to lie on a line through them, which they do where blocks are alike, or have more to
	// do one after the other by the same amount. What a launch computes is not to be used
	// then. Launches with atomics in global memory, by which blocks may find out that
	// they are the last one, run whole.
	Sample bool
	Counts Counts // of the last launch
}

// fewBlocks run all.
const fewBlocks = 32

// positions are those along an axis that are run, and what share of the axis each
// stands for.
type positions struct {
	n      int
	at     []int
	weight []float64
}

func positionsOf(n int) positions {
	p := positions{n: n}
	if n <= 4 {
		for i := range n {
			p.at, p.weight = append(p.at, i), append(p.weight, 1)
		}
		return p
	}
	half, rest := (n-1)/2, float64(n-2)
	p.at, p.weight = []int{0, half, half + 1, n - 1}, []float64{1, rest, 0, 1}
	if n%2 == 0 {
		p.weight[1], p.weight[2] = rest/2, rest/2
	}
	return p
}

// middle is the index of the position that stands for most.
func (p *positions) middle() int {
	if p.n <= 4 {
		return (p.n - 1) / 2
	}
	return 1
}

// metered runs a launch and counts.
func (x *execution) metered(m *Meter) error {
	n := int64(x.l.Grid[0]) * int64(x.l.Grid[1]) * int64(x.l.Grid[2])
	m.Counts = Counts{}
	if m.Sample && n > fewBlocks {
		done, err := x.sampled(m)
		if done || err != nil {
			return err
		}
	}
	t := newTally(x)
	x.tally = t
	defer func() { x.tally = nil }()
	for _, id := range blockOrder(x.l) {
		if err := x.one(id); err != nil {
			return err
		}
	}
	m.Counts = t.Counts
	m.Counts.Blocks, m.Counts.Run, m.Counts.Instrs = n, n, x.warpInstrs
	for s, p := range t.prints {
		if s.store {
			m.Counts.Stores.Distinct += p.count()
		} else {
			m.Counts.Loads.Distinct += p.count()
		}
	}
	return nil
}

// sampled runs some blocks and counts all. It reports false where blocks hang on each
// other, and leaves things as they were.
func (x *execution) sampled(m *Meter) (done bool, err error) {
	defer func() { x.tally = nil }()
	s := sampler{all: map[[3]int]*tally{}}
	for a, n := range x.l.Grid {
		s.axes[a] = positionsOf(n)
	}
	var total weighted
	for i := range s.axes[0].at {
		for j := range s.axes[1].at {
			for k := range s.axes[2].at {
				at := [3]int{i, j, k}
				weight := s.axes[0].weight[i] * s.axes[1].weight[j] * s.axes[2].weight[k]
				if weight == 0 && !s.onLine(at) {
					continue
				}
				before := x.warpInstrs
				t := newTally(x)
				x.tally = t
				err := x.one([3]int{s.axes[0].at[i], s.axes[1].at[j], s.axes[2].at[k]})
				if t.Atomics > 0 {
					t.revert()
					return false, err
				}
				if err != nil {
					return false, err
				}
				t.Instrs = x.warpInstrs - before
				total.add(&t.Counts, weight)
				m.Counts.Run++
				s.all[at] = t
			}
		}
	}
	run := m.Counts.Run
	m.Counts = total.counts()
	m.Counts.Run, m.Counts.Blocks = run, int64(x.l.Grid[0])*int64(x.l.Grid[1])*int64(x.l.Grid[2])
	m.Counts.Loads.Distinct, m.Counts.Stores.Distinct = s.distinct()
	return true, nil
}

// sampler has what was counted of the blocks that ran, by their places among the
// positions of the axes.
type sampler struct {
	axes [3]positions
	all  map[[3]int]*tally
}

// onLine reports whether a block is in the middle but along one axis.
func (s *sampler) onLine(at [3]int) bool {
	off := 0
	for a := range at {
		if at[a] != s.axes[a].middle() {
			off++
		}
	}
	return off <= 1
}

// distinct is how many bytes all blocks touch. What blocks have of an operand is taken
// to be a product over the axes, along each of which it stays, moves, or grows.
func (s *sampler) distinct() (loads, stores int64) {
	streams := map[stream]bool{}
	for _, t := range s.all {
		for key := range t.prints {
			streams[key] = true
		}
	}
	for key := range streams {
		n := int64(math.Round(s.of(key)))
		if key.store {
			stores += n
		} else {
			loads += n
		}
	}
	return loads, stores
}

// of is how many bytes of a stream all blocks touch.
func (s *sampler) of(key stream) float64 {
	var middle [3]int
	for a := range middle {
		middle[a] = s.axes[a].middle()
	}
	one := float64(s.all[middle].prints[key].count())
	if one == 0 { // of some blocks only, which are taken to have none in common
		sum := 0.0
		for at, t := range s.all {
			w := float64(t.prints[key].count())
			for a := range at {
				w *= s.axes[a].weight[at[a]]
			}
			sum += w
		}
		return sum
	}
	n := one
	for a := range s.axes {
		n *= s.along(a, middle, key) / one
	}
	return n
}

// along is how many bytes of a stream the blocks along an axis touch, the other axes in
// the middle.
func (s *sampler) along(a int, middle [3]int, key stream) float64 {
	p := &s.axes[a]
	prints := make([]*footprint, len(p.at))
	for i := range p.at {
		at := middle
		at[a] = i
		prints[i] = s.all[at].prints[key]
	}
	sum, most := 0.0, 0.0
	for i, f := range prints {
		n := float64(f.count())
		sum += n * p.weight[i]
		most = max(most, n)
	}
	if p.n == 1 {
		return sum
	}
	if p.n <= 4 {
		for i := range len(prints) - 1 {
			sum -= float64(prints[i].common(prints[i+1]))
		}
		return max(sum, most)
	}
	here, next := float64(prints[1].count()), float64(prints[2].count())
	common := float64(prints[1].common(prints[2]))
	if common == min(here, next) { // what one has the next has, too
		return most
	}
	first, last := min(common, float64(prints[0].count())), min(common, float64(prints[3].count()))
	return sum - first - common*float64(p.n-3) - last
}

// weighted is a sum of counts.
type weighted [16]float64

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
func (c *Counts) fields() []*int64 {
	return []*int64{&c.Instrs, &c.Matrix, &c.TF32, &c.Loads.Requests, &c.Loads.Bytes, &c.Loads.Sectors, &c.Loads.Least,
		&c.Stores.Requests, &c.Stores.Bytes, &c.Stores.Sectors, &c.Stores.Least, &c.Shared.Bytes, &c.Shared.Passes, &c.Shared.Least}
}

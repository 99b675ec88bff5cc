package exec

import (
	"cmp"
	"slices"

	"github.com/krait-ml/krait/exec/state"
	"github.com/krait-ml/krait/lowering"
)

// A model with a strategy per phase has two machines with the same slots and KV pages, each by its
// own layout. The store knows that of decode. States move between them by the lists of
// [lowering.Transfer], when the other machine needs them:
//
//   - A slot's states are current on one side or on both. Prefill's first chunk finds zeros, and
//     its next chunks what it left, so neither moves anything. The first decode step, a snapshot
//     or a transfer moves the states once; a prompt that goes on after a decode step moves them
//     back.
//   - A KV page has current rows on each side, the first ones. A row is written once, so it moves
//     at most once.
//   - A call of [state.Memory] sees decode's side, once it is current.

// side is one of the two machines.
type side int

const (
	decodes side = iota
	prefills
)

// relaid is decode's machine beside prefill's.
type relaid struct {
	Machine  // of decode
	machines [2]Machine
	ends     [2]lowering.End
	to       [2]*lowering.Transfer // to a side, from the other
	slots    [][2]bool             // of both machines: where a slot's states are current
	pages    [][2]int              // how many rows of a page are current
}

// newRelaid joins machines with a number of slots that are zero.
func newRelaid(machines [2]Machine, schedules [2][]*lowering.Schedule, slots, pageTokens int) (*relaid, error) {
	r := &relaid{Machine: machines[decodes], machines: machines, slots: make([][2]bool, slots)}
	for i := range r.slots {
		r.slots[i] = [2]bool{true, true}
	}
	for x, list := range schedules {
		k, err := lowering.StateLayoutOf(list)
		if err != nil {
			return nil, err
		}
		r.ends[x] = lowering.End{States: k, PageTokens: pageTokens}
	}
	for x := range r.to {
		var err error
		if r.to[x], err = lowering.NewTransfer(r.ends[1-x], r.ends[x]); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// enter makes current what a batch reads of its sequences on the side that runs it, and notes what
// the batch writes there.
func (r *relaid) enter(x side, list []Sequence, w *Work) error {
	trials := w.Trials
	for i := range list {
		q := &list[i]
		from := q.memory
		if q.Trial {
			from, trials = trials[0].From, trials[1:]
		}
		if err := r.states(x, from); err != nil {
			return err
		}
		r.wroteStates(x, q.memory)
		if len(w.BlockTables) > 0 {
			if err := r.enterPages(x, w.BlockTables[i], q.past, q.past+q.len()); err != nil {
				return err
			}
		}
	}
	return nil
}

// enterPages is enter for the pages of a sequence, which gets rows [past, end).
func (r *relaid) enterPages(x side, table []int32, past, end int) error {
	n := r.ends[x].PageTokens
	for i := range (end + n - 1) / n {
		had, has := min(past-i*n, n), min(end-i*n, n)
		if err := r.rows(x, table[i], had); err != nil {
			return err
		}
		if has > had {
			r.wroteRows(x, table[i], max(had, 0), has)
		}
	}
	return nil
}

// wroteStates notes that the states of a slot are current on one side alone.
func (r *relaid) wroteStates(x side, slot int) {
	if slot < len(r.slots) {
		r.slots[slot] = [2]bool{x == decodes, x == prefills}
	}
}

// wroteRows notes that one side alone has the current rows [first, end) of a page. Rows after the
// end of a sequence count as current, too, as nothing reads them.
func (r *relaid) wroteRows(x side, page int32, first, end int) {
	p := &r.pages[page]
	p[x], p[1-x] = max(p[x], end), min(p[1-x], first)
}

// states makes the states of a slot current on a side. Spare slots are those of decode alone.
func (r *relaid) states(x side, slot int) error {
	if slot >= len(r.slots) || r.slots[slot][x] {
		return nil
	}
	err := r.move(x, r.to[x].States, func(x side, rank int) region {
		_, size := r.ends[x].States.States(rank)
		return region{r.machines[x], rank, slot, false, size}
	})
	r.slots[slot][x] = err == nil
	return err
}

// rows makes the first rows of a page current on a side.
func (r *relaid) rows(x side, page int32, n int) error {
	have := r.pages[page][x]
	if n = min(n, r.pages[page][1-x]); have >= n {
		return nil
	}
	err := r.move(x, func(rank int) []lowering.Read { return r.to[x].Rows(rank, n, have) }, func(x side, rank int) region {
		_, size := r.ends[x].States.Page(rank, r.ends[x].PageTokens)
		return region{r.machines[x], rank, int(page), true, size}
	})
	if err == nil {
		r.pages[page][x] = n
	}
	return err
}

// move copies to a side what its ranks read of a slot or a page.
func (r *relaid) move(x side, reads func(rank int) []lowering.Read, at func(x side, rank int) region) error {
	lists := make([][]lowering.Read, r.ends[x].States.Ranks)
	used := make([][]span, r.ends[1-x].States.Ranks)
	for rank := range lists {
		lists[rank] = reads(rank)
		for _, read := range lists[rank] { // between the stretches of a read lie other units of the same rows
			last := read.Source.At + int64(read.Count-1)*read.Source.Stride
			used[read.From] = append(used[read.From], span{read.Source.At, last + read.Bytes})
		}
	}
	sources := make([][]byte, len(used))
	for rank, spans := range used {
		if len(spans) == 0 {
			continue
		}
		var err error
		from := at(1-x, rank)
		if sources[rank], err = from.read(from.touched(spans)); err != nil {
			return err
		}
	}
	for rank, list := range lists {
		if len(list) == 0 {
			continue
		}
		into := at(x, rank)
		if err := into.fill(list, sources); err != nil {
			return err
		}
	}
	return nil
}

// region is a slot's states or a page, on a rank of a machine.
type region struct {
	machine Machine
	rank    int
	index   int
	page    bool
	size    int64
}

// direct is the memory itself; nil: only the machine reaches it.
func (g *region) direct() []byte {
	m, ok := g.machine.(state.HostMemory)
	switch {
	case !ok:
		return nil
	case g.page:
		return m.PageMemory(g.rank, int32(g.index))
	}
	return m.SlotMemory(g.rank, g.index)
}

// span is bytes of a region, from the first to before the last.
type span struct{ first, last int64 }

// touched is the spans to copy: a whole slot, in one copy, and of a page the given spans, since its
// other rows may never have been written.
func (g *region) touched(spans []span) []span {
	if !g.page {
		return []span{{0, g.size}}
	}
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.first, b.first) })
	merged := spans[:1]
	for _, s := range spans[1:] {
		if end := &merged[len(merged)-1].last; s.first <= *end {
			*end = max(*end, s.last)
		} else {
			merged = append(merged, s)
		}
	}
	return merged
}

// fill copies reads of sources into the region.
func (g *region) fill(list []lowering.Read, sources [][]byte) error {
	var spans []span
	for _, read := range list {
		read.Each(func(_, to int64) { spans = append(spans, span{to, to + read.Bytes}) })
	}
	spans = g.touched(spans)
	var kept []span
	if !g.page {
		kept = spans
	}
	b, err := g.read(kept)
	if err != nil {
		return err
	}
	for _, read := range list {
		read.Each(func(from, to int64) { copy(b[to:][:read.Bytes], sources[read.From][from:]) })
	}
	return g.write(b, spans)
}

// read returns the region with the bytes of spans: the memory itself where the process can address
// it.
func (g *region) read(spans []span) ([]byte, error) {
	if b := g.direct(); b != nil {
		return b, nil
	}
	b, read := make([]byte, g.size), g.machine.ReadSlot
	if g.page {
		read = func(rank, page int, at int64, to []byte) error { return g.machine.ReadPage(rank, int32(page), at, to) }
	}
	for _, s := range spans {
		if err := read(g.rank, g.index, s.first, b[s.first:s.last]); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// write writes back spans of what read returned.
func (g *region) write(b []byte, spans []span) error {
	if g.direct() != nil {
		return nil
	}
	write := g.machine.WriteSlot
	if g.page {
		write = func(rank, page int, at int64, from []byte) error {
			return g.machine.WritePage(rank, int32(page), at, from)
		}
	}
	for _, s := range spans {
		if err := write(g.rank, g.index, s.first, b[s.first:s.last]); err != nil {
			return err
		}
	}
	return nil
}

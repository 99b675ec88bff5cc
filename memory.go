package krait

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/cpu"
	"github.com/krait-ml/krait/exec/state"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/session/schedule"
)

// AllMemory is an [Options.Memory]: what the device says that ranks may take of it.
const AllMemory = -1

// MemoryPlan says what a model takes of a device, by the plan of its schedules, with all slots taken
// and steps as large as they may be; of several devices, of the one that has least left. Sizes
// are in bytes.
type MemoryPlan struct {
	Memory      int64 // that may be taken; 0: nothing is planned
	Weights     int64 // and what is computed of them once
	States      int64 // of all slots, and where the device's memory is the host's the copies of those without a slot
	Prefixes    int64 // states that the prefix cache keeps, those of sequences that are about to end, and its host tier where that is the same memory
	Activations int64 // of the largest step
	Page        int64 // of attention's caches, on the CPU with what requests have of its tokens; 0: there is no attention
	PageTokens  int
	// Room is how many tokens the sequences under way may have together, each in whole pages of its
	// own; 0: any number.
	Room int

	pages int // that may be made: those of Room, and some that are being moved
}

// MemoryPlan is what Options.Memory was divided into.
func (m *Model) MemoryPlan() MemoryPlan { return m.plan }

// movedPages of a sequence are there twice for a moment: the one that what was kept ends in, when it
// is written or put together, here and where a prompt came from elsewhere.
const movedPages = 2

// requestBytes is what a request has of a token, at most about: its id in the prompt, or as long as
// nobody has read it an event.
const requestBytes = 128

// keptStates is how many states of a sequence are beside those that the prefix cache has: of its
// two marks, and one after its prompt.
const keptStates = 3

// planMemory divides the memory of the devices. What does not fit is an error.
func planMemory(schedules []*lowering.Schedule, o *Options, d exec.Device, vocab int) (p MemoryPlan, err error) {
	memory, share := o.deviceMemory(d, len(schedules))
	if memory == 0 {
		return p, nil
	}
	plan, err := lowering.NewPlan(schedules)
	if err != nil {
		return p, err
	}
	for first := 0; first < len(schedules); first += share {
		one := MemoryPlan{Memory: memory, PageTokens: state.PageTokens(o.PageTokens, o.Context)}
		for rank := first; rank < min(first+share, len(schedules)); rank++ {
			one.add(schedules[rank], &plan.Ranks[rank], o, vocab)
		}
		one.keep(plan, o, d, share)
		one.pause(plan, o, d, share)
		_, host := d.(*cpu.Device)
		if host && one.Page > 0 {
			one.Page += requestBytes * int64(one.PageTokens)
		}
		if err := one.divide(o, host); err != nil {
			return p, err
		}
		if p.Memory == 0 || one.tighter(&p) {
			p = one
		}
	}
	return p, nil
}

// deviceMemory is how many bytes may be taken of a device, and how many of the ranks share one.
func (o *Options) deviceMemory(d exec.Device, ranks int) (bytes int64, share int) {
	share = ranks
	if s, ok := d.(exec.Sized); ok {
		bytes, share = s.Memory(ranks)
	}
	if _, host := d.(*cpu.Device); o.Processes != nil && !host {
		share = 1
	}
	if o.Memory != AllMemory {
		bytes = o.Memory
	}
	return bytes, share
}

// add counts what a rank takes but for what is kept.
func (p *MemoryPlan) add(s *lowering.Schedule, r *lowering.RankPlan, o *Options, vocab int) {
	l := stepLimits(o, slotsOf(o), isRounded(s))
	l.Rows = scoredRows(&l, vocab)
	z := graph.Sizes{Tokens: int64(l.Tokens), Seqs: int64(l.Slots), Largest: int64(l.Tokens)}
	z.Rows = min(int64(l.Slots+l.Rows), z.Tokens)
	p.Weights += r.Weights + r.Constants
	p.States += r.State * int64(l.Slots)
	p.Activations += r.Arena.At(z)
	_, page := s.Page(p.PageTokens)
	p.Page += page
}

// keep counts what is kept beside sequences. Rows of the prefix cache are in pages that sequences
// leave, so that they count nothing: it gives them up where there are too few.
func (p *MemoryPlan) keep(plan *lowering.Plan, o *Options, d exec.Device, share int) {
	if o.PrefixCache == 0 {
		return
	}
	var all, most int64 // of all ranks, and of one
	for i := range plan.Ranks {
		all, most = all+plan.Ranks[i].State, max(most, plan.Ranks[i].State)
	}
	if all > 0 {
		mine := float64(most) / float64(all) * float64(share)
		p.Prefixes = int64(float64(o.PrefixCache)*min(mine, 1)) + int64(share)*(state.SlabBytes+most*int64(keptStates*slotsOf(o)))
	}
	if _, host := d.(*cpu.Device); host {
		if o.PrefixCacheDir != "" {
			p.Prefixes += cmp.Or(o.PrefixCacheHost, o.PrefixCache)
		} else {
			p.Prefixes += o.PrefixCacheHost
		}
	}
}

// pause counts states on their way to the host and back, and those that are there.
func (p *MemoryPlan) pause(plan *lowering.Plan, o *Options, d exec.Device, share int) {
	var most int64 // of one rank
	for i := range plan.Ranks {
		most = max(most, plan.Ranks[i].State)
	}
	if most == 0 {
		return
	}
	if _, host := d.(*cpu.Device); host {
		p.States *= 1 + snapshotsPerSlot
	}
	p.States += int64(share) * (state.SlabBytes + most)
}

// fixed is what is taken whatever sequences there are.
func (p *MemoryPlan) fixed() int64 { return p.Weights + p.States + p.Prefixes + p.Activations }

// tighter reports whether there is less for sequences than by another plan. A rank may have none of
// attention.
func (p *MemoryPlan) tighter(q *MemoryPlan) bool {
	switch {
	case p.Page > 0 && q.Page > 0:
		return p.pages < q.pages
	case p.Page > 0 || q.Page > 0:
		return p.Page > 0
	}
	return p.fixed() > q.fixed()
}

// divide gives what is left to pages. A context must have room in each slot.
func (p *MemoryPlan) divide(o *Options, host bool) error {
	slots := slotsOf(o)
	left := p.Memory - p.fixed()
	if left < 0 {
		return p.tooLarge(slots, host)
	}
	if p.Page == 0 {
		return nil
	}
	p.pages = int(min(left/p.Page, math.MaxInt32))
	room := p.pages - movedPages*slots
	if o.Context > 0 {
		each := (o.Context + p.PageTokens - 1) / p.PageTokens
		if need := each * slots; need > room {
			return fmt.Errorf("a context of %d tokens in each of %d slots takes %d pages of %d tokens, of %s each; a device with %s has room for %d beside %s: give a smaller context, fewer slots, or more memory",
				o.Context, slots, need, p.PageTokens, sizeOf(p.Page), sizeOf(p.Memory), max(room, 0), p.parts())
		}
	}
	if room < 1 {
		return fmt.Errorf("it does not fit: beside %s, a device with %s has no room for a page of attention's caches, of %s, and for %d more while they are moved: give more memory, or fewer slots",
			p.parts(), sizeOf(p.Memory), sizeOf(p.Page), movedPages*slots)
	}
	p.Room = room * p.PageTokens
	return nil
}

// tooLarge says what does not fit, and what would help. Ranks on the host share its memory, so that
// more of them do not.
func (p *MemoryPlan) tooLarge(slots int, host bool) error {
	text := fmt.Sprintf("it does not fit: a device has %s for %s: %s", sizeOf(p.Memory), countOf(slots, "slot"), p.parts())
	var help []string
	switch {
	case p.Weights >= p.Memory:
		text = fmt.Sprintf("it does not fit: the weights alone take %s, and a device has %s, which is too little for any slots and caches", sizeOf(p.Weights), sizeOf(p.Memory))
		if host {
			help = append(help, "8-bit weights (krait quantize-weights)")
		}
	default:
		if slots > 1 {
			help = append(help, "fewer slots")
		}
		if p.Prefixes > 0 {
			help = append(help, "a smaller prefix cache")
		}
	}
	if !host {
		help = append(help, "more ranks, each on a GPU of its own")
	}
	need := p.fixed() + p.Page*int64(movedPages*slots+1)
	text += fmt.Sprintf("; give at least %s for %s", sizeOf(roundedUp(need)), countOf(slots, "slot"))
	if len(help) > 0 {
		text += ", or " + strings.Join(help, ", or ")
	}
	return errors.New(text)
}

// roundedUp is no less than bytes as sizeOf writes it.
func roundedUp(bytes int64) int64 {
	unit := int64(1)
	for unit<<10 <= bytes && unit < 1<<30 {
		unit <<= 10
	}
	step := max(unit/10, 1)
	return (bytes + step - 1) / step * step
}

// countOf writes 1 slot, and 2 slots.
func countOf(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// parts says what is taken.
func (p *MemoryPlan) parts() string {
	text := fmt.Sprintf("weights of %s, states of %s, activations of %s", sizeOf(p.Weights), sizeOf(p.States), sizeOf(p.Activations))
	if p.Prefixes > 0 {
		text += fmt.Sprintf(", %s that prefix caches keep", sizeOf(p.Prefixes))
	}
	return text
}

// String says what is taken, and for how many tokens there is room.
func (p MemoryPlan) String() string {
	text := fmt.Sprintf("of %s: %s", sizeOf(p.Memory), p.parts())
	if p.Page > 0 {
		text += fmt.Sprintf("; room for %d tokens of sequences under way, in pages of %d", p.Room, p.PageTokens)
	}
	return text
}

// sizeOf writes bytes for people.
func sizeOf(bytes int64) string {
	for _, u := range []struct {
		name string
		size float64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if float64(bytes) >= u.size {
			return fmt.Sprintf("%.1f %s", float64(bytes)/u.size, u.name)
		}
	}
	return fmt.Sprintf("%d bytes", bytes)
}

func slotsOf(o *Options) int { return cmp.Or(o.Slots, 8) }

// isRounded reports whether a schedule keeps a state in 16 bits: see roundedAtCuts.
func isRounded(s *lowering.Schedule) bool {
	for i := range s.Buffers {
		if b := &s.Buffers[i]; b.Space == lowering.State && b.Type.DType != graph.F32 {
			return true
		}
	}
	return false
}

// stepLimits says how large steps may be.
func stepLimits(o *Options, slots int, rounded bool) schedule.Limits {
	l := schedule.Limits{Slots: slots, Grain: cutAt}
	l.Tokens = cmp.Or(o.MaxTokensPerStep, prefillChunk+slots-1)
	if rounded { // so all chunks are of one length, and nothing else is a cut
		l.Grain = max(cutAt, l.Longest())
	}
	return l
}

// shrink lets the prefix cache give up what it has where that frees a page, and reports whether it
// did: as many as a batch may need, if it has them.
func (m *Model) shrink(b *exec.Batch) bool {
	if m.cache == nil {
		return false
	}
	need := 0
	for i := range b.Sequences {
		need += len(b.Sequences[i].Tokens)/max(m.plan.PageTokens, 1) + movedPages
	}
	before := m.engine.PagesLeft()
	m.cache.Shrink(func() bool { return m.engine.PagesLeft() >= need })
	return m.engine.PagesLeft() > before
}

// makeRoom lets the prefix cache give up what is in the way of so many tokens that come from
// elsewhere.
func (m *Model) makeRoom(tokens int) {
	if m.cache != nil {
		m.cache.Shrink(func() bool { return m.enough(tokens) })
	}
}

// enough reports whether there are pages for so many tokens more, and for what is moved.
func (m *Model) enough(tokens int) bool {
	return m.plan.Page == 0 || m.engine.PagesLeft() >= (tokens+m.plan.PageTokens-1)/m.plan.PageTokens+movedPages
}

// checkMemory looks at what is asked for.
func (o *Options) checkMemory() error {
	if o.Memory < AllMemory {
		return errors.New("it is less than nothing: give a number of bytes, 0 for no plan, or AllMemory")
	}
	return nil
}

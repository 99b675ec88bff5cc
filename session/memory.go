package session

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

// AllMemory is an [Options.Memory]: all that the device reports as available.
const AllMemory = -1

// MemoryPlan divides the memory of a device, by the plans of the schedules, with all slots taken
// and steps of the largest size; of several devices, of the one that has least left. Sizes are in
// bytes.
type MemoryPlan struct {
	Memory      int64 // the budget; 0: there is no plan
	Weights     int64 // and values computed from them once
	States      int64 // of all slots, of trials, and on the CPU of paused requests and ended texts' n-grams
	Prefixes    int64 // states in the prefix cache, those of ending sequences, and on the CPU its host tier
	Activations int64 // of the largest step
	Page        int64 // of a KV page, on the CPU with its requests' token ids; 0: no attention
	PageTokens  int
	// Room is how many tokens all active sequences may have together, each in whole KV pages; 0:
	// any number.
	Room int

	pages int // limit: those of Room, and copies in progress
}

// movedPages is how many pages of a sequence exist twice for a moment: the last page of a cached
// prefix while it is copied, here and where a prompt was prefilled elsewhere.
const movedPages = 2

// requestBytes bounds a request's bytes per token: its id in the prompt, or an event that the
// reader has not taken.
const requestBytes = 128

// keptStates is how many states of a sequence exist beside those in the prefix cache: at its two
// marks, and after its prompt.
const keptStates = 3

// Plan divides Options.Memory among the schedules of a model, or returns an error that says what
// does not fit. Without Memory there is no plan.
func Plan(schedules []*lowering.Schedule, o Options, d exec.Device, vocab int) (MemoryPlan, error) {
	if o.Memory == 0 || min(o.Slots, o.Context, o.PageTokens) < 0 { // the engine rejects negative ones
		return MemoryPlan{}, nil
	}
	err := error(nil)
	if o.Memory < AllMemory {
		err = errors.New("it must not be negative: give a number of bytes, 0 for no plan, or AllMemory")
	}
	var p MemoryPlan
	if err == nil {
		p, err = planMemory(schedules, &o, d, vocab)
	}
	if err != nil {
		err = fmt.Errorf("memory plan: %w", err)
	}
	return p, err
}

func planMemory(schedules []*lowering.Schedule, o *Options, d exec.Device, vocab int) (p MemoryPlan, err error) {
	memory, share := o.deviceMemory(d, len(schedules))
	if memory == 0 {
		return p, nil
	}
	plan, err := lowering.NewPlan(schedules)
	if err != nil {
		return p, err
	}
	var prompts *lowering.Plan
	if o.Prefill != nil {
		if prompts, err = lowering.NewPlan(o.Prefill.Schedules); err != nil {
			return p, err
		}
	}
	_, host := d.(*cpu.Device)
	limits := stepLimits(o, schedules, vocab)
	largest := limits // of the engine's own schedules
	if prompts != nil {
		largest.Tokens = min(limits.Tokens, limits.Slots+o.Trials*lowering.MaxTrial)
	}
	for first := 0; first < len(schedules); first += share {
		one := MemoryPlan{Memory: memory, PageTokens: state.PageTokens(o.PageTokens, o.Context)}
		for rank := first; rank < min(first+share, len(schedules)); rank++ {
			one.add(schedules[rank], &plan.Ranks[rank], o, largest)
		}
		one.addPrefixes(plan, o, d, share)
		one.addPaused(plan, o, d, share)
		for rank := first; rank < min(first+share, len(schedules)); rank++ {
			one.States += plan.Ranks[rank].Trial * int64(o.Trials)
			if rank < len(o.Head) {
				one.addHead(o.Head[rank], schedules[rank], slotsOf(o))
			}
			if prompts != nil {
				one.addPrefill(o.Prefill.Schedules[rank], &prompts.Ranks[rank], o, limits)
				if host {
					one.Weights -= schedules[rank].InPlace()
				}
			}
		}
		if host && o.Trials > 0 {
			one.States += draftedBytes
		}
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

// deviceMemory returns the budget of a device, and how many ranks share it.
func (o *Options) deviceMemory(d exec.Device, ranks int) (bytes int64, share int) {
	share = ranks
	if s, ok := d.(exec.Sized); ok {
		bytes, share = s.Memory(ranks)
	}
	if _, host := d.(*cpu.Device); o.OwnProcesses && !host {
		share = 1
	}
	if o.Memory != AllMemory {
		bytes = o.Memory
	}
	return bytes, share
}

// add counts a rank, without states of the prefix cache and of paused requests.
func (p *MemoryPlan) add(s *lowering.Schedule, r *lowering.RankPlan, o *Options, l schedule.Limits) {
	z := graph.Sizes{Tokens: int64(l.Tokens), Seqs: int64(l.Slots), Largest: int64(l.Tokens)}
	z.Rows = min(int64(l.Slots+l.Rows+o.Trials*lowering.MaxTrial), z.Tokens)
	p.Weights += r.Weights + r.Constants
	p.States += r.State * int64(l.Slots)
	p.Activations += r.Arena.At(z)
	_, page := s.Page(p.PageTokens)
	p.Page += page
}

// addPrefill counts a rank of prefill, which has weights, slots (also for trials), KV pages and an
// arena of its own beside those of decode.
func (p *MemoryPlan) addPrefill(s *lowering.Schedule, r *lowering.RankPlan, o *Options, l schedule.Limits) {
	p.add(s, r, o, l)
	p.States += r.State * int64(o.Trials)
}

// addHead counts a rank of an MTP head: the weights that are not the model's, a step of one
// sequence, pages for the tokens of all sequences and of their drafts, and the hidden states that a
// slot's drafter holds.
func (p *MemoryPlan) addHead(head, model *lowering.Schedule, slots int) {
	shared := map[string]bool{}
	for i := range model.Buffers {
		if b := &model.Buffers[i]; b.Space == lowering.Param {
			shared[b.Storage.String()] = true
		}
	}
	var hidden int64
	for i := range head.Buffers {
		switch b := &head.Buffers[i]; {
		case b.Space == lowering.Param && !shared[b.Storage.String()]:
			p.Weights += b.Bytes
		case b.Space == lowering.Input && b.Name == exec.HiddenOutput:
			hidden = b.Bytes
		}
	}
	one := graph.Sizes{Tokens: PrefillChunk, Seqs: 1, Rows: 1, Largest: PrefillChunk}
	plan, _ := lowering.NewPlan([]*lowering.Schedule{head})
	p.Weights += plan.Ranks[0].Constants
	p.Activations += plan.Ranks[0].Arena.At(one)
	_, page := head.Page(p.PageTokens)
	p.Page += page
	p.States += int64(slots) * (page + 2*PrefillChunk*hidden)
}

// addPrefixes counts the prefix cache's states. Its KV pages are those that sequences leave, and it
// evicts them if there are too few, so that they count nothing.
func (p *MemoryPlan) addPrefixes(plan *lowering.Plan, o *Options, d exec.Device, share int) {
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

// addPaused counts states of paused requests, and of those being copied.
func (p *MemoryPlan) addPaused(plan *lowering.Plan, o *Options, d exec.Device, share int) {
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

// fixed returns the memory that does not depend on the sequences.
func (p *MemoryPlan) fixed() int64 { return p.Weights + p.States + p.Prefixes + p.Activations }

// tighter reports whether the plan leaves fewer pages than another. Some ranks may have no
// attention layers.
func (p *MemoryPlan) tighter(q *MemoryPlan) bool {
	switch {
	case p.Page > 0 && q.Page > 0:
		return p.pages < q.pages
	case p.Page > 0 || q.Page > 0:
		return p.Page > 0
	}
	return p.fixed() > q.fixed()
}

// divide gives the rest to KV pages. Each slot needs those of a context.
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
		return fmt.Errorf("it does not fit: beside %s, a device with %s has no room for a KV page, of %s, and for %d more while they are copied: give more memory, or fewer slots",
			p.parts(), sizeOf(p.Memory), sizeOf(p.Page), movedPages*slots)
	}
	p.Room = room * p.PageTokens
	return nil
}

// tooLarge returns the error of a plan that does not fit, with what would help. Ranks on the host
// share its memory, so that more of them do not.
func (p *MemoryPlan) tooLarge(slots int, host bool) error {
	text := fmt.Sprintf("it does not fit: a device has %s for %s: %s", sizeOf(p.Memory), countOf(slots, "slot"), p.parts())
	var help []string
	switch {
	case p.Weights >= p.Memory:
		text = fmt.Sprintf("it does not fit: the weights alone take %s, and a device has %s, which is too little for any slots and caches", sizeOf(p.Weights), sizeOf(p.Memory))
		if host {
			help = append(help, "8-bit weights (krait convert --type q8)")
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

// roundedUp rounds bytes up so that sizeOf writes no less.
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

// parts lists the parts of the plan.
func (p *MemoryPlan) parts() string {
	text := fmt.Sprintf("weights of %s, states of %s, activations of %s", sizeOf(p.Weights), sizeOf(p.States), sizeOf(p.Activations))
	if p.Prefixes > 0 {
		text += fmt.Sprintf(", prefix cache of %s", sizeOf(p.Prefixes))
	}
	return text
}

// String lists the parts of the plan, and the tokens that fit.
func (p MemoryPlan) String() string {
	text := fmt.Sprintf("of %s: %s", sizeOf(p.Memory), p.parts())
	if p.Page > 0 {
		text += fmt.Sprintf("; room for %d tokens of active sequences, in KV pages of %d", p.Room, p.PageTokens)
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

// evictFor evicts prefixes so that a batch gets the pages it may need, and reports whether that
// freed any.
func (s *Session) evictFor(b *exec.Batch) bool {
	if s.cache == nil {
		return false
	}
	need := 0
	for i := range b.Sequences {
		need += len(b.Sequences[i].Tokens)/max(s.plan.PageTokens, 1) + movedPages
	}
	before := s.engine.PagesLeft()
	s.cache.Shrink(func() bool { return s.engine.PagesLeft() >= need })
	return s.engine.PagesLeft() > before
}

// hasPages reports whether there are pages for that many more tokens, and for copies.
func (s *Session) hasPages(tokens int) bool {
	return s.plan.Page == 0 || s.engine.PagesLeft() >= (tokens+s.plan.PageTokens-1)/s.plan.PageTokens+movedPages
}

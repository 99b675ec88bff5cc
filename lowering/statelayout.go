package lowering

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/bail"
)

// StateLayout says what the ranks of a model keep of a sequence between steps, and where: states
// in one run of memory per rank, and rows of caches in pages, each the rows of its tokens
// of one cache after another. All ranks of a stage have the same buffers, each its share of them.
type StateLayout struct {
	Ranks   int
	Stages  int // of as many ranks each; 0: one
	Copies  int // ranks of a stage that have the same, those along CP beside TP; 0: one
	Buffers []StateBuffer
}

// shares is the number of ranks that have shares of a buffer.
func (k *StateLayout) shares() int { return k.Ranks / max(1, k.Stages) }

// has reports whether a rank is of the stage that has a buffer.
func (k *StateLayout) has(rank, buffer int) bool {
	return rank/k.shares() == k.Buffers[buffer].Stage
}

// pieces says where in a row of the model's state a rank's row of a buffer is.
func (k *StateLayout) pieces(rank, buffer int) graph.Pieces {
	if !k.has(rank, buffer) {
		return graph.Pieces{}
	}
	b := &k.Buffers[buffer]
	split, at := k.share(rank)
	return pieces(b.Type, b.Part, split, at)
}

// share is by how many ranks a buffer is split, and which of the shares a rank has.
func (k *StateLayout) share(rank int) (split, at int) {
	split = k.shares() / max(1, k.Copies)
	return split, rank % split
}

// StateBuffer is a state of the model, or a field of one, as it lies over the ranks.
type StateBuffer struct {
	Name string
	Type graph.Type  // over all ranks
	Part *graph.Part // the field that it is of a state of the model; nil: all of it
	// Stage is the pipeline stage whose ranks have it.
	Stage int
}

// Cache reports whether it has a row per token, and not one per sequence.
func (b *StateBuffer) Cache() bool { return b.Type.Ragged() }

// State is the name and the type of the state of the model.
func (b *StateBuffer) State() (name string, t graph.Type) { return stateOf(b.Name, b.Type, b.Part) }

func stateOf(name string, t graph.Type, part *graph.Part) (string, graph.Type) {
	if part != nil {
		return part.State, part.Type
	}
	return name, graph.TypeOf(t.DType, t.Dims...)
}

// pieces says where in a row of the model's state a rank's row of a buffer is.
func pieces(t graph.Type, part *graph.Part, ranks, rank int) graph.Pieces {
	p := graph.PiecesOf(t, ranks, rank)
	if part != nil {
		return part.In(p)
	}
	return p
}

// StateLayoutOf is what the schedules of all ranks keep.
func StateLayoutOf(schedules []*Schedule) (*StateLayout, error) {
	if len(schedules) == 0 {
		return nil, errors.New("there is no schedule")
	}
	replica := schedules[0].Replica
	if i := slices.IndexFunc(schedules, func(s *Schedule) bool { return s.Replica != replica }); i > 0 {
		schedules = schedules[:i] // of a replica, whose schedules may be the only ones
	}
	k := &StateLayout{Ranks: len(schedules)}
	if n := schedules[0].Mesh.Along(graph.PP); n > 1 {
		k.Stages = n
	}
	if n := schedules[0].over().Along(graph.CP); n > 1 {
		k.Copies = n
	}
	from := make([]int, 1+max(1, k.Stages)) // by stage: which of the buffers
	for _, s := range schedules {
		if s.Rank == 0 {
			k.Buffers = append(k.Buffers, s.kept()...)
			from[s.Stage+1] = len(k.Buffers)
		}
	}
	if err := k.valid(); err != nil {
		return nil, err
	}
	for _, s := range schedules {
		mine := k.Buffers[from[s.Stage]:from[s.Stage+1]]
		if list := s.kept(); !slices.EqualFunc(list, mine, StateBuffer.equal) {
			return nil, fmt.Errorf("rank %d keeps other states than rank %d: %v, not %v", s.World(), s.World()-s.Rank, list, mine)
		}
		at, _ := k.States(s.World())
		at = at[from[s.Stage]:]
		for i := range s.Buffers {
			switch b := &s.Buffers[i]; {
			case b.Space != State && b.Space != Cache:
				continue
			case b.Space == State && b.Offset != at[0]:
				return nil, fmt.Errorf("rank %d keeps %s at byte %d; the states before it end at %d", s.World(), b.Name, b.Offset, at[0])
			}
			at = at[1:]
		}
	}
	return k, nil
}

// kept lists what the rank keeps.
func (s *Schedule) kept() (list []StateBuffer) {
	for i := range s.Buffers {
		if b := &s.Buffers[i]; b.Space == State || b.Space == Cache {
			list = append(list, StateBuffer{b.Name, b.Type, b.Part, s.Stage})
		}
	}
	return list
}

func (b StateBuffer) equal(c StateBuffer) bool {
	return b.Name == c.Name && b.Type.Equal(c.Type) && b.Part.Equal(c.Part)
}

// Bytes is what a rank has of a buffer: of a sequence, or of a token where it is a cache.
func (k *StateLayout) Bytes(rank, buffer int) int64 {
	if !k.has(rank, buffer) {
		return 0
	}
	t := k.Buffers[buffer].Type
	split, at := k.share(rank)
	return int64(t.DType.Bytes()) * int64(graph.RowElems(t.Local(split, at).Dims))
}

// States is where the rank's states begin in the run of a sequence, by buffer, and how
// long the run is.
func (k *StateLayout) States(rank int) (at []int64, run int64) {
	at = make([]int64, len(k.Buffers))
	end, last := int64(0), (*graph.Part)(nil)
	for i := range k.Buffers {
		if b := &k.Buffers[i]; !b.Cache() && k.has(rank, i) {
			at[i] = afterState(end, last, b.Part)
			end, last = at[i]+k.Bytes(rank, i), b.Part
		}
	}
	return at, roundUp(end)
}

// Page is where the rows of the rank's caches begin in a page of a number of tokens, by buffer,
// and how long the page is.
func (k *StateLayout) Page(rank, tokens int) (at []int64, bytes int64) {
	at = make([]int64, len(k.Buffers))
	for i := range k.Buffers {
		if k.Buffers[i].Cache() && k.has(rank, i) {
			at[i] = bytes
			bytes += roundUp(k.Bytes(rank, i) * int64(tokens))
		}
	}
	return at, bytes
}

// Page is where in a page of a number of tokens the rows of each buffer that is a cache
// begin, and how long the page is, in bytes.
func (s *Schedule) Page(tokens int) (at []int, bytes int64) {
	at = make([]int, len(s.Buffers))
	for i := range s.Buffers {
		if b := &s.Buffers[i]; b.Space == Cache {
			at[i] = int(bytes)
			bytes += roundUp(b.Bytes * int64(tokens))
		}
	}
	return at, bytes
}

// String writes a line for the ranks and one per buffer, which [ParseStateLayout] reads.
func (k *StateLayout) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "ranks %d", k.Ranks)
	if k.Stages > 1 {
		fmt.Fprintf(&b, " stages %d", k.Stages)
	}
	if k.Copies > 1 {
		fmt.Fprintf(&b, " copies %d", k.Copies)
	}
	b.WriteByte('\n')
	for i := range k.Buffers {
		x := &k.Buffers[i]
		b.WriteString(x.Name)
		if x.Stage > 0 {
			fmt.Fprintf(&b, " @%d", x.Stage)
		}
		fmt.Fprintf(&b, " : %s", x.Type)
		if x.Part != nil {
			b.WriteString(x.Part.String())
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// maxKept is more buffers than a model of the most layers keeps.
const maxKept = 1 << 16

// ParseStateLayout reads what [StateLayout.String] writes, which may come from anyone: what it
// accepts can be asked for bytes and moves.
func ParseStateLayout(text string) (_ *StateLayout, err error) {
	defer bail.Catch(&err)
	head, rest, _ := strings.Cut(text, "\n")
	k := &StateLayout{}
	head, copies, copied := strings.Cut(head, " copies ")
	if copied {
		scan(copies, "%d", &k.Copies)
	}
	ranks, stages, staged := strings.Cut(head, " stages ")
	if scan(ranks, "ranks %d", &k.Ranks); staged {
		scan(stages, "%d", &k.Stages)
	}
	for line := range strings.Lines(rest) {
		name, typ, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " : ")
		name, at, later := strings.Cut(name, " @")
		stage := 0
		if later {
			scan(at, "%d", &stage)
		}
		t, storage, part, err := graph.ParseStored(typ)
		if err != nil {
			return nil, fmt.Errorf("state %q: %w", name, err)
		}
		if storage != nil {
			return nil, fmt.Errorf("state %q is stored as a parameter", name)
		}
		if k.Buffers = append(k.Buffers, StateBuffer{name, t, part, stage}); len(k.Buffers) > maxKept {
			return nil, fmt.Errorf("more than %d states", maxKept)
		}
	}
	return k, k.valid()
}

// maxPieces is more than the ranks of a model have of its states.
const maxPieces = 1 << 16

// scattered is in how many pieces each rank has a buffer, at most.
func (b *StateBuffer) scattered() int {
	n, last := 1, 0
	if l := b.Type.Layout; l.Kind == graph.Sharded {
		n, last = len(l.Place), l.Axis
	}
	if b.Part != nil {
		last = max(last, b.Part.Axis)
	}
	for _, d := range b.Type.Dims[:last] {
		if d.Sym == 0 {
			n = min(n*d.Len(), maxPieces+1)
		}
	}
	return n
}

// valid checks what [StateLayout] promise: rows of sequences, or of their tokens, whose shares
// depend on the ranks only, and of each state of the model all or different fields.
func (k *StateLayout) valid() error {
	if k.Ranks < 1 || k.Ranks > graph.MaxMesh {
		return fmt.Errorf("%d ranks; the number must be from 1 to %d", k.Ranks, graph.MaxMesh)
	}
	if k.Stages < 0 || k.Ranks%max(1, k.Stages) != 0 {
		return fmt.Errorf("%d stages of %d ranks; each must have as many", k.Stages, k.Ranks)
	}
	if k.Copies < 0 || k.shares()%max(1, k.Copies) != 0 {
		return fmt.Errorf("%d copies in stages of %d ranks; they must divide the ranks", k.Copies, k.shares())
	}
	first, scattered := map[string]*StateBuffer{}, 0
	seen := map[[2]string]bool{}
	for i := range k.Buffers {
		b := &k.Buffers[i]
		if err := b.valid(); err != nil {
			return fmt.Errorf("state %q: %w", b.Name, err)
		}
		if b.Stage < 0 || b.Stage >= max(1, k.Stages) {
			return fmt.Errorf("state %q is in stage %d of %d", b.Name, b.Stage, max(1, k.Stages))
		}
		if scattered += b.scattered(); scattered*k.Ranks > maxPieces {
			return fmt.Errorf("state %s: ranks have more than %d pieces of states", b.Name, maxPieces)
		}
		name, t := b.State()
		field := [2]string{name}
		if b.Part != nil {
			field[1] = b.Part.Field
		}
		switch f := first[name]; {
		case f == nil:
			first[name] = b
		case seen[field] || f.Part == nil || b.Part == nil:
			return fmt.Errorf("state %s is there twice: %s and %s", name, f.Name, b.Name)
		case !f.Part.Type.Equal(t) || f.Part.Axis != b.Part.Axis:
			return fmt.Errorf("%s and %s are fields of different states, which are both called %s", f.Name, b.Name, name)
		}
		seen[field] = true
	}
	return nil
}

func (b *StateBuffer) valid() error {
	if !graph.ValidName(b.Name) {
		return errors.New("that is not a name for a state")
	}
	if err := b.Type.Valid(); err != nil {
		return err
	}
	t := b.Type
	if len(t.Dims) == 0 || t.Dims[0].Sym != graph.Seqs || t.DType.Quantized() || t.Layout.ByBatch() || t.Layout.Kind == graph.Partial || t.Context.Kind != graph.Replicated {
		return fmt.Errorf("%s is not kept per sequence", t)
	}
	row := t.Dims[1:]
	if t.Ragged() {
		row = row[1:]
	}
	for _, d := range row {
		if d.Sym != 0 {
			return fmt.Errorf("%s: only s, or s and c, may be symbols", t)
		}
	}
	if b.Part != nil {
		return b.Part.Valid(b.Type)
	}
	return nil
}

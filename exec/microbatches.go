package exec

import (
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
)

// microbatchTokens is the least number of tokens for which a prefill batch is cut in microbatches:
// smaller ones would read the weights again for little.
const microbatchTokens = 64

// Microbatches says in how many microbatches pipeline stages run a batch.
type Microbatches struct {
	stages          int
	moved           []graph.Poly // by stage: bytes that kernels read and write
	wholeSequences  bool         // ranks have tokens of whole sequences, which are not cut
	sequencesAreCut bool         // a sequence cut in microbatches has the same bits: no state is rounded
	decoded         map[int]int  // by sequences of a decode step: what decode returned
}

// NewMicrobatches reads the bytes that the stages of schedules move.
func NewMicrobatches(list []*lowering.Schedule) Microbatches {
	m := Microbatches{stages: list[0].Mesh.Along(graph.PP), wholeSequences: list[0].BySequence(), sequencesAreCut: true, decoded: map[int]int{}}
	for _, s := range list {
		m.sequencesAreCut = m.sequencesAreCut && !s.Rounded()
		if s.Rank == 0 && s.Replica == 0 && m.stages > 1 { // the others move about as much
			m.moved = append(m.moved, movedBy(s))
		}
	}
	return m
}

// movedBy is what the kernels of a schedule read and write.
func movedBy(s *lowering.Schedule) (bytes graph.Poly) {
	for i := range s.Steps {
		if st := &s.Steps[i]; st.Kind == lowering.Launch {
			bytes = bytes.Plus(st.Cost.Read).Plus(st.Cost.Write)
		}
	}
	return bytes
}

// Of returns the number of microbatches for a batch: in prefill at most two per stage, of at least
// 64 tokens each; in decode, one token per sequence, the number that takes the least time.
func (m Microbatches) Of(tokens, sequences int) int {
	if m.stages == 1 || m.wholeSequences {
		return 1
	}
	n := max(1, min(2*m.stages, tokens/microbatchTokens))
	if tokens == sequences {
		best, ok := m.decoded[sequences]
		if !ok {
			best = m.decode(sequences)
			m.decoded[sequences] = best
		}
		n = max(n, best)
	}
	return n
}

// Turns is how many batches run in turns where each of some sequences has one token: one per
// stage, each of some sequence.
func (m Microbatches) Turns(sequences int) int { return min(m.stages, sequences) }

// decode minimizes the time of a decode step. The first microbatch passes all stages, and each of
// the others ends one stage time after the one before it: n take stages-1+n stage times. In a
// stage time each microbatch reads all weights, and moves the states of its sequences.
func (m Microbatches) decode(sequences int) (best int) {
	time := func(n int) (slowest float64) {
		each := int64((sequences + n - 1) / n)
		z := graph.Sizes{Tokens: each, Seqs: each, Rows: each, Largest: 1}
		for _, bytes := range m.moved {
			slowest = max(slowest, bytes.Float(z))
		}
		return float64(m.stages-1+n) * slowest
	}
	best = 1
	for n := 2; n <= min(2*m.stages, sequences); n++ {
		if time(n) < time(best) {
			best = n
		}
	}
	return best
}

// piece is consecutive new tokens of a sequence of a batch.
type piece struct{ sequence, start, end int }

// cut cuts a batch in microbatches of about as many tokens each, and sequences only at multiples of
// [graph.PartBlock] from their start, but none that must stay whole.
func (m Microbatches) cut(list []piece, whole func(int) bool) [][]piece {
	tokens := 0
	for _, x := range list {
		tokens += x.end
	}
	n := m.Of(tokens, len(list))
	if n == 1 {
		return [][]piece{list}
	}
	var out [][]piece
	if tokens == len(list) {
		for k := range n {
			out = append(out, list[k*len(list)/n:(k+1)*len(list)/n])
		}
		return out
	}
	each := (tokens + n - 1) / n
	var now []piece
	room := each
	for _, x := range list {
		for x.start < x.end {
			end := x.end
			if cut := x.start + (room+graph.PartBlock-1)/graph.PartBlock*graph.PartBlock; m.sequencesAreCut && !whole(x.sequence) && cut < end {
				end = cut
			}
			now = append(now, piece{x.sequence, x.start, end})
			if room -= end - x.start; room <= 0 {
				out, now, room = append(out, now), nil, each
			}
			x.start = end
		}
	}
	if len(now) > 0 {
		out = append(out, now)
	}
	return out
}

// Package sampling says how the next token of a text is chosen, which the operation
// choose then does, and ends the text at stop strings.
//
// Operations on the logits of a row, in this order, which is that of vLLM for the
// penalties and that of transformers for the filters:
//
//  1. tokens that [Config.Mask] excludes get -Inf; [Config.LogitBias] is added;
//  2. [Config.RepetitionPenalty], then [Config.FrequencyPenalty] and [Config.PresencePenalty];
//  3. [Config.Temperature];
//  4. top-k, top-p, min-p;
//  5. a token is drawn of those that are left.
//
// A [Sampler] is one text's:
//
//	s, err := sampling.New(sampling.Config{Temperature: 0.8, MinP: 0.05, Seed: 7}, vocab)
//	if err != nil { … }
//	s.Read(prompt...)
//	for {
//		id := s.Sample(logits) // a row: a number per token id
//		if err := s.Accept(id); err != nil { … }
//	}
//
// An engine chooses where the logits are: [Sampler.Choice] and [Sampler.Seen] are what
// the device does, and [Sampler.Pick] what is left for the host, if anything is.
//
// Token i of a text is drawn with random number i of its seed, however often it is asked for:
// that is why speculative decoding changes no text.
package sampling

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/kernels/cpu"
)

// Sampler says how the tokens of one sequence are chosen, one after the other, for
// the operation choose. Random numbers come from a PCG generator seeded with
// Config.Seed, one for each token accepted that is not chosen greedily, so the same seed and
// the same logits give the same tokens on one device (between devices and processor
// architectures up to rounding). They are not the tokens that Hugging Face draws.
//
// A Sampler is not safe for concurrent use.
type Sampler struct {
	cfg       Config
	rng       *rand.Rand
	draws     []float64   // of the next tokens, as far as they were asked for
	seen      []int32     // a bit per token of the vocabulary: those read and accepted
	ahead     [][]int32   // seen with one draft, two drafts, …; reused
	counts    map[int]int // how often each token was accepted; nil if no penalty needs it
	exclusive bool        // a token has a bias that leaves no other
	logProbs  LogProbs
}

// New makes a sampler for a vocabulary of vocab tokens. A field of cfg that is out of its range is
// an error that names the field, its value and the range.
func New(cfg Config, vocab int) (*Sampler, error) {
	if err := cfg.check(vocab); err != nil {
		return nil, err
	}
	s := &Sampler{cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 0)), seen: make([]int32, graph.SeenWords(vocab))}
	if cfg.PresencePenalty != 0 || cfg.FrequencyPenalty != 0 {
		s.counts = map[int]int{}
	}
	for _, bias := range cfg.LogitBias {
		s.exclusive = s.exclusive || bias == MaxBias
	}
	return s, nil
}

// Read records tokens of the prompt. They are of the vocabulary.
func (s *Sampler) Read(ids ...int) {
	for _, id := range ids {
		kernels.SetSeen(s.seen, id)
	}
}

// Accept records a token of the output. It is one of the vocabulary.
func (s *Sampler) Accept(id int) {
	kernels.SetSeen(s.seen, id)
	if s.counts != nil {
		s.counts[id]++
	}
	if len(s.draws) > 0 {
		s.draws = slices.Delete(s.draws, 0, 1)
	}
}

// Choice is how the operation choose chooses the next token, or the one after drafts: tokens that
// may turn out to be the next ones. Where [Sampler.Pick] chooses, it is greedy for the device.
func (s *Sampler) Choice(drafts ...int) kernels.Choice {
	if s.cfg.adjusts() {
		return kernels.Choice{}
	}
	return s.choice(len(drafts))
}

// choice is that of the token after n others.
func (s *Sampler) choice(n int) kernels.Choice {
	c := kernels.Choice{Temperature: s.cfg.Temperature, TopK: s.cfg.TopK, TopP: s.cfg.TopP, Penalty: s.cfg.RepetitionPenalty}
	if c.Temperature > 0 {
		for len(s.draws) <= n {
			s.draws = append(s.draws, s.rng.Float64())
		}
		c.Uniform = s.draws[n]
	}
	return c
}

// Seen has the bit of every token that was read or accepted, and of drafts, as choose reads it. It
// is valid until the next Accept, or call with as many drafts.
func (s *Sampler) Seen(drafts ...int) []int32 {
	n := len(drafts)
	if p := s.cfg.RepetitionPenalty; n == 0 || p == 0 || p == 1 { // choose does not read it
		return s.seen
	}
	for len(s.ahead) < n {
		s.ahead = append(s.ahead, make([]int32, len(s.seen)))
	}
	seen := s.ahead[n-1]
	copy(seen, s.seen)
	for _, id := range drafts {
		kernels.SetSeen(seen, id)
	}
	return seen
}

// OnHost reports whether [Sampler.Pick] needs the logits on the host.
func (s *Sampler) OnHost() bool { return s.cfg.adjusts() || s.cfg.LogProbs }

// Pick is what is left to do on the host after the device has chosen a token by
// [Sampler.Choice], with the row of logits that it was chosen from, once all tokens before it are
// accepted: it returns the token that counts, which is below 0, one of the numbers that choose
// gives, where none is left.
func (s *Sampler) Pick(logits []float32, chosen int32) int32 {
	switch {
	case chosen < 0: // no logit is to be read
		return chosen
	case s.cfg.onlyMasks():
		if mask := s.cfg.Mask(); !kernels.Seen(mask, int(chosen)) {
			chosen = cpu.ChooseAllowed(logits, mask)
		}
	case s.cfg.adjusts():
		chosen = cpu.ChooseAdjusted(logits, s.choice(0).Rounded(), s.cfg.MinP, s.adjust)
	}
	if s.cfg.LogProbs && chosen >= 0 {
		s.logProbs = LogProbsOf(logits, int(chosen), s.cfg.TopLogProbs)
	}
	return chosen
}

// Sample chooses the next token from a row of logits on the host, all by itself. It fails
// where a logit is NaN or +Inf, and where no token is left.
func (s *Sampler) Sample(logits []float32) (int, error) {
	c := s.Choice()
	return kernels.Token(s.Pick(logits, cpu.Choose(logits, c, s.seen)))
}

// LogProbs are those of the token that was picked last, where the config asks for them.
func (s *Sampler) LogProbs() LogProbs { return s.logProbs }

// adjust makes scores of logits, up to the temperature.
func (s *Sampler) adjust(scores []float32) {
	s.mask(scores)
	s.bias(scores)
	s.penalise(scores)
}

var excluded = float32(math.Inf(-1))

// mask excludes tokens by the words of their bits, without a branch for each.
func (s *Sampler) mask(scores []float32) {
	if s.cfg.Mask == nil {
		return
	}
	const word = 32
	for i, allowed := range s.cfg.Mask()[:graph.SeenWords(len(scores))] {
		switch of := scores[i*word : min((i+1)*word, len(scores))]; allowed {
		case -1:
		case 0:
			for j := range of {
				of[j] = excluded
			}
		default:
			for j, score := range of {
				keep := uint32(allowed << (word - 1 - j) >> (word - 1)) // all bits, or none
				of[j] = math.Float32frombits(math.Float32bits(score)&keep | math.Float32bits(excluded)&^keep)
			}
		}
	}
}

// bias adds the biases; the outermost ones exclude a token, or all others.
func (s *Sampler) bias(scores []float32) {
	if s.exclusive {
		for id := range scores {
			if s.cfg.LogitBias[id] != MaxBias {
				scores[id] = excluded
			}
		}
		return
	}
	for id, bias := range s.cfg.LogitBias {
		switch {
		case bias == -MaxBias:
			scores[id] = excluded
		case scores[id] != excluded:
			scores[id] = kernels.Finite(float64(scores[id]) + bias)
		}
	}
}

func (s *Sampler) penalise(scores []float32) {
	if p := s.cfg.RepetitionPenalty; p != 0 && p != 1 {
		penalty := kernels.Choice{Penalty: p}.Rounded().Penalty
		for id := range scores {
			if kernels.Seen(s.seen, id) {
				scores[id] = kernels.Penalised(scores[id], penalty)
			}
		}
	}
	for id, n := range s.counts {
		if scores[id] != excluded {
			scores[id] = kernels.Finite(float64(scores[id]) - s.cfg.FrequencyPenalty*float64(n) - s.cfg.PresencePenalty)
		}
	}
}

// LogProbs are natural logarithms of probabilities, those that the model itself gives,
// at temperature 1, before biases, penalties and filters.
type LogProbs struct {
	Chosen float64   // that of the token
	Top    []LogProb // of the most probable tokens, best first, of equal ones the lowest id
}

// LogProb is that of one token.
type LogProb struct {
	ID      int
	LogProb float64 // at most 0
}

// LogProbsOf computes them from a row of logits, of which none is NaN or +Inf and not all
// are -Inf, for a token of it and the top most probable ones.
func LogProbsOf(logits []float32, id, top int) LogProbs {
	sum := cpu.LogSum(logits)
	of := func(id int) float64 { return min(float64(logits[id])-sum, 0) } // rounding may leave a little above
	out := LogProbs{Chosen: of(id)}
	for _, id := range highest(logits, top) {
		out.Top = append(out.Top, LogProb{id, of(id)})
	}
	return out
}

// highest are the ids of the n highest logits, best first.
func highest(logits []float32, n int) []int {
	if n = min(n, len(logits)); n <= 0 {
		return nil
	}
	best := make([]int, 0, n+1)
	for id, x := range logits {
		if len(best) == n && x <= logits[best[n-1]] {
			continue
		}
		at, _ := slices.BinarySearchFunc(best, x, func(id int, x float32) int {
			if logits[id] >= x { // the lower id stays before
				return -1
			}
			return 1
		})
		best = slices.Insert(best, at, id)[:min(n, len(best)+1)]
	}
	return best
}

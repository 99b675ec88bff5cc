// Package sampling chooses the next token of a text from a model's logits, and
// ends the text at stop strings.
package sampling

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// Config says how tokens are chosen. The zero value takes the most probable one.
type Config struct {
	// Temperature divides the logits; 0 is greedy: the highest logit wins, and
	// of equal ones the lowest id.
	Temperature float64

	// TopK keeps the tokens with the k highest logits, and all that tie with
	// the last of them. 0 keeps all.
	TopK int

	// TopP keeps the smallest set of most probable tokens whose probability
	// reaches p; of equally probable ones the lowest ids. 0 and 1 keep all.
	TopP float64

	// RepetitionPenalty lowers the logits of accepted tokens, each once, however
	// often it was accepted: a positive logit is divided by the penalty, another
	// one multiplied. 0 and 1 change nothing; below 1 repetition is favoured.
	RepetitionPenalty float64

	// Seed starts the random numbers.
	Seed uint64
}

// Sampler chooses the tokens of one sequence. The steps and their order are
// those of Hugging Face: repetition penalty, temperature, top-k, top-p, draw.
// Random numbers come from a PCG generator seeded with Config.Seed, one for
// each token that is not chosen greedily, so the same seed and the same logits
// give the same tokens (between processor architectures up to rounding). They
// are not the tokens that Hugging Face draws.
//
// A Sampler is not safe for concurrent use.
type Sampler struct {
	cfg Config
	rng *rand.Rand

	accepted []int  // not yet looked at by Next
	repeated []int  // distinct ids accepted so far
	isSeen   []bool // by id

	// Buffers of Next, all of the vocabulary's size.
	scores  []float32 // logits after the repetition penalty
	ids     []int32   // tokens that are still candidates, in rising order
	weights []float64 // of the candidates: probability before normalising
	mass    float64   // sum of weights
	keys    []uint32  // of the candidates: order of their scores
}

// New makes a sampler. It is an error when a field of cfg is out of its range;
// the error names the field, its value and the range.
func New(cfg Config) (*Sampler, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if cfg.TopP == 0 {
		cfg.TopP = 1
	}
	if cfg.RepetitionPenalty == 0 {
		cfg.RepetitionPenalty = 1
	}
	return &Sampler{cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 0))}, nil
}

func (cfg Config) check() error {
	finite := func(x float64) bool { return x >= 0 && x <= math.MaxFloat64 } // false for NaN
	switch {
	case !finite(cfg.Temperature):
		return fmt.Errorf("temperature is %v; it must be 0 (greedy) or a positive number", cfg.Temperature)
	case cfg.TopK < 0:
		return fmt.Errorf("top-k is %d; it must be 0 (off) or a positive number", cfg.TopK)
	case !(cfg.TopP >= 0 && cfg.TopP <= 1):
		return fmt.Errorf("top-p is %v; it must be above 0 and at most 1 (off), or 0 (off)", cfg.TopP)
	case !finite(cfg.RepetitionPenalty):
		return fmt.Errorf("repetition penalty is %v; it must be a positive number, where 1 is off, or 0 (off)", cfg.RepetitionPenalty)
	}
	return nil
}

// Accept records a token of the prompt or of the output, for the repetition
// penalty. An id outside the vocabulary is reported by the next call of Next,
// which knows the vocabulary.
func (s *Sampler) Accept(id int) { s.accepted = append(s.accepted, id) }

// Uniform takes the random number that Next would draw its token with, for who
// chooses elsewhere; greedy choices take none.
func (s *Sampler) Uniform() float64 {
	if s.cfg.Temperature == 0 {
		return 0
	}
	return s.rng.Float64()
}

// Next chooses a token: an index of logits. It does not accept it, and it does
// not change logits. A logit of -Inf excludes its token.
//
// It is an error when logits is empty, holds NaN or +Inf, or excludes every
// token, when its length is not that of the calls before, and when an accepted
// token is not in it.
func (s *Sampler) Next(logits []float32) (int, error) {
	if err := s.resize(len(logits)); err != nil {
		return 0, err
	}
	best, err := argmax(logits)
	if err != nil {
		return 0, err
	}
	if err := s.noteAccepted(); err != nil {
		return 0, err
	}
	copy(s.scores, logits)
	if s.cfg.RepetitionPenalty != 1 && len(s.repeated) > 0 {
		for _, id := range s.repeated {
			s.scores[id] = penalise(s.scores[id], s.cfg.RepetitionPenalty)
		}
		best, _ = argmax(s.scores) // the penalty keeps scores in range
	}
	if s.cfg.Temperature == 0 {
		return best, nil
	}
	s.keepTopK()
	s.weigh(float64(s.scores[best]))
	s.keepTopP()
	return s.draw(), nil
}

// resize makes buffers for a vocabulary of n tokens.
func (s *Sampler) resize(n int) error {
	switch {
	case n == 0:
		return fmt.Errorf("there are no logits to choose from")
	case s.scores == nil:
		s.isSeen = make([]bool, n)
		s.scores = make([]float32, n)
		s.ids = make([]int32, n)
		s.weights = make([]float64, n)
		s.keys = make([]uint32, n)
	case n != len(s.scores):
		return fmt.Errorf("there are %d logits, but there were %d for the token before; use one sampler for one sequence", n, len(s.scores))
	}
	return nil
}

// argmax returns the lowest index of the highest logit, and checks them all.
func argmax(logits []float32) (int, error) {
	best := 0
	for i, x := range logits {
		if x > logits[best] {
			best = i
		}
		if x != x || x > math.MaxFloat32 {
			return 0, fmt.Errorf("logit %d of %d is %v; the model's output is broken", i, len(logits), x)
		}
	}
	if logits[best] < -math.MaxFloat32 {
		return 0, fmt.Errorf("all %d logits are -Inf; no token is left to choose", len(logits))
	}
	return best, nil
}

// noteAccepted adds the newly accepted tokens to those that are penalised.
func (s *Sampler) noteAccepted() error {
	for _, id := range s.accepted {
		if id < 0 || id >= len(s.isSeen) {
			return fmt.Errorf("token %d was accepted, but the vocabulary has the tokens 0 to %d", id, len(s.isSeen)-1)
		}
		if !s.isSeen[id] {
			s.isSeen[id] = true
			s.repeated = append(s.repeated, id)
		}
	}
	s.accepted = s.accepted[:0]
	return nil
}

// penalise applies the repetition penalty. Results stay finite, so that an
// extreme penalty can neither exclude a token nor make it +Inf.
func penalise(score float32, penalty float64) float32 {
	x := float64(score)
	switch {
	case math.IsInf(x, -1): // excluded by the caller
		return score
	case x > 0:
		x /= penalty
	default:
		x *= penalty
	}
	return float32(max(-math.MaxFloat32, min(x, math.MaxFloat32)))
}

// Package sampling says how the next token of a text is chosen, which the operation
// choose then does, and ends the text at stop strings.
package sampling

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
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

// Sampler says how the tokens of one sequence are chosen, one after the other, for
// the operation choose. Random numbers come from a PCG generator seeded with
// Config.Seed, one for each token that is not chosen greedily, so the same seed and
// the same logits give the same tokens on one device (between devices and processor
// architectures up to rounding). They are not the tokens that Hugging Face draws.
//
// A Sampler is not safe for concurrent use.
type Sampler struct {
	cfg  Config
	rng  *rand.Rand
	seen []int32 // a bit per token of the vocabulary: those accepted
}

// New makes a sampler for a vocabulary of that size. It is an error when a field of cfg is out of its range;
// the error names the field, its value and the range.
func New(cfg Config, vocab int) (*Sampler, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	return &Sampler{cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 0)), seen: make([]int32, graph.SeenWords(vocab))}, nil
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
// penalty. It is one of the vocabulary.
func (s *Sampler) Accept(id int) { kernels.SetSeen(s.seen, id) }

// Choice is how the next token is chosen. It takes a random number, unless the choice
// is greedy.
func (s *Sampler) Choice() kernels.Choice {
	c := kernels.Choice{Temperature: s.cfg.Temperature, TopK: s.cfg.TopK, TopP: s.cfg.TopP, Penalty: s.cfg.RepetitionPenalty}
	if c.Temperature > 0 {
		c.Uniform = s.rng.Float64()
	}
	return c
}

// Seen has the bit of every token that was accepted, as choose reads it.
func (s *Sampler) Seen() []int32 { return s.seen }

package sampling

import (
	"fmt"
	"maps"
	"math"
	"slices"
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

	// MinP keeps, of those, the tokens whose probability is at least p times that of
	// the most probable one. 0 keeps all.
	MinP float64

	// RepetitionPenalty lowers the logits of tokens of the prompt and of the output, each
	// once, however often it was there: a positive logit is divided by the penalty, another
	// one multiplied. 0 and 1 change nothing; below 1 repetition is favoured.
	RepetitionPenalty float64

	// PresencePenalty is taken off the logits of tokens of the output, FrequencyPenalty
	// once for each time that they are there: OpenAI's penalties, which vLLM
	// counts so, too. The prompt does not count. Below 0 repetition is favoured.
	PresencePenalty, FrequencyPenalty float64

	// LogitBias is added to the logits of tokens, by id: from -100, which excludes the
	// token, to 100, which excludes all that do not have it.
	LogitBias map[int]float64

	// Mask is asked before each token which ones may be chosen, a bit per token of the
	// vocabulary as [graph.SeenType] has it; nil: all may. It is called by the goroutine that
	// chooses: it must be quick.
	Mask func() []int32

	// LogProbs asks for the log-probability of each chosen token; TopLogProbs is how many of
	// the most probable tokens get theirs too. Neither changes which token is chosen.
	LogProbs    bool
	TopLogProbs int

	// Seed starts the random numbers.
	Seed uint64
}

// MaxBias is the largest bias of a logit, and the lowest is as far below 0.
const MaxBias = 100

// adjusts reports whether tokens are chosen in ways that the operation choose has not.
func (cfg *Config) adjusts() bool {
	return cfg.MinP > 0 && cfg.Temperature > 0 || cfg.PresencePenalty != 0 || cfg.FrequencyPenalty != 0 || len(cfg.LogitBias) > 0 || cfg.Mask != nil
}

// onlyMasks reports whether the highest of the logits that the mask allows wins.
func (cfg *Config) onlyMasks() bool {
	p := cfg.RepetitionPenalty
	return cfg.Mask != nil && cfg.Temperature == 0 && (p == 0 || p == 1) && cfg.PresencePenalty == 0 && cfg.FrequencyPenalty == 0 && len(cfg.LogitBias) == 0
}

func (cfg *Config) check(vocab int) error {
	finite := func(x float64) bool { return x >= 0 && x <= math.MaxFloat64 } // false for NaN
	share := func(x float64) bool { return x >= 0 && x <= 1 }
	switch {
	case !finite(cfg.Temperature):
		return fmt.Errorf("temperature is %v; it must be 0 (greedy) or a positive number", cfg.Temperature)
	case cfg.TopK < 0:
		return fmt.Errorf("top-k is %d; it must be 0 (off) or a positive number", cfg.TopK)
	case !share(cfg.TopP):
		return fmt.Errorf("top-p is %v; it must be above 0 and at most 1 (off), or 0 (off)", cfg.TopP)
	case !share(cfg.MinP):
		return fmt.Errorf("min-p is %v; it must be 0 (off), or above 0 and at most 1", cfg.MinP)
	case !finite(cfg.RepetitionPenalty):
		return fmt.Errorf("repetition penalty is %v; it must be a positive number, where 1 is off, or 0 (off)", cfg.RepetitionPenalty)
	case !finite(math.Abs(cfg.PresencePenalty)):
		return fmt.Errorf("presence penalty is %v; it must be a number, where 0 is off", cfg.PresencePenalty)
	case !finite(math.Abs(cfg.FrequencyPenalty)):
		return fmt.Errorf("frequency penalty is %v; it must be a number, where 0 is off", cfg.FrequencyPenalty)
	case cfg.TopLogProbs < 0 || cfg.TopLogProbs > vocab:
		return fmt.Errorf("%d log-probabilities per token; the number must be from 0 to %d", cfg.TopLogProbs, vocab)
	case cfg.TopLogProbs > 0 && !cfg.LogProbs:
		return fmt.Errorf("%d log-probabilities per token without that of the chosen token: set LogProbs too", cfg.TopLogProbs)
	}
	return cfg.checkBias(vocab)
}

func (cfg *Config) checkBias(vocab int) error {
	for _, id := range slices.Sorted(maps.Keys(cfg.LogitBias)) {
		switch bias := cfg.LogitBias[id]; {
		case id < 0 || id >= vocab:
			return fmt.Errorf("logit bias of token %d; ids go from 0 to %d", id, vocab-1)
		case !(math.Abs(bias) <= MaxBias):
			return fmt.Errorf("logit bias of token %d is %v; it must be from -%d, which excludes the token, to %[3]d, which excludes all others", id, bias, MaxBias)
		}
	}
	return nil
}

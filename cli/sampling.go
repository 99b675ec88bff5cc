package cli

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/text/tokenizer"
	"github.com/spf13/cobra"
)

// samplingFlags are the flags of commands that choose tokens.
type samplingFlags struct {
	biases   []string
	logProbs int
}

func (f *samplingFlags) add(c *cobra.Command, o *krait.Generate) {
	c.Flags().Float64VarP(&o.Temperature, "temperature", "t", 0, "sampling temperature; 0: greedy, 1: the model's distribution")
	c.Flags().IntVar(&o.TopK, "top-k", 0, "sample from the k most probable tokens; 0: all")
	c.Flags().Float64Var(&o.TopP, "top-p", 1, "sample from the most probable tokens that sum to this probability")
	c.Flags().Float64Var(&o.MinP, "min-p", 0, "sample from tokens with at least this share of the top probability; 0: all")
	c.Flags().Float64Var(&o.RepetitionPenalty, "repetition-penalty", 1, "penalize tokens of prompt and output by this factor; 1: no penalty")
	c.Flags().Float64Var(&o.PresencePenalty, "presence-penalty", 0, "subtract this from the logit of each token generated so far")
	c.Flags().Float64Var(&o.FrequencyPenalty, "frequency-penalty", 0, "subtract this from a token's logit for each time it was generated")
	c.Flags().StringArrayVar(&f.biases, "logit-bias", nil, "ID=BIAS, added to a token's logit; -100 bans it, 100 forces it (repeatable)")
	c.Flags().Uint64Var(&o.Seed, "seed", 0, "sampling seed; the same seed gives the same text (default: random)")
	detail(c, "seed", "a random seed is printed.")
	expert(c, "min-p", "repetition-penalty", "presence-penalty", "frequency-penalty", "logit-bias")
}

// addLogProbs adds the flag of commands that can print them.
func (f *samplingFlags) addLogProbs(c *cobra.Command) {
	c.Flags().IntVar(&f.logProbs, "logprobs", 0, "print the log-probability of each token and of this many alternatives")
}

// take sets what the flags say.
func (f *samplingFlags) take(c *cobra.Command, o *krait.Generate) (err error) {
	if o.LogitBias, err = readBiases(f.biases); err != nil {
		return fmt.Errorf("--logit-bias %w", err)
	}
	if c.Flags().Changed("logprobs") {
		if f.logProbs < 0 {
			return fmt.Errorf("--logprobs is %d; it must not be negative", f.logProbs)
		}
		o.LogProbs, o.TopLogProbs = true, f.logProbs
	}
	return nil
}

// readBiases reads a list of ID=BIAS.
func readBiases(list []string) (map[int]float64, error) {
	out := map[int]float64{}
	for _, text := range list {
		name, number, found := strings.Cut(text, "=")
		id, err := strconv.Atoi(name)
		bias, err2 := strconv.ParseFloat(number, 64)
		if !found || cmp.Or(err, err2) != nil {
			return nil, fmt.Errorf("%q must be ID=BIAS, such as 50256=-100", text)
		}
		if _, twice := out[id]; twice {
			return nil, fmt.Errorf("%q: token %d has a bias already", text, id)
		}
		out[id] = bias
	}
	return out, nil
}

// defaults takes what no flag says from the checkpoint's generation_config.json.
func defaults(c *cobra.Command, m *krait.Model, o *krait.Generate) {
	d := m.Defaults()
	if !c.Flags().Changed("temperature") {
		o.Temperature = d.Temperature
	}
	if !c.Flags().Changed("top-k") {
		o.TopK = d.TopK
	}
	if !c.Flags().Changed("top-p") {
		o.TopP = d.TopP
	}
	if !c.Flags().Changed("min-p") {
		o.MinP = d.MinP
	}
	if !c.Flags().Changed("repetition-penalty") {
		o.RepetitionPenalty = d.RepetitionPenalty
	}
}

// seed draws a seed for sampling, unless --seed gives one.
func (f *samplingFlags) seed(c *cobra.Command, o *krait.Generate) {
	if o.Temperature > 0 && !c.Flags().Changed("seed") {
		o.Seed = uint64(rand.Uint32()) // short enough to be typed
	}
}

// seedOf returns the seed that reports show: none if generation is greedy.
func seedOf(o *krait.Generate) *uint64 {
	if o.Temperature == 0 {
		return nil
	}
	return &o.Seed
}

// tokenProb is a token and its log-probability, as JSON.
type tokenProb struct {
	ID      int         `json:"id"`
	Text    string      `json:"text,omitempty"`
	LogProb float64     `json:"logprob"`
	Top     []tokenProb `json:"top,omitempty"`
}

// lowestLogProb stands for -Inf, which JSON does not have.
const lowestLogProb = -9999

// probsOf are the log-probabilities of tokens; t may be nil.
func probsOf(t tokenizer.Tokenizer, ids []int, probs []krait.LogProbs) []tokenProb {
	of := func(id int, p float64) tokenProb {
		out := tokenProb{ID: id, LogProb: max(p, lowestLogProb)}
		if t != nil {
			out.Text = t.Decode([]int{id}, false)
		}
		return out
	}
	var list []tokenProb
	for i, p := range probs {
		x := of(ids[i], p.Chosen)
		for _, top := range p.Top {
			x.Top = append(x.Top, of(top.ID, top.LogProb))
		}
		list = append(list, x)
	}
	return list
}

// row is one line of a table of log-probabilities.
func (p *tokenProb) row() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%8d %8.4f %6.2f%%  %-12s", p.ID, p.LogProb, 100*math.Exp(p.LogProb), strconv.Quote(p.Text))
	for _, top := range p.Top {
		fmt.Fprintf(&b, "  %q %.4f", top.Text, top.LogProb)
	}
	return strings.TrimRight(b.String(), " ")
}

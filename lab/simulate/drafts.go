package simulate

import (
	"fmt"
	"math"

	"github.com/krait-ml/krait/lowering"
)

// Drafts is speculative decoding: a decode step takes, after the last token of each sequence, a
// number of drafts. A draft is right with a probability, if those before it are right.
type Drafts struct {
	Number     int     `json:"number"` // per sequence and step, to 15; 0: decode without
	Acceptance float64 `json:"acceptance"`
}

// check returns an error for numbers out of range.
func (d Drafts) check() error {
	if d.Number < 0 || d.Number >= lowering.MaxTrial {
		return fmt.Errorf("%d drafts; a step takes 0 to %d", d.Number, lowering.MaxTrial-1)
	}
	if !(d.Acceptance >= 0 && d.Acceptance <= 1) {
		return fmt.Errorf("the drafts' acceptance is %g; it must be from 0 to 1", d.Acceptance)
	}
	return nil
}

// right is the probability that the first n drafts of a step are right.
func (d Drafts) right(n int) float64 { return math.Pow(d.Acceptance, float64(n)) }

// Tokens returns the expected tokens of a sequence from a step: the drafts that are accepted, and
// one that the model chooses.
func (d Drafts) Tokens() float64 {
	n := 1.0
	for i := range d.Number {
		n += d.right(i + 1)
	}
	return n
}

// replayed returns the expected number of sequences that a step of a batch rolls back, and of their
// tokens that are replayed: the one before the drafts, and the drafts that are accepted.
func (d Drafts) replayed(batch int) (sequences, tokens float64) {
	for i := range d.Number {
		p := float64(batch) * d.right(i) * (1 - d.Acceptance) // i drafts are right, and one is wrong
		sequences, tokens = sequences+p, tokens+p*float64(i+1)
	}
	return sequences, tokens
}

// Speculation is what drafts give to a workload. The time to make them is not counted.
type Speculation struct {
	Drafts
	Tokens  float64 `json:"tokens_per_step"` // expected, of a sequence
	Without float64 `json:"tpot_seconds_without"`
	Gain    float64 `json:"gain"` // Without over TPOT
}

// speculate adds the decode of n tokens of each sequence with drafts.
func (m *Model) speculate(p *Phase, w Workload, n int) error {
	each := w.Drafts.Tokens()
	for done := 0.0; done < float64(n); done += each {
		s, err := m.machine.Run(m.sizes(w, w.Prompt+int(done), 1+w.Drafts.Number, 1+w.Drafts.Number), m.wanted)
		if err != nil {
			return err
		}
		p.add(&s, 1)
		p.wait(m.settle(w))
	}
	return nil
}

// settle is the time that trials of a whole batch take beside their step: to keep what they need,
// and to replay the tokens of those that are rolled back, unless all drafts are right.
func (m *Model) settle(w Workload) float64 {
	keep, _ := m.machine.TrialSeconds(w.Batch, w.Batch*(1+w.Drafts.Number))
	sequences, tokens := w.Drafts.replayed(w.Batch)
	if sequences == 0 {
		return keep
	}
	_, replay := m.machine.TrialSeconds(int(math.Ceil(sequences)), int(math.Ceil(tokens)))
	return keep + replay*(1-math.Pow(w.Drafts.right(w.Drafts.Number), float64(w.Batch)))
}

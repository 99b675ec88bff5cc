package krait

import (
	"context"
	"fmt"
	"math"

	"github.com/krait-ml/krait/exec"
)

// Evaluate says how a text is scored.
type Evaluate struct {
	// Window cuts the tokens into windows that each start from an empty state,
	// so that the first token of each is not scored; 0: one sequence.
	Window int
	// Progress is told how many tokens of all are done.
	Progress func(done, all int)
}

// Evaluation is how well the model predicts a text.
type Evaluation struct {
	Scored  int       // tokens that were predicted
	Bits    float64   // sum of -log2 p over them
	Windows []float64 // bits per token of each window
}

// BitsPerToken is the mean of -log2 p over the scored tokens.
func (e *Evaluation) BitsPerToken() float64 { return e.Bits / float64(e.Scored) }

// Perplexity is the inverse of the geometric mean of p.
func (e *Evaluation) Perplexity() float64 { return math.Exp2(e.BitsPerToken()) }

// Evaluate scores token ids: how many bits each takes, given those before it in
// its window.
func (m *Model) Evaluate(ctx context.Context, ids []int, o Evaluate) (*Evaluation, error) {
	if o.Window == 0 {
		o.Window = len(ids)
	}
	if o.Window < 2 || len(ids) < 2 {
		return nil, fmt.Errorf("%d tokens in windows of %d: at least 2 are needed, the first is not scored", len(ids), o.Window)
	}
	s, err := m.NewSequence()
	if err != nil {
		return nil, err
	}
	defer s.Close()
	out := &Evaluation{}
	for start := 0; start+1 < len(ids); start += o.Window {
		window := ids[start:min(start+o.Window, len(ids))]
		bits, err := m.scoreWindow(ctx, s, window, func(done int) {
			if o.Progress != nil {
				o.Progress(start+done, len(ids))
			}
		})
		if err != nil {
			return nil, err
		}
		out.Bits += bits
		out.Scored += len(window) - 1
		out.Windows = append(out.Windows, bits/float64(len(window)-1))
	}
	return out, nil
}

// maxLogits bounds the logits that are held at a time.
const maxLogits = 1 << 22

// scoreWindow sums the bits of all tokens of a window but the first.
func (m *Model) scoreWindow(ctx context.Context, s *Sequence, ids []int, done func(int)) (float64, error) {
	if err := s.Reset(); err != nil {
		return 0, err
	}
	return m.score(ctx, s, ids, done)
}

// score goes on from what the sequence has.
func (m *Model) score(ctx context.Context, s *Sequence, ids []int, done func(int)) (float64, error) {
	chunk := max(1, min(prefillChunk, maxLogits/m.Vocab()))
	var bits float64
	for at := 0; at < len(ids)-1; at += chunk {
		tokens := ids[at:min(at+chunk, len(ids)-1)]
		every := make([]int, len(tokens))
		for i := range every {
			every[i] = i
		}
		for _, next := range ids[at+1 : at+len(tokens)+1] {
			if next < 0 || next >= m.Vocab() {
				return 0, fmt.Errorf("token id %d is outside of the vocabulary of %d", next, m.Vocab())
			}
		}
		err := s.every(ctx, tokens, func(i int, logits []float32) { bits += surprise(logits, ids[at+i+1]) })
		if err != nil {
			return 0, err
		}
		done(at + len(tokens))
	}
	return bits, nil
}

// every feeds tokens and shows the logits after each of them.
func (s *Sequence) every(ctx context.Context, tokens []int, see func(i int, logits []float32)) error {
	rows := make([]int, len(tokens))
	for i := range rows {
		rows[i] = i
	}
	batch := exec.Batch{Sequences: []exec.Sequence{{Slot: s.slot, Tokens: tokens, Rows: rows}}}
	return s.m.step(ctx, &batch, func(r *exec.Results) error {
		logits, err := r.Output("logits")
		for i := 0; err == nil && i < len(tokens); i++ {
			see(i, logits.Row(i))
		}
		return err
	})
}

// surprise is -log2 of the probability that the logits give to id.
func surprise(logits []float32, id int) float64 {
	top := logits[0]
	for _, v := range logits {
		top = max(top, v)
	}
	var sum float64
	for _, v := range logits {
		sum += math.Exp(float64(v - top))
	}
	return (math.Log(sum) - float64(logits[id]-top)) / math.Ln2
}

package krait

import (
	"context"
	"fmt"
	"math"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/session"
)

// Evaluate sets how a text is scored.
type Evaluate struct {
	// Window is the length of windows that each start from an empty state, so that the first token
	// of each is not scored; 0: one window.
	Window int
	// Progress gets the number of tokens done, and of all.
	Progress func(done, all int)
}

// Evaluation is how well a model predicts a text.
type Evaluation struct {
	Scored  int       // tokens that were predicted
	Bits    float64   // sum of -log2 p over them
	Windows []float64 // bits per token of each window
}

// BitsPerToken returns the mean of -log2 p over the scored tokens.
func (e *Evaluation) BitsPerToken() float64 { return e.Bits / float64(e.Scored) }

// Perplexity returns the inverse of the geometric mean of p.
func (e *Evaluation) Perplexity() float64 { return math.Exp2(e.BitsPerToken()) }

// Evaluate scores token ids: the bits of each, given those before it in its window.
func (m *Model) Evaluate(ctx context.Context, ids []int, o Evaluate) (*Evaluation, error) {
	if o.Window == 0 {
		o.Window = len(ids)
	}
	if o.Window < 2 || len(ids) < 2 {
		return nil, fmt.Errorf("tokens: %d, window: %d; both must be at least 2, since the first token of a window is not scored", len(ids), o.Window)
	}
	s, err := m.NewSequence()
	if err != nil {
		return nil, err
	}
	defer s.Close()
	out := &Evaluation{}
	for start := 0; start+1 < len(ids); start += o.Window {
		window := ids[start:min(start+o.Window, len(ids))]
		if err := s.Reset(); err != nil {
			return nil, err
		}
		bits, err := s.score(ctx, window, func(done int) {
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

// maxLogits bounds the logits in memory at a time.
const maxLogits = 1 << 22

// Score feeds token ids but the last, and returns the sum of -log2 p of all but the first.
func (s *Sequence) Score(ctx context.Context, ids []int) (bits float64, err error) {
	return s.score(ctx, ids, func(int) {})
}

func (s *Sequence) score(ctx context.Context, ids []int, progress func(tokens int)) (bits float64, err error) {
	vocab := s.m.Vocab()
	chunk := max(1, min(session.PrefillChunk, maxLogits/vocab))
	for at := 0; at < len(ids)-1; at += chunk {
		tokens := ids[at:min(at+chunk, len(ids)-1)]
		rows := make([]int, len(tokens))
		for i := range rows {
			if rows[i] = i; ids[at+i+1] < 0 || ids[at+i+1] >= vocab {
				return 0, fmt.Errorf("token id %d is outside of the vocabulary of %d", ids[at+i+1], vocab)
			}
		}
		b := exec.Batch{Sequences: []exec.Sequence{{Slot: s.slot, Tokens: tokens, Rows: rows}}}
		err := s.m.session.Step(ctx, &b, func(r *exec.Results) error {
			logits, err := r.Output(exec.LogitsOutput)
			for i := 0; err == nil && i < len(tokens); i++ {
				bits += surprise(logits.Row(i), ids[at+i+1])
			}
			return err
		})
		if err != nil {
			return 0, err
		}
		progress(at + len(tokens))
	}
	return bits, nil
}

// surprise returns -log2 of the probability of id.
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

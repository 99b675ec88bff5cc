package krait

import (
	"cmp"
	"context"
	"fmt"

	"github.com/krait-ml/krait/exec"
)

// prefillChunk is how many tokens of a prompt go through the model at once: so
// many that weights are read rarely, so few that activations stay small.
const prefillChunk = 512

// Sequence is one text under way: its state, and nothing of its tokens. It
// belongs to one goroutine; several may use sequences of one model.
type Sequence struct {
	m      *Model
	slot   int
	batch  exec.Batch
	logits []float32                 // after the last token
	keep   func(*exec.Results) error // copies them
}

// NewSequence begins a sequence with an empty state. It fails when all slots
// are taken.
func (m *Model) NewSequence() (*Sequence, error) {
	slot, err := m.engine.Alloc()
	if err != nil {
		return nil, err
	}
	s := &Sequence{m: m, slot: slot, batch: exec.Batch{Sequences: make([]exec.Sequence, 1)}}
	s.keep = func(r *exec.Results) error {
		logits, err := r.Output("logits")
		if err == nil {
			s.logits = append(s.logits[:0], logits.Row(0)...)
		}
		return err
	}
	return s, nil
}

// step runs a batch and lets read see its results before another goroutine's
// batch can replace them, also where some tokens could not be chosen.
func (m *Model) step(ctx context.Context, b *exec.Batch, read func(*exec.Results) error) error {
	if err := m.lock(); err != nil {
		return err
	}
	defer m.mu.Unlock()
	var err error
	if m.results, err = m.engine.Step(ctx, b); err != nil && exec.AsUnchosen(err) == nil {
		return err
	}
	return cmp.Or(err, read(&m.results))
}

// Step feeds tokens and returns the logits after the last one, a number per
// token id. They are valid until the sequence's next step.
func (s *Sequence) Step(ctx context.Context, tokens ...int) ([]float32, error) {
	if err := s.feed(ctx, tokens); err != nil {
		return nil, err
	}
	return s.logits, nil
}

// check looks at tokens before they are fed: a bad one must not leave half a prompt
// behind.
func (m *Model) check(tokens []int) error {
	if len(tokens) == 0 {
		return fmt.Errorf("no tokens: an empty prompt has no next token")
	}
	for i, id := range tokens {
		if id < 0 || id >= m.Vocab() {
			return fmt.Errorf("token %d is %d; ids of %s go from 0 to %d", i, id, m.Name, m.Vocab()-1)
		}
	}
	return nil
}

// feed feeds tokens, some at a time, and keeps the logits after the last.
func (s *Sequence) feed(ctx context.Context, tokens []int) error {
	if err := s.m.check(tokens); err != nil {
		return err
	}
	b := &s.batch
	for len(tokens) > 0 {
		n := min(len(tokens), prefillChunk)
		b.Sequences[0] = exec.Sequence{Slot: s.slot, Tokens: tokens[:n]}
		b.Want = nil
		read := s.keep
		if n < len(tokens) {
			b.Sequences[0].Rows, b.Want, read = noRows, nothing, ignore
		}
		if err := s.m.step(ctx, b, read); err != nil {
			return err
		}
		tokens = tokens[n:]
	}
	return nil
}

// What is wanted of the first chunks of a long prompt.
var (
	noRows  = []int{}
	nothing = []string{}
	ignore  = func(*exec.Results) error { return nil }
)

// Reset takes the sequence back to its beginning.
func (s *Sequence) Reset() error { return s.m.engine.Reset(s.slot) }

// Len is the number of tokens that the sequence was given.
func (s *Sequence) Len() (int, error) { return s.m.engine.Len(s.slot) }

// State copies a state of the sequence, by a name of [Model.States]: a row, or of a
// cache a row per token.
func (s *Sequence) State(name string) ([]float32, error) { return s.m.engine.State(s.slot, name) }

// SetState replaces a state of the sequence; a cache keeps the sequence's length.
func (s *Sequence) SetState(name string, values []float32) error {
	return s.m.engine.SetState(s.slot, name, values)
}

// Snapshot copies all that the sequence keeps.
func (s *Sequence) Snapshot() (*Snapshot, error) { return s.m.engine.Snapshot(s.slot) }

// Restore lets the sequence go on from a snapshot of one of the same model, which may
// have run on other ranks, by another strategy, or on another device. An error about
// the snapshot leaves the sequence as it was.
func (s *Sequence) Restore(from *Snapshot) error { return s.m.engine.Restore(s.slot, from) }

// Close gives the sequence's state slot back; after that the sequence is an error.
func (s *Sequence) Close() error { return s.m.engine.Free(s.slot) }

package krait

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/state"
	"github.com/krait-ml/krait/graph"
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
	want   []string                  // the outputs of Step
}

// Wanted says what a sequence is asked for of the tokens that it is fed. The zero value
// is the logits after the last one.
type Wanted struct {
	// Logits lists those of the tokens fed, counted from 0 and rising, after which logits are
	// wanted. Nil is the last one; a list that is empty but not nil is none.
	Logits []int
	// Values names values of [Options.Keep]. Nil is none.
	Values []string
}

// Fed is what was asked for. It belongs to the caller.
type Fed struct {
	Logits [][]float32 // a row per token of Wanted.Logits, a number per token id
	// Values has those of Wanted.Values, row by row: of a value of tokens, such as layers.0.h, a
	// row per token fed; of one with a row per wanted row, as Logits; of one with a row per sequence
	// the last; of any other all of it.
	Values map[string][][]float32
}

// NewSequence begins a sequence with an empty state. It fails when all slots
// are taken.
func (m *Model) NewSequence() (*Sequence, error) {
	slot, err := m.engine.Alloc()
	if err != nil {
		return nil, err
	}
	s := &Sequence{m: m, slot: slot, batch: exec.Batch{Sequences: make([]exec.Sequence, 1)}, want: []string{exec.LogitsOutput}}
	s.keep = func(r *exec.Results) error {
		logits, err := r.Output(exec.LogitsOutput)
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
	m.results, err = m.engine.Step(ctx, b)
	for errors.Is(err, state.ErrNoPages) && m.shrink(b) { // it has changed nothing
		m.results, err = m.engine.Step(ctx, b)
	}
	if err != nil && exec.AsChoiceError(err) == nil {
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

// Feed feeds tokens and returns what is wanted of them, as the same step gave it: unlike
// that of [Model.Engine], it is nobody else's.
func (s *Sequence) Feed(ctx context.Context, tokens []int, w Wanted) (*Fed, error) {
	if err := s.m.check(tokens); err != nil {
		return nil, err
	}
	if w.Logits == nil {
		w.Logits = []int{len(tokens) - 1}
	}
	if err := s.m.checkWanted(&w, len(tokens)); err != nil {
		return nil, err
	}
	out := &Fed{}
	if len(w.Values) > 0 {
		out.Values = map[string][][]float32{}
	}
	for from := 0; from < len(tokens); from += prefillChunk {
		to := min(from+prefillChunk, len(tokens))
		q := exec.Sequence{Slot: s.slot, Tokens: tokens[from:to], Rows: []int{}}
		for _, at := range w.Logits {
			if from <= at && at < to {
				q.Rows = append(q.Rows, at-from)
			}
		}
		b := exec.Batch{Sequences: []exec.Sequence{q}, Outputs: append([]string{}, w.Values...)}
		if len(q.Rows) > 0 {
			b.Outputs = append(b.Outputs, exec.LogitsOutput)
		}
		if err := s.m.step(ctx, &b, func(r *exec.Results) error { return out.read(r, b.Outputs) }); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// checkWanted looks at what is wanted before anything is fed.
func (m *Model) checkWanted(w *Wanted, tokens int) error {
	for i, at := range w.Logits {
		if at < 0 || at >= tokens || i > 0 && at <= w.Logits[i-1] {
			return fmt.Errorf("logits after tokens %v of %d are wanted; they are counted from 0, and rise", w.Logits, tokens)
		}
	}
	for _, name := range w.Values {
		if !slices.Contains(m.kept, name) {
			return fmt.Errorf("the value %s is wanted, and not kept: name it in Options.Keep when the model is opened; it has %q", name, m.kept)
		}
	}
	return nil
}

// read copies what a step gave to what earlier ones gave.
func (f *Fed) read(r *exec.Results, want []string) error {
	for _, name := range want {
		t, sym, err := r.OutputOf(name)
		if err != nil {
			return err
		}
		if t.DType != graph.F32 {
			return fmt.Errorf("the value %s is %s; those that a step gives are f32", name, t.DType)
		}
		var rows [][]float32
		for i := range t.Rows() {
			rows = append(rows, slices.Clone(t.Row(i)))
		}
		switch {
		case name == exec.LogitsOutput:
			f.Logits = append(f.Logits, rows...)
		case sym == graph.Tokens || sym == graph.Rows:
			f.Values[name] = append(f.Values[name], rows...)
		default:
			f.Values[name] = rows // the last is all
		}
	}
	return nil
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
		b.Outputs = s.want
		read := s.keep
		if n < len(tokens) {
			b.Sequences[0].Rows, b.Outputs, read = noRows, nothing, ignore
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

// Fork is another sequence that has been given the same tokens, from where both go on by
// themselves. It is copied on the device; attention's caches are shared, and nothing of
// them is copied but a part of one page. It fails when all slots are taken.
func (s *Sequence) Fork() (*Sequence, error) {
	e := s.m.engine
	states, err := e.CopyState(s.slot)
	if err != nil {
		return nil, err
	}
	defer states.Free()
	rows, err := e.ShareKV(s.slot, 0, states.Tokens)
	if err != nil {
		return nil, err
	}
	defer rows.Free()
	fork, err := s.m.NewSequence()
	if err != nil {
		return nil, err
	}
	if err := e.Resume(fork.slot, states, rows); err != nil {
		return nil, errors.Join(err, fork.Close())
	}
	return fork, nil
}

// Close gives the sequence's state slot back; after that the sequence is an error.
func (s *Sequence) Close() error { return s.m.engine.Free(s.slot) }

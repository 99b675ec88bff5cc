package krait

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/session"
)

// Sequence is the state of one text, without its tokens. It belongs to one goroutine; several may
// use sequences of one model.
type Sequence struct {
	m      *Model
	slot   int
	batch  exec.Batch
	logits []float32                 // after the last token
	read   func(*exec.Results) error // copies them
	names  []string                  // the outputs of Step
}

// Selection selects results of the tokens that a sequence is fed. The zero value is the logits
// after the last token.
type Selection struct {
	// Logits lists the tokens after which logits are returned, by increasing index among the tokens
	// fed. Nil: the last one; an empty list that is not nil: none.
	Logits []int
	// Values names values of [Options.Keep].
	Values []string
}

// FeedResult has the selected results. It belongs to the caller.
type FeedResult struct {
	Logits [][]float32 // [Selection.Logits, vocabulary]
	// Values has the selected values as rows: one per token fed for a value of tokens, such as
	// layers.0.h; one per row of Logits for a value of rows; the last for a value of sequences; all
	// of any other.
	Values map[string][][]float32
}

// NewSequence makes a sequence with an empty state. It fails if no slot is free.
func (m *Model) NewSequence() (*Sequence, error) {
	slot, err := m.engine.Alloc()
	if err != nil {
		return nil, err
	}
	s := &Sequence{m: m, slot: slot, batch: exec.Batch{Sequences: make([]exec.Sequence, 1)}, names: []string{exec.LogitsOutput}}
	s.read = func(r *exec.Results) error {
		logits, err := r.Output(exec.LogitsOutput)
		if err == nil {
			s.logits = append(s.logits[:0], logits.Row(0)...)
		}
		return err
	}
	return s, nil
}

// Step feeds tokens and returns the logits after the last one, one per token id. They are valid
// until the sequence's next step.
func (s *Sequence) Step(ctx context.Context, tokens ...int) ([]float32, error) {
	if err := s.feed(ctx, tokens); err != nil {
		return nil, err
	}
	return s.logits, nil
}

// Feed feeds tokens and returns copies of the selected results.
func (s *Sequence) Feed(ctx context.Context, tokens []int, w Selection) (*FeedResult, error) {
	if err := s.m.session.CheckTokens(tokens); err != nil {
		return nil, err
	}
	if w.Logits == nil {
		w.Logits = []int{len(tokens) - 1}
	}
	if err := s.m.checkSelection(&w, len(tokens)); err != nil {
		return nil, err
	}
	out := &FeedResult{}
	if len(w.Values) > 0 {
		out.Values = map[string][][]float32{}
	}
	for from := 0; from < len(tokens); from += session.PrefillChunk {
		to := min(from+session.PrefillChunk, len(tokens))
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
		if err := s.m.session.Step(ctx, &b, func(r *exec.Results) error { return out.read(r, b.Outputs) }); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// checkSelection checks a selection before anything is fed.
func (m *Model) checkSelection(w *Selection, tokens int) error {
	for i, at := range w.Logits {
		if at < 0 || at >= tokens || i > 0 && at <= w.Logits[i-1] {
			return fmt.Errorf("logits after tokens %v of %d: indices must increase, from 0", w.Logits, tokens)
		}
	}
	for _, name := range w.Values {
		if !slices.Contains(m.keep, name) {
			return fmt.Errorf("the value %s is not in Options.Keep, which has %q: name it there when the model is opened", name, m.keep)
		}
	}
	return nil
}

// read appends the results of a step.
func (f *FeedResult) read(r *exec.Results, want []string) error {
	for _, name := range want {
		t, sym, err := r.OutputOf(name)
		if err != nil {
			return err
		}
		if t.DType != graph.F32 {
			return fmt.Errorf("the value %s is %s; a step returns f32 values only", name, t.DType)
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

// feed feeds tokens in chunks, and copies the logits after the last.
func (s *Sequence) feed(ctx context.Context, tokens []int) error {
	if err := s.m.session.CheckTokens(tokens); err != nil {
		return err
	}
	b := &s.batch
	for len(tokens) > 0 {
		n := min(len(tokens), session.PrefillChunk)
		b.Sequences[0] = exec.Sequence{Slot: s.slot, Tokens: tokens[:n]}
		b.Outputs = s.names
		read := s.read
		if n < len(tokens) {
			b.Sequences[0].Rows, b.Outputs, read = noRows, noOutputs, ignore
		}
		if err := s.m.session.Step(ctx, b, read); err != nil {
			return err
		}
		tokens = tokens[n:]
	}
	return nil
}

// A step of a chunk in the middle of a prompt has no results.
var (
	noRows    = []int{}
	noOutputs = []string{}
	ignore    = func(*exec.Results) error { return nil }
)

// Reset empties the state of the sequence.
func (s *Sequence) Reset() error { return s.m.engine.Reset(s.slot) }

// Len returns the number of tokens that the sequence was fed.
func (s *Sequence) Len() (int, error) { return s.m.engine.Len(s.slot) }

// State copies a state of the sequence, by a name of [Model.States]: one row, or one per token of a
// KV cache.
func (s *Sequence) State(name string) ([]float32, error) { return s.m.engine.State(s.slot, name) }

// SetState replaces a state of the sequence; a KV cache must have the sequence's length.
func (s *Sequence) SetState(name string, values []float32) error {
	return s.m.engine.SetState(s.slot, name, values)
}

// Snapshot copies the state of the sequence.
func (s *Sequence) Snapshot() (*Snapshot, error) { return s.m.engine.Snapshot(s.slot) }

// Restore resumes from a snapshot of a sequence of the same model, which may have run on other
// ranks, by another strategy, or on another device. A snapshot that does not fit leaves the
// sequence unchanged.
func (s *Sequence) Restore(from *Snapshot) error { return s.m.engine.Restore(s.slot, from) }

// Save writes the state of the sequence for [Sequence.Load], as the bytes that the ranks hold or in
// [Options.StateCodec]. The first call reads the model's weights, since the file has their
// fingerprint.
func (s *Sequence) Save(w io.Writer) error { return s.m.session.Save(s.slot, w) }

// Load resumes from a state that [Sequence.Save] wrote, in any codec, by a model of the same graph
// and weights, number of ranks, strategy and formats of states, on any device. It reads no byte
// beyond it. A file that does not fit leaves the sequence unchanged. [Sequence.Restore] takes
// snapshots of any ranks.
func (s *Sequence) Load(r io.Reader) error { return s.m.session.Load(s.slot, r) }

// Fork returns a new sequence with the same state. Recurrent states are copied on the device; KV
// pages are shared, but for a copy of the last one. It fails if no slot is free.
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

// Close frees the sequence's slot. Later calls are errors.
func (s *Sequence) Close() error { return s.m.engine.Free(s.slot) }

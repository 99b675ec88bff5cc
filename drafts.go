package krait

import (
	"context"
	"fmt"
	"strings"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/session"
	"github.com/krait-ml/krait/session/draft"
)

// openDrafts opens the model of Options.Speculate, if it names one.
func (m *Model) openDrafts(o *Options) (err error) {
	dir, ok := strings.CutPrefix(m.speculate, draft.ModelPrefix)
	if !ok {
		return nil
	}
	if m.drafts, err = Open(dir, Options{Slots: o.Slots, Workers: o.Workers}); err != nil {
		return fmt.Errorf("Options.Speculate is %s: %w", m.speculate, err)
	}
	if err := m.drafts.speaks(m); err != nil {
		return fmt.Errorf("Options.Speculate is %s: %w", m.speculate, err)
	}
	return nil
}

// speaks returns an error unless the tokens of two models mean the same.
func (m *Model) speaks(other *Model) error {
	if m.Vocab() != other.Vocab() {
		return fmt.Errorf("%s has %d token ids and %s %d; a model that drafts needs the same tokenizer", m.Name, m.Vocab(), other.Name, other.Vocab())
	}
	if m.tokens == nil || other.tokens == nil {
		return nil
	}
	for id := range m.Vocab() {
		a, _ := m.tokens.Piece(id)
		if b, _ := other.tokens.Piece(id); a != b {
			return fmt.Errorf("token %d is %q in %s and %q in %s; a model that drafts needs the same tokenizer", id, a, m.Name, b, other.Name)
		}
	}
	return nil
}

// modelDrafter drafts the most probable tokens of a small model. An error of that model ends the
// drafts, and nothing else.
type modelDrafter struct {
	m      *Model
	slot   int
	begun  bool  // it has the slot
	failed bool  // it makes no more drafts
	unread []int // tokens that its state lacks
}

func (d *modelDrafter) Kind() string       { return "draft" }
func (d *modelDrafter) Read(tokens ...int) { d.unread = append(d.unread, tokens...) }

func (d *modelDrafter) Grade() int {
	if d.failed {
		return -1
	}
	return 0
}

func (d *modelDrafter) Draft(dst []int, n int) []int {
	out, err := d.draft(dst, n)
	if err != nil {
		d.Close()
		d.failed = true
		return dst
	}
	return out
}

// draft feeds the tokens of the text, saves the state after them, and continues from there.
func (d *modelDrafter) draft(dst []int, n int) (_ []int, err error) {
	e := d.m.engine
	if !d.begun {
		if d.slot, err = e.Alloc(); err != nil {
			return nil, err
		}
		d.begun = true
	}
	id := 0
	for len(d.unread) > 0 {
		chunk := d.unread[:min(len(d.unread), session.PrefillChunk)]
		if id, err = d.step(chunk); err != nil {
			return nil, err
		}
		d.unread = d.unread[len(chunk):]
	}
	d.unread = d.unread[:0]
	states, err := e.CopyState(d.slot)
	if err != nil {
		return nil, err
	}
	defer states.Free()
	rows, err := e.ShareKV(d.slot, 0, states.Tokens)
	if err != nil {
		return nil, err
	}
	defer rows.Free()
	dst = append(dst, id)
	for range n - 1 {
		if id, err = d.step(dst[len(dst)-1:]); err != nil {
			return nil, err
		}
		dst = append(dst, id)
	}
	if err := e.Reset(d.slot); err != nil {
		return nil, err
	}
	return dst, e.Resume(d.slot, states, rows)
}

// step feeds tokens, and returns the most probable next one.
func (d *modelDrafter) step(tokens []int) (id int, err error) {
	b := exec.Batch{Sequences: []exec.Sequence{{Slot: d.slot, Tokens: tokens}}, Choices: make([]exec.Choice, 1)}
	err = d.m.session.Step(context.Background(), &b, func(r *exec.Results) error {
		id = int(r.Tokens[0])
		return nil
	})
	return id, err
}

func (d *modelDrafter) Close() {
	if d.begun {
		_ = d.m.engine.Free(d.slot) // draft allocated it
		d.begun = false
	}
}

package session

import (
	"context"
	"slices"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/session/draft"
)

// Drafter returns a drafter of the most probable tokens of the session's model, for a sequence of
// another model. An error here ends the drafts, and nothing else: it is a [draft.Failing]. If the
// model is an MTP head, as its input hidden tells, the drafter is a [draft.HiddenReader].
func (s *Session) Drafter() draft.Drafter {
	d := modelDrafter{s: s}
	if h, ok := s.model.Graph.Value(exec.HiddenOutput); ok && h.Def.Op.Class == graph.Leaf {
		d.width = h.Type.Dims[1].Len()
		return &mtpDrafter{modelDrafter: d}
	}
	return &d
}

// modelDrafter drafts with a small model.
type modelDrafter struct {
	s      *Session
	slot   int
	begun  bool  // it has the slot
	err    error // why it makes no more drafts
	unread []int // tokens that its state lacks

	// Of an MTP head only.
	hidden []float32 // states of the tokens before those of unread, from the first on
	width  int       // of a state
	last   []float32 // state of the last step
}

func (d *modelDrafter) Kind() string       { return "draft" }
func (d *modelDrafter) Read(tokens ...int) { d.unread = append(d.unread, tokens...) }

func (d *modelDrafter) Grade() int {
	if d.err != nil {
		return -1
	}
	return 0
}

func (d *modelDrafter) Err() error { return d.err }

func (d *modelDrafter) Draft(dst []int, n int) []int {
	out, err := d.draft(dst, n)
	if err != nil {
		d.fail(err)
		return dst
	}
	return out
}

func (d *modelDrafter) fail(why error) {
	d.Close()
	d.err = why
}

// draft feeds the tokens of the text, and continues from the state after them, which it saves and
// restores.
func (d *modelDrafter) draft(dst []int, n int) (_ []int, err error) {
	id, err := d.feed(len(d.unread))
	if err != nil {
		return nil, err
	}
	if dst = append(dst, id); n == 1 {
		return dst, nil
	}
	e := d.s.engine
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
	for range n - 1 {
		if id, err = d.step(dst[len(dst)-1:], d.last); err != nil {
			return nil, err
		}
		dst = append(dst, id)
	}
	if err := e.Reset(d.slot); err != nil {
		return nil, err
	}
	return dst, e.Resume(d.slot, states, rows)
}

// feed feeds the first n of the unread tokens, and returns the most probable next one.
func (d *modelDrafter) feed(n int) (id int, err error) {
	if !d.begun {
		if d.slot, err = d.s.engine.Alloc(); err != nil {
			return 0, err
		}
		d.begun = true
	}
	tokens, hidden := d.unread[:n], d.hidden[:n*d.width]
	for len(tokens) > 0 {
		chunk := min(len(tokens), PrefillChunk)
		if id, err = d.step(tokens[:chunk], hidden[:chunk*d.width]); err != nil {
			return 0, err
		}
		tokens, hidden = tokens[chunk:], hidden[chunk*d.width:]
	}
	d.unread = slices.Delete(d.unread, 0, n)
	d.hidden = slices.Delete(d.hidden, 0, n*d.width)
	return id, nil
}

// step feeds tokens, and returns the most probable next one. An MTP head reads the hidden states of
// the tokens before them, and leaves one in last.
func (d *modelDrafter) step(tokens []int, hidden []float32) (id int, err error) {
	b := exec.Batch{Sequences: []exec.Sequence{{Slot: d.slot, Tokens: tokens}}, Choices: make([]exec.Choice, 1)}
	if d.width > 0 {
		b.Inputs = map[string]graph.Array{exec.HiddenOutput: graph.ArrayOf(hidden, len(tokens), d.width)}
		b.Outputs = []string{exec.HiddenOutput}
	}
	err = d.s.Step(context.Background(), &b, func(r *exec.Results) error {
		id = int(r.Tokens[0])
		if d.width == 0 {
			return nil
		}
		t, err := r.Output(exec.HiddenOutput)
		if err == nil {
			d.last = append(d.last[:0], t.Row(0)...)
		}
		return err
	})
	return id, err
}

func (d *modelDrafter) Close() {
	if d.begun {
		_ = d.s.engine.Free(d.slot) // feed allocated it
		d.begun = false
	}
}

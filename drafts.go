package krait

import (
	"fmt"
	"strings"

	"github.com/krait-ml/krait/session/draft"
)

// openDrafts opens the model of Options.Speculate, if it names one, or the MTP head of a model on
// ranks.
func (m *Model) openDrafts(o *Options, ranks int) (err error) {
	if m.head != nil {
		return m.openMTP(o, ranks)
	}
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

// noAuto turns drafts off if they are optional.
func (m *Model) noAuto(o *Options) bool {
	auto := o.Speculate == draft.Auto
	if auto {
		m.speculate, o.Speculate = draft.Off, draft.Off
	}
	return auto
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

package session

import (
	"slices"

	"github.com/krait-ml/krait/session/draft"
)

// mtpDrafter drafts with an MTP head, which is fed pairs: pair i is the hidden state of
// token i, and token i+1.
type mtpDrafter struct {
	modelDrafter
	read int // tokens
}

func (d *mtpDrafter) Kind() string { return draft.MTP }

func (d *mtpDrafter) Read(tokens ...int) {
	d.read += len(tokens)
	d.modelDrafter.Read(tokens...)
}

// next is the pair that the head is fed next, of which the token is the first unread one; -1 before
// there are any.
func (d *mtpDrafter) next() int { return d.read - len(d.unread) - 1 }

// pairs returns how many complete pairs the head has not seen.
func (d *mtpDrafter) pairs() int { return min(len(d.unread), len(d.hidden)/d.width) }

// ReadHidden feeds the head during prefill, too: hidden states of a long prompt take memory.
func (d *mtpDrafter) ReadHidden(at int, row []float32) {
	next := d.next()
	switch {
	case d.err != nil:
		return
	case next < 0 || at > next+len(d.hidden)/d.width:
		d.begin(at)
	case at < next: // computed again
		return
	}
	d.hidden = append(d.hidden[:(at-d.next())*d.width], row...)
	if n := d.pairs(); n >= PrefillChunk {
		if _, err := d.feed(n); err != nil {
			d.fail(err)
		}
	}
}

// begin begins anew with a pair: those before are not known, as of prefix hits.
func (d *mtpDrafter) begin(pair int) {
	d.Close()
	d.unread = slices.Delete(d.unread, 0, pair-d.next())
	d.hidden = d.hidden[:0]
}

func (d *mtpDrafter) Grade() int {
	if d.err != nil || len(d.unread) == 0 || d.pairs() < len(d.unread) {
		return -1
	}
	return 0
}

package krait

import (
	"errors"
	"fmt"
	"slices"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/state"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/models"
	"github.com/krait-ml/krait/session"
	"github.com/krait-ml/krait/session/draft"
)

// prepareMTP sets the graph to compile: the source's, and the MTP head's and a copy with hidden
// states where the head drafts.
func (m *Model) prepareMTP() (err error) {
	m.graph = m.source.graph
	if m.speculate != draft.MTP {
		return nil
	}
	if m.source.mtp == nil {
		return errors.New("a model that was made of a graph has no MTP head: use ngram or draft:DIR")
	}
	if m.head, err = m.source.mtp(); err != nil {
		return err
	}
	if m.graph, err = graph.Parse(graph.Print(m.graph)); err != nil { // fingerprints are of the source's
		return err
	}
	return models.AddHidden(m.graph)
}

// openMTP opens the MTP head on the model's ranks, or, if these are processes, on one rank in the
// process of rank 0.
func (m *Model) openMTP(o *Options, ranks int) (err error) {
	with := Options{Slots: o.Slots, PageTokens: state.PageTokens(o.PageTokens, o.Context), Workers: o.Workers, Reference: o.Reference, Device: o.Device,
		Sharding: Sharding{Ranks: ranks, Strategy: o.Sharding.Strategy}}
	if o.Processes != nil {
		if o.Processes.Rank() > 0 {
			return nil
		}
		with.Sharding = Sharding{}
	}
	if o.Context > 0 {
		with.Context = o.Context + exec.MaxTrial
	}
	nothing := func() error { return nil }
	head := &Model{Name: m.Name + "'s MTP head", source: m.source}
	head.source.graph, head.source.ignored, head.source.mtp, head.source.close = m.head, nil, nil, nothing
	if m.drafts, err = head.start(with); err != nil {
		return fmt.Errorf("%s: %w", head.Name, err)
	}
	return nil
}

// mtpDrafter drafts with the model's MTP head, which is fed pairs: pair i is the hidden state of
// token i, and token i+1.
type mtpDrafter struct {
	modelDrafter
	read int // tokens
}

// newMTPDrafter returns a drafter of a head.
func newMTPDrafter(head *Model) *mtpDrafter {
	h, _ := head.source.graph.Value(graph.HiddenOutput)
	return &mtpDrafter{modelDrafter: modelDrafter{m: head, width: h.Type.Dims[1].Len()}}
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
	case d.failed:
		return
	case next < 0 || at > next+len(d.hidden)/d.width:
		d.begin(at)
	case at < next: // computed again
		return
	}
	d.hidden = append(d.hidden[:(at-d.next())*d.width], row...)
	if n := d.pairs(); n >= session.PrefillChunk {
		if _, err := d.feed(n); err != nil {
			d.fail()
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
	if d.failed || len(d.unread) == 0 || d.pairs() < len(d.unread) {
		return -1
	}
	return 0
}

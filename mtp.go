package krait

import (
	"errors"
	"fmt"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/state"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/models"
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
// process of rank 0. The strategy is channel, since others may be for parts that no head has.
func (m *Model) openMTP(o *Options, ranks int) (err error) {
	with := Options{Slots: o.Slots, PageTokens: state.PageTokens(o.PageTokens, o.Context), Workers: o.Workers, Reference: o.Reference, Device: o.Device,
		Sharding: Sharding{Ranks: ranks}}
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

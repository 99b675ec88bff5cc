package check

import (
	"context"
	"fmt"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/graph"
)

// lastNorm is the value that an MTP head reads: hidden states behind the model's last norm.
const lastNorm = "norm_f"

// drafts returns the quantity of the checkpoint's MTP head, or nil.
func (p *prompt) drafts() *quantity {
	for _, q := range p.quantities {
		if q.kind == mtpRows && q.value != "" {
			return q
		}
	}
	return nil
}

// openMTP opens the checkpoint's MTP head for the prompts that have numbers of it.
func openMTP(dir string, prompts []*prompt, o Options) (close func(), err error) {
	close = func() {}
	for _, p := range prompts {
		switch {
		case p.drafts() == nil:
			continue
		case o.Processes != nil:
			p.drafts().line.Skip = "an MTP head, which Krait compares in one process"
			p.drafts().value = ""
			continue
		case p.length == 1:
			return close, fmt.Errorf("prompt %s: mtp.logits need a second token", p.name)
		}
		c, err := checkpoint.Open(dir)
		if err != nil {
			return close, err
		}
		g, err := c.MTP()
		if err == nil {
			p.head, err = krait.New(g, c.Tensor, nil, krait.Options{Slots: p.batch, Reference: o.Reference, Sharding: krait.Sharding{Ranks: o.Sharding.Ranks}, Device: o.Device})
		}
		last := close
		close = func() {
			last()
			if p.head != nil {
				p.head.Close()
			}
			c.Close()
		}
		if err != nil {
			return close, fmt.Errorf("prompt %s: mtp.logits: %w", p.name, err)
		}
	}
	return close, nil
}

// mtp compares the logits of the MTP head after each pair of a hidden state and the token after.
func (r *runner) mtp(ctx context.Context) error {
	q := r.p.drafts()
	if q == nil {
		return nil
	}
	for i, b := range r.group {
		slot, err := r.p.head.Engine().Alloc()
		if err != nil {
			return err
		}
		n := r.p.length - 1
		s := exec.Sequence{Slot: slot, Tokens: r.p.ids[b][1:]}
		for j := range n {
			s.Rows = append(s.Rows, j)
		}
		width := len(r.hidden[i]) / r.p.length
		batch := exec.Batch{Sequences: []exec.Sequence{s}, Inputs: map[string]graph.Array{exec.HiddenOutput: graph.ArrayOf(r.hidden[i][:n*width], n, width)}}
		results, err := r.p.head.Engine().Step(ctx, &batch)
		if err != nil {
			return err
		}
		logits, err := results.Output(q.value)
		if err != nil {
			return err
		}
		for j := range n {
			q.row(r.way.name, b, j, logits.Row(j))
		}
		r.p.head.Engine().Free(slot)
	}
	return nil
}

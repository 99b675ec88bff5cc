package bench

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/krait-ml/krait"
)

// PairedOptions configure a measurement of Krait and a peer in turns.
type PairedOptions struct {
	Rounds   int // turns of each; the first alternates
	Threads  int // of both
	Batch    int // sequences of the batched measurement
	Prompt   int // tokens of a sequence; each of a batch has an eighth
	Tokens   int // decode steps; half as many for a batch
	Roofline Roofline
	Open     func(dir string) (*krait.Model, error) // with Threads workers, and Batch slots
	Progress func(done, all int)                    // gets the number of models measured; may be nil
}

// each returns the prompt tokens and decode steps of a sequence in a batch.
func (o *PairedOptions) each() (prompt, on int) { return max(1, o.Prompt/8), max(1, o.Tokens/2) }

// Pair is the tokens per second of both with a model.
type Pair struct {
	Model string  `json:"model"`
	Work  string  `json:"work"` // "decode 1", "prompt 512", "decode 16"
	Peer  Side    `json:"peer"`
	Krait Side    `json:"krait"`
	Ratio float64 `json:"ratio,omitempty"` // of the medians, Krait's to the peer's; 0: one failed
	// By names the peer that scripts/gpu-suite/peers.py measured, and Math is Krait's there; Ratio is
	// then the median of the rounds' ratios. Empty: [PeerName].
	By   string `json:"by,omitempty"`
	Math string `json:"math,omitempty"`
	// Reads of memory, in bytes per second, between steps of Krait and before and after runs of the
	// peer.
	Reads Spread `json:"reads_bytes_per_second,omitzero"`

	limit func(bandwidth float64) float64 // the roofline in tokens per second; nil: unknown
	reads []float64
}

// Side is one side's numbers.
type Side struct {
	Runs []float64 `json:"runs"`
	Spread
	Share float64 `json:"share_of_floor,omitempty"` // median of those of the runs, each by the bandwidth beside it
	Note  string  `json:"note,omitempty"`           // why a run failed

	shares, beside []float64 // of the runs: shares, or bandwidths to find them by
}

// The measurements of a model, in the order of its pairs.
const (
	decodeOne = iota
	promptOne
	decodeMany
	works
)

// Paired measures models in turns with the peer. A measurement that fails leaves a note.
func Paired(ctx context.Context, p *Peer, models []string, o PairedOptions) ([]Pair, error) {
	if o.Rounds < 1 || o.Batch < 1 || o.Prompt < 1 || o.Tokens < 1 {
		return nil, fmt.Errorf("rounds %d, batch %d, prompt %d, tokens %d: all must be at least 1", o.Rounds, o.Batch, o.Prompt, o.Tokens)
	}
	var pairs []Pair
	for _, m := range models {
		for _, work := range []string{"decode 1", fmt.Sprint("prompt ", o.Prompt), fmt.Sprint("decode ", o.Batch)} {
			pairs = append(pairs, Pair{Model: m, Work: work})
		}
	}
	for round := range o.Rounds {
		for i, m := range models {
			list := pairs[i*works:][:works]
			sides := []func(){func() { p.measure(ctx, m, list, &o) }, func() { ours(ctx, p.Folder(m), list, &o) }}
			if round%2 == 1 {
				slices.Reverse(sides)
			}
			if o.Progress != nil {
				o.Progress(round*len(models)+i, o.Rounds*len(models))
			}
			for _, measure := range sides {
				if measure(); ctx.Err() != nil {
					return nil, ctx.Err()
				}
			}
		}
	}
	for i := range pairs {
		pairs[i].close()
	}
	return pairs, nil
}

// measure measures a model with the peer.
func (p *Peer) measure(ctx context.Context, model string, list []Pair, o *PairedOptions) {
	first := o.Roofline.now()
	prompt, decode, err := p.one(ctx, model, o)
	second := o.Roofline.now()
	list[promptOne].peer(prompt, err, first, second)
	list[decodeOne].peer(decode, err, first, second)
	decode, err = p.many(ctx, model, o)
	list[decodeMany].peer(decode, err, second, o.Roofline.now())
}

// peer adds a run of the peer between two reads of memory.
func (p *Pair) peer(v float64, err error, before, after float64) {
	p.Peer.add(v, err)
	p.reads = append(p.reads, before, after)
	if err == nil {
		p.Peer.beside = append(p.Peer.beside, (before+after)/2)
	}
}

// krait adds a run of Krait: prompts, or steps.
func (p *Pair) krait(r *Result, err error, prompt bool) {
	switch {
	case err != nil:
		p.Krait.add(0, err)
	case prompt:
		p.Krait.add(r.Prefill, nil)
		p.Krait.shares = append(p.Krait.shares, r.PromptShare)
		p.limit = func(float64) float64 { return rate(r.Prompt, r.PromptRoofline) }
	default:
		p.Krait.add(r.Decode, nil)
		p.Krait.shares = append(p.Krait.shares, r.Share)
		p.limit = func(bandwidth float64) float64 { return rate(r.Batch, least(r.Bytes, r.ops, bandwidth, r.Rate)) }
		p.reads = append(p.reads, r.reads...)
	}
}

// ours measures a model with Krait, as krait bench does.
func ours(ctx context.Context, dir string, list []Pair, o *PairedOptions) {
	m, err := o.Open(dir)
	if err != nil {
		for i := range list {
			list[i].Krait.add(0, err)
		}
		return
	}
	defer m.Close()
	each, on := o.each()
	b := Options{Batch: 1, Prompt: o.Prompt, Chunk: o.Prompt, Tokens: o.Tokens, Repeat: 1, Bandwidth: o.Roofline.Bytes, Rate: o.Roofline.FLOPs, Read: o.Roofline.Read}
	r, err := Measure(ctx, m, b)
	list[promptOne].krait(r, err, true)
	list[decodeOne].krait(r, err, false)
	b.Batch, b.Prompt, b.Chunk, b.Tokens = o.Batch, each, each, on
	r, err = Measure(ctx, m, b)
	list[decodeMany].krait(r, err, false)
}

// add adds a measurement.
func (s *Side) add(v float64, err error) {
	if err != nil {
		s.Note = err.Error()
		return
	}
	s.Runs = append(s.Runs, v)
}

// close computes the medians and ratios. Both have the same roofline, since they read the same
// weights.
func (p *Pair) close() {
	for _, s := range []*Side{&p.Peer, &p.Krait} {
		if len(s.Runs) == 0 {
			continue
		}
		for i, bandwidth := range s.beside {
			if p.limit != nil {
				s.shares = append(s.shares, s.Runs[i]/p.limit(bandwidth))
			}
		}
		s.Spread, s.Share = spreadOf(s.Runs), spreadOf(s.shares).Median
	}
	p.Reads = spreadOf(p.reads)
	if p.Peer.Median > 0 {
		p.Ratio = p.Krait.Median / p.Peer.Median
	}
}

// ReportPairs writes a table.
func ReportPairs(w io.Writer, list []Pair) {
	var rows [][]string
	for _, p := range list {
		times, memory := "–", "–"
		if p.Ratio > 0 {
			times = fmt.Sprintf("%.2f", p.Ratio)
		}
		if p.Reads.Median > 0 {
			memory = p.Reads.GB().String()
		}
		rows = append(rows, []string{p.Model, p.Work, p.Peer.String(), percent(p.Peer.Share), p.Krait.String(), percent(p.Krait.Share), times, memory})
	}
	table(w, 2, "model|tokens/s|"+PeerName+"|of the roofline|Krait|of the roofline|Krait / peer|memory, GB/s", rows)
	for _, p := range list {
		if p.Peer.Note != "" {
			fmt.Fprintf(w, "\n%s, %s, %s: %s\n", p.Model, p.Work, PeerName, p.Peer.Note)
		}
		if p.Krait.Note != "" {
			fmt.Fprintf(w, "\n%s, %s, Krait: %s\n", p.Model, p.Work, p.Krait.Note)
		}
	}
}

func (s *Side) String() string {
	if len(s.Runs) == 0 {
		return "failed"
	}
	return s.Spread.String()
}

package bench

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/internal/quantile"
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
}

// Side is one side's numbers.
type Side struct {
	Runs   []float64 `json:"runs"`
	Median float64   `json:"median"`
	Least  float64   `json:"least"`
	Most   float64   `json:"most"`
	Share  float64   `json:"share_of_floor,omitempty"` // of the median
	Note   string    `json:"note,omitempty"`           // why a run failed

	roofline float64 // tokens per second
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
	prompt, decode, err := p.one(ctx, model, o)
	list[promptOne].Peer.add(prompt, err)
	list[decodeOne].Peer.add(decode, err)
	decode, err = p.many(ctx, model, o)
	list[decodeMany].Peer.add(decode, err)
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
	b := Options{Batch: 1, Prompt: o.Prompt, Chunk: o.Prompt, Tokens: o.Tokens, Repeat: 1, Bandwidth: o.Roofline.Bytes, Rate: o.Roofline.FLOPs}
	r, err := Measure(ctx, m, b)
	if r == nil {
		r = &Result{}
	} else {
		list[promptOne].Krait.roofline, list[decodeOne].Krait.roofline = rate(r.Prompt, r.PromptRoofline), rate(1, r.Roofline)
	}
	list[promptOne].Krait.add(r.Prefill, err)
	list[decodeOne].Krait.add(r.Decode, err)
	b.Batch, b.Prompt, b.Chunk, b.Tokens = o.Batch, each, each, on
	if r, err = Measure(ctx, m, b); r == nil {
		r = &Result{}
	} else {
		list[decodeMany].Krait.roofline = rate(r.Batch, r.Roofline)
	}
	list[decodeMany].Krait.add(r.Decode, err)
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
		s.Median, s.Least, s.Most = quantile.Median(s.Runs), slices.Min(s.Runs), slices.Max(s.Runs)
		if p.Krait.roofline > 0 {
			s.Share = s.Median / p.Krait.roofline
		}
	}
	if p.Peer.Median > 0 {
		p.Ratio = p.Krait.Median / p.Peer.Median
	}
}

// ReportPairs writes a table.
func ReportPairs(w io.Writer, list []Pair) {
	var rows [][]string
	for _, p := range list {
		times := "–"
		if p.Ratio > 0 {
			times = fmt.Sprintf("%.2f", p.Ratio)
		}
		rows = append(rows, []string{p.Model, p.Work, p.Peer.String(), percent(p.Peer.Share), p.Krait.String(), percent(p.Krait.Share), times})
	}
	table(w, 2, "model|tokens/s|"+PeerName+"|of the roofline|Krait|of the roofline|Krait / peer", rows)
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
	return fmt.Sprintf("%.1f (%.1f to %.1f)", s.Median, s.Least, s.Most)
}

// Package calibration measures what cheaper payloads of collectives cost a model on a text, site by
// site, and chooses payloads within a budget.
package calibration

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/ordered"
	"github.com/krait-ml/krait/internal/versions"
	"github.com/krait-ml/krait/kernels/codec"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/passes"
)

// Calibration is the cost of cheaper payloads for a model on a text, by site. [Calibration.Choose]
// makes a payload setting of it.
type Calibration struct {
	Version  int    `json:"version"` // of this format, [versions.Calibration]
	Model    string `json:"model"`
	Graph    string `json:"graph"`   // fingerprint of the model's graph: its shapes and formats
	Weights  string `json:"weights"` // fingerprint of the graph and all weights
	Ranks    int    `json:"ranks"`
	Strategy string `json:"strategy,omitempty"`
	// Phase is prefill or decode if only that phase's payloads were rounded: the first half of each
	// window is prefilled, and the rest is scored. Empty: both phases.
	Phase  string  `json:"phase,omitempty"`
	Tokens int     `json:"tokens"`
	Bits   float64 `json:"bits_per_token"` // with f32 payloads
	Bytes  int64   `json:"bytes_per_token"`
	Sites  []Site  `json:"sites"`
	// Same has trials with one format at all sites.
	Same []Trial `json:"same"`
}

// Site describes the sums of one name in all blocks, and the effect of formats on them.
type Site struct {
	Name    string     `json:"name"`
	Largest float64    `json:"largest,omitempty"` // magnitude of a sum; 0: the model has no such value
	RMS     float64    `json:"rms,omitempty"`
	Rounded []Rounding `json:"rounded,omitempty"` // the sums alone, once
	Trials  []Trial    `json:"trials"`
}

// Rounding is the error of rounding once to a format: root mean square of the error over that of
// the numbers.
type Rounding struct {
	Format string  `json:"format"`
	Error  float64 `json:"error"`
}

// Trial is a run of the model with one payload at a site, or at all sites, and f32 elsewhere.
type Trial struct {
	Payload string `json:"payload"` // int8:none is for summands, none:int8 for sums: the two directions
	Bytes   int64  `json:"bytes_per_token"`
	// Loss is the relative growth of bits per token, Error the standard error of its mean over
	// windows.
	Loss  float64 `json:"loss"`
	Error float64 `json:"error"`
	Fails string  `json:"fails,omitempty"` // why Loss is not known
}

// formats lists the formats that a calibration tries.
var formats = []string{"fp16", "bf16", "scaled16", "int8", "e4m3", "e5m2", "int4"}

// Run evaluates token ids by a model with f32 payloads, and then with each format at each site. The
// function open opens the model with a payload setting, and values for Options.Keep. A phase,
// prefill or decode, rounds the payloads of that phase only: another model with f32 payloads runs
// the other phase, and takes over each sequence's state in the middle of a window. Progress may be
// nil.
func Run(ctx context.Context, phase string, open func(payload string, keep []string) (*krait.Model, error), ids []int, o krait.Evaluate, progress func(done, all int)) (c *Calibration, err error) {
	if phase != "" && !slices.Contains(passes.Phases, phase) {
		return nil, fmt.Errorf("unknown phase %q; it must be %s", phase, strings.Join(passes.Phases, " or "))
	}
	m, err := open("", nil)
	if err != nil {
		return nil, err
	}
	x := &calibrator{Calibration: Calibration{Version: versions.Calibration.Version, Tokens: len(ids), Phase: phase}, ctx: ctx, open: open, ids: ids, o: o, progress: progress}
	if phase != "" {
		if x.other, err = open("", nil); err != nil {
			return nil, errors.Join(err, m.Close())
		}
		defer func() { err = cmp.Or(err, x.other.Close()) }()
	}
	base, err := x.evaluate(m)
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	x.base, x.Bits, x.Ranks = base, base.BitsPerToken(), m.Compiled().Ranks
	x.Model, x.Graph = m.Name, fingerprint(m.Graph())
	x.Weights, err = m.Fingerprint()
	if err == nil {
		x.Bytes, err = sentBytes(m)
	}
	sites := passes.Sites(m.Compiled())
	values := map[string][]string{} // of the model, by site
	for _, s := range sites {
		for _, v := range s.Values {
			if _, ok := m.Graph().Value(v); ok {
				values[s.Name] = append(values[s.Name], v)
			}
		}
	}
	if err := errors.Join(err, m.Close()); err != nil {
		return nil, err
	}
	if len(sites) == 0 {
		return nil, errors.New("the model has no collective whose payload could be rounded; open it on more ranks (--tp)")
	}
	return x.run(sites, values)
}

// Check returns an error if the calibration is of another model: of another graph, or where weights
// is not nil of other weights. It is a Sharding.Check.
func (c *Calibration) Check(g *graph.Graph, weights func() (string, error)) error {
	if here := fingerprint(g); c.Graph != here {
		return fmt.Errorf("the calibration is of another model: of %.60q with graph %.12s, and this is %s with %.12s; run krait calibrate payload on this one", c.Model, orNone(c.Graph), g.Name, here)
	}
	if weights == nil {
		return nil
	}
	here, err := weights()
	if err == nil && c.Weights != here {
		err = fmt.Errorf("the calibration is of other weights: of %.60q with fingerprint %.12s, and this is %s with %.12s; run krait calibrate payload on these", c.Model, orNone(c.Weights), g.Name, here)
	}
	return err
}

// fingerprint returns one of a graph without weights.
func fingerprint(g *graph.Graph) string { return hex.EncodeToString(graph.Digest(g).Sum(nil)) }

func orNone(text string) string { return cmp.Or(text, "none") }

type calibrator struct {
	Calibration
	ctx      context.Context
	open     func(payload string, keep []string) (*krait.Model, error)
	ids      []int
	o        krait.Evaluate
	base     *krait.Evaluation
	other    *krait.Model // runs the other phase; nil: there is one phase
	progress func(done, all int)
}

func (c *calibrator) evaluate(m *krait.Model) (*krait.Evaluation, error) {
	switch {
	case c.Phase == "":
		return m.Evaluate(c.ctx, c.ids, c.o)
	case c.Phase == passes.Phases[0]:
		return handover(c.ctx, m, c.other, c.ids, c.o)
	}
	return handover(c.ctx, c.other, m, c.ids, c.o)
}

// handover lets one model prefill the first half of each window, and another score the rest.
func handover(ctx context.Context, prompts, tokens *krait.Model, ids []int, o krait.Evaluate) (*krait.Evaluation, error) {
	window := cmp.Or(o.Window, len(ids))
	if window < 4 || len(ids) < 4 {
		return nil, fmt.Errorf("%d tokens in windows of %d: at least 4 are needed, of which two are the prompt", len(ids), window)
	}
	a, err := prompts.NewSequence()
	if err != nil {
		return nil, err
	}
	defer a.Close()
	b, err := tokens.NewSequence()
	if err != nil {
		return nil, err
	}
	defer b.Close()
	out := &krait.Evaluation{}
	for part := range slices.Chunk(ids, window) {
		half := len(part) / 2
		if len(part)-half < 2 {
			continue // nothing is scored
		}
		if err := a.Reset(); err != nil {
			return nil, err
		}
		if _, err := a.Step(ctx, part[:half]...); err != nil {
			return nil, err
		}
		state, err := a.Snapshot()
		if err == nil {
			err = b.Restore(state)
		}
		if err != nil {
			return nil, err
		}
		bits, err := b.Score(ctx, part[half:])
		if err != nil {
			return nil, err
		}
		n := len(part) - half - 1
		out.Bits, out.Scored, out.Windows = out.Bits+bits, out.Scored+n, append(out.Windows, bits/float64(n))
	}
	return out, nil
}

func (c *calibrator) run(sites []passes.Site, values map[string][]string) (*Calibration, error) {
	payloads := func(ways []string) (list []string) {
		list = append(list, formats[:2]...)
		for _, f := range formats[2:] {
			if len(ways) == 2 {
				list = append(list, f+":none", "none:"+f)
			} else {
				list = append(list, f)
			}
		}
		return list
	}
	all, done := len(formats), 0
	for _, s := range sites {
		all += len(payloads(s.Ways))
	}
	try := func(payload, setting string) Trial {
		t := c.try(payload, setting)
		done++
		if c.progress != nil {
			c.progress(done, all)
		}
		return t
	}
	for _, s := range sites {
		site := Site{Name: s.Name}
		if len(values[s.Name]) > 0 {
			if err := c.ranges(&site, values[s.Name]); err != nil {
				return nil, err
			}
		}
		for _, p := range payloads(s.Ways) {
			site.Trials = append(site.Trials, try(p, s.Name+"="+p))
		}
		c.Sites = append(c.Sites, site)
		if err := c.ctx.Err(); err != nil {
			return nil, err
		}
	}
	for _, f := range formats {
		var parts []string
		for _, s := range sites {
			parts = append(parts, s.Name+"="+f)
		}
		c.Same = append(c.Same, try(f, strings.Join(parts, ",")))
	}
	return &c.Calibration, c.ctx.Err()
}

// try evaluates the text with a payload setting.
func (c *calibrator) try(payload, setting string) Trial {
	t := Trial{Payload: payload}
	fails := func(err error) Trial {
		t.Fails = err.Error()
		return t
	}
	m, err := c.open(setting, nil)
	if err != nil {
		return fails(err)
	}
	defer m.Close()
	if t.Bytes, err = sentBytes(m); err != nil {
		return fails(err)
	}
	e, err := c.evaluate(m)
	if err != nil {
		return fails(err)
	}
	if t.Loss, t.Error = lossOf(c.base, e); math.IsNaN(t.Loss) || math.IsInf(t.Loss, 0) {
		t.Loss, t.Error = 0, 0
		return fails(errors.New("logits are not finite: a payload exceeds the range of its format"))
	}
	return t
}

// lossOf returns the relative growth of a text's bits per token, and the standard error of that
// mean over windows.
func lossOf(base, e *krait.Evaluation) (loss, err float64) {
	loss = e.Bits/base.Bits - 1
	n := float64(len(e.Windows))
	if n < 2 {
		return loss, math.Abs(loss)
	}
	mean, sum := base.BitsPerToken(), 0.0
	for i, w := range e.Windows {
		d := (w-base.Windows[i])/mean - loss
		sum += d * d
	}
	return loss, math.Sqrt(sum / (n - 1) / n)
}

// sentBytes returns the bytes that a rank sends for a token, on average over the ranks.
func sentBytes(m *krait.Model) (int64, error) {
	schedules, err := lowering.Lower(m.Compiled())
	if err != nil {
		return 0, err
	}
	p, err := lowering.NewPlan(schedules)
	if err != nil {
		return 0, err
	}
	return p.Sent(graph.Sizes{Tokens: 1, Seqs: 1, Rows: 1}), nil
}

// ranges measures the sums of a site, and the rounding error of formats, over the first window.
func (c *calibrator) ranges(site *Site, values []string) error {
	m, err := c.open("", values)
	if err != nil {
		return err
	}
	defer m.Close()
	slot, err := m.Engine().Alloc()
	if err != nil {
		return err
	}
	ids := c.ids[:min(len(c.ids), max(2, c.o.Window), 512)]
	results, err := m.Engine().Step(c.ctx, &exec.Batch{Sequences: []exec.Sequence{{Slot: slot, Tokens: ids}}})
	if err != nil {
		return err
	}
	var squares float64
	off := make([]float64, len(formats))
	types := make([]graph.DType, len(formats))
	for k, f := range formats {
		if types[k], err = passes.ParseFormat(f); err != nil {
			return err
		}
	}
	n := 0
	for _, name := range values {
		x, err := results.Output(name)
		if err != nil {
			return err
		}
		for i := range x.Rows() {
			row := x.Row(i)
			for _, v := range row {
				site.Largest = max(site.Largest, math.Abs(float64(v)))
				squares += float64(v) * float64(v)
			}
			n += len(row)
			for k, d := range types {
				by, err := offBy(d, row)
				if err != nil {
					return err
				}
				off[k] += by
			}
		}
	}
	site.RMS = math.Sqrt(squares / float64(max(1, n)))
	for k, f := range formats {
		if e := math.Sqrt(off[k] / max(squares, math.SmallestNonzeroFloat64)); !math.IsInf(e, 0) && !math.IsNaN(e) {
			site.Rounded = append(site.Rounded, Rounding{f, e})
		}
	}
	return nil
}

// offBy returns the sum of the squared errors of rounding a row to a format.
func offBy(format graph.DType, row []float32) (sum float64, err error) {
	x := slices.Clone(row)
	if err := codec.RoundTo(format, x); err != nil {
		return 0, err
	}
	for i, v := range row {
		d := float64(x[i]) - float64(v)
		sum += d * d
	}
	return sum, nil
}

// Choice is the payload setting that [Calibration.Choose] makes, and why.
type Choice struct {
	Payload string // empty: no payload within the budget saves bytes
	Bytes   int64  // that a rank sends per token
	Loss    float64
	Reasons []string
}

// margin is how many standard errors are added to a measured loss, since the choice must hold on
// other texts.
const margin = 2

// atMost returns the upper bound taken for the loss of a trial.
func (t *Trial) atMost() float64 { return max(0, t.Loss) + margin*t.Error }

// option is one payload of a site.
type option struct {
	payload string
	bytes   int64 // that it saves
	loss    float64
}

// options lists the payloads of a site: the trials, and pairs of those for summands and for sums,
// whose losses are assumed to add. Options that save less and lose more than another are left out.
func (c *Calibration) options(s *Site) []option {
	list := []option{{payload: "none"}}
	add := func(payload string, trials ...*Trial) {
		o := option{payload: payload}
		for _, t := range trials {
			if t.Fails != "" {
				return
			}
			o.bytes, o.loss = o.bytes+c.Bytes-t.Bytes, o.loss+t.atMost()
		}
		if o.bytes > 0 {
			list = append(list, o)
		}
	}
	for i := range s.Trials {
		t := &s.Trials[i]
		add(t.Payload, t)
		first, ok := strings.CutSuffix(t.Payload, ":none")
		for j := range s.Trials {
			if last, isLast := strings.CutPrefix(s.Trials[j].Payload, "none:"); ok && isLast {
				both := first
				if last != first {
					both += ":" + last
				}
				add(both, t, &s.Trials[j])
			}
		}
	}
	ordered.Sort(list, func(a, b option) int {
		return cmp.Or(cmp.Compare(a.loss, b.loss), cmp.Compare(b.bytes, a.bytes))
	})
	front := list[:0]
	for _, o := range list {
		if len(front) == 0 || o.bytes > front[len(front)-1].bytes {
			front = append(front, o)
		}
	}
	return front
}

// Choose returns the payloads, by site and direction, that together send the fewest bytes with a
// loss within the budget, a share of the bits per token. Losses of single trials are assumed to
// add, each raised by two standard errors. A format for all sites that is within the budget as
// measured, and sends less, is taken instead.
func (c *Calibration) Choose(budget float64) Choice {
	best := Choice{Bytes: c.Bytes}
	type partial struct {
		bytes   int64
		loss    float64
		options []option
	}
	front := []partial{{}}
	for i := range c.Sites {
		var next []partial
		for _, p := range front {
			for _, o := range c.options(&c.Sites[i]) {
				if loss := p.loss + o.loss; loss <= budget {
					next = append(next, partial{p.bytes + o.bytes, loss, append(slices.Clone(p.options), o)})
				}
			}
		}
		ordered.Sort(next, func(a, b partial) int { return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(a.loss, b.loss)) })
		front = front[:0]
		for _, p := range next { // the Pareto front
			if len(front) == 0 || p.loss < front[len(front)-1].loss {
				front = append(front, p)
			}
		}
	}
	if len(front) > 0 && front[0].bytes > 0 { // no choice is in a budget below 0
		p := front[0]
		best.Bytes, best.Loss = c.Bytes-p.bytes, p.loss
		var parts []string
		for i, o := range p.options {
			parts = append(parts, c.Sites[i].Name+"="+o.payload)
			best.Reasons = append(best.Reasons, fmt.Sprintf("%s travels as %s: %d bytes less per token, and at most %.3f%% more bits", c.Sites[i].Name, o.payload, o.bytes, 100*o.loss))
		}
		best.Payload = strings.Join(parts, ",")
	}
	for i := range c.Same {
		t := &c.Same[i]
		if t.Fails != "" || t.atMost() > budget {
			why := t.Fails
			if why == "" {
				why = fmt.Sprintf("up to %.3f%% more bits", 100*t.atMost())
			}
			best.Reasons = append(best.Reasons, fmt.Sprintf("%s at all sites is not within the budget: %s", t.Payload, why))
			continue
		}
		if t.Bytes >= best.Bytes {
			best.Reasons = append(best.Reasons, fmt.Sprintf("%s at all sites sends no less: %d bytes", t.Payload, t.Bytes))
			continue
		}
		var parts []string
		for _, s := range c.Sites {
			parts = append(parts, s.Name+"="+t.Payload)
		}
		best = Choice{strings.Join(parts, ","), t.Bytes, t.atMost(), []string{
			fmt.Sprintf("%s at all sites sends the least, %d bytes for a token, with at most %.3f%% more bits as measured together", t.Payload, t.Bytes, 100*t.atMost())}}
	}
	return best
}

// Parse reads a calibration from the JSON that krait calibrate payload writes.
func Parse(text []byte) (*Calibration, error) {
	c := &Calibration{}
	if err := json.Unmarshal(text, c); err != nil {
		return nil, fmt.Errorf("%w; krait calibrate payload writes such files", err)
	}
	return c, versions.Calibration.Accept(c.Version)
}

// ParseBudget parses 0.5%, or a share such as 0.005.
func ParseBudget(text string) (float64, error) {
	number, percent := strings.CutSuffix(text, "%")
	var v float64
	if n, err := fmt.Sscanf(number+"\n", "%g\n", &v); n != 1 || err != nil || !(v >= 0) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("budget %q is not a share of bits per token; write it as 0.5%% or 0.005", text)
	}
	if percent {
		v /= 100
	}
	return v, nil
}

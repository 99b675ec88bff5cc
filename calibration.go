package krait

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels/codec"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/passes"
)

// A Calibration says what cheaper payloads cost a model on a text, site by site, of which
// [Calibration.Choose] makes a quantize.
type Calibration struct {
	Model    string `json:"model"`
	Graph    string `json:"graph"`   // a fingerprint of the model's graph: its shapes and formats
	Weights  string `json:"weights"` // and one of that and all weights
	Ranks    int    `json:"ranks"`
	Strategy string `json:"strategy,omitempty"`
	// Phase is prefill or decode where only that phase's payloads were rounded: the first half of
	// each window is read as a prompt, and what follows is scored. Empty: all tokens are both.
	Phase  string  `json:"phase,omitempty"`
	Tokens int     `json:"tokens"`
	Bits   float64 `json:"bits_per_token"` // without quantize
	Bytes  int64   `json:"bytes_per_token"`
	Sites  []Site  `json:"sites"`
	// Same are formats that all sites travel in.
	Same []Trial `json:"same"`
}

// Site is what the sums of one name, in all blocks, are like, and what formats do to them.
type Site struct {
	Name    string     `json:"name"`
	Largest float64    `json:"largest,omitempty"` // magnitude of a sum; 0 where the model has no such value
	RMS     float64    `json:"rms,omitempty"`
	Rounded []Rounding `json:"rounded,omitempty"` // the sums alone, once
	Trials  []Trial    `json:"trials"`
}

// Rounding is what a format does to numbers, once: the root of the mean square of what it is
// off, over that of the numbers.
type Rounding struct {
	Format string  `json:"format"`
	Error  float64 `json:"error"`
}

// Trial is a run of the model with the payload of a site, or of all, and else nothing.
type Trial struct {
	Payload string `json:"payload"` // int8:none is for summands, none:int8 for sums: the two directions
	Bytes   int64  `json:"bytes_per_token"`
	// Loss is by how much of themselves bits per token grew, and Error how far that may be
	// off: the standard error of the mean over windows.
	Loss  float64 `json:"loss"`
	Error float64 `json:"error"`
	Fails string  `json:"fails,omitempty"` // why there is no loss
}

// formats are what calibration tries.
var formats = []string{"fp16", "bf16", "scaled16", "int8", "e4m3", "e5m2", "int4"}

// Calibrate runs token ids through a model without payloads that are rounded, and then with
// each format at each site, which open opens: with a quantize and values to keep.
func Calibrate(ctx context.Context, open func(quantize string, keep []string) (*Model, error), ids []int, o Evaluate, tell func(done, all int)) (*Calibration, error) {
	return CalibrateIn(ctx, "", open, ids, o, tell)
}

// CalibrateIn is Calibrate for the payloads of a phase, prefill or decode, of a model whose phases
// have schedules of their own: the other runs without payloads that are rounded, and what a
// sequence keeps goes over in the middle of each window. Empty is Calibrate.
func CalibrateIn(ctx context.Context, phase string, open func(quantize string, keep []string) (*Model, error), ids []int, o Evaluate, tell func(done, all int)) (found *Calibration, err error) {
	if phase != "" && !slices.Contains(passes.Phases, phase) {
		return nil, fmt.Errorf("phase %q; there are %s", phase, strings.Join(passes.Phases, " and "))
	}
	m, err := open("", nil)
	if err != nil {
		return nil, err
	}
	c := &calibrator{Calibration: Calibration{Tokens: len(ids), Phase: phase}, ctx: ctx, open: open, ids: ids, o: o, tell: tell}
	if phase != "" {
		if c.other, err = open("", nil); err != nil {
			return nil, errors.Join(err, m.Close())
		}
		defer func() { err = cmp.Or(err, c.other.Close()) }()
	}
	base, err := c.evaluate(m)
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	c.base, c.Bits, c.Ranks = base, base.BitsPerToken(), m.Compiled().Ranks
	c.Model, c.Graph = m.Name, graphPrint(m.source.graph)
	c.Weights, err = m.fingerprint()
	if err == nil {
		c.Bytes, err = sentBytes(m)
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
		return nil, errors.New("nothing travels that could be rounded: give more ranks, with --tp")
	}
	return c.run(sites, values)
}

// Check is an error where the calibration is of another model than a graph, before anything
// was compiled of it. Other weights of the same graph are found when it is opened.
func (c *Calibration) Check(g *graph.Graph) error {
	if here := graphPrint(g); c.Graph != here {
		return fmt.Errorf("the calibration is of another model: of %.60q with graph %.12s, and this is %s with %.12s; run krait calibrate-quant on this one", c.Model, orNone(c.Graph), g.Name, here)
	}
	return nil
}

// checkWeights is Check of an opened model.
func (c *Calibration) checkWeights(m *Model) error {
	here, err := m.fingerprint()
	if err == nil && c.Weights != here {
		err = fmt.Errorf("the calibration is of other weights: of %.60q with fingerprint %.12s, and this is %s with %.12s; run krait calibrate-quant on these", c.Model, orNone(c.Weights), m.Name, here)
	}
	return err
}

func orNone(text string) string { return cmp.Or(text, "none") }

type calibrator struct {
	Calibration
	ctx  context.Context
	open func(quantize string, keep []string) (*Model, error)
	ids  []int
	o    Evaluate
	base *Evaluation
	// other runs the other phase; nil: there is none.
	other *Model
	tell  func(done, all int)
}

func (c *calibrator) evaluate(m *Model) (*Evaluation, error) {
	switch {
	case c.Phase == "":
		return m.Evaluate(c.ctx, c.ids, c.o)
	case c.Phase == passes.Phases[0]:
		return handed(c.ctx, m, c.other, c.ids, c.o)
	}
	return handed(c.ctx, c.other, m, c.ids, c.o)
}

// handed lets one model read the first half of each window, and another score the rest.
func handed(ctx context.Context, prompts, tokens *Model, ids []int, o Evaluate) (*Evaluation, error) {
	window := cmp.Or(o.Window, len(ids))
	if window < 4 || len(ids) < 4 {
		return nil, fmt.Errorf("%d tokens in windows of %d: at least 4 are needed, of which two are a prompt", len(ids), window)
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
	out := &Evaluation{}
	for part := range slices.Chunk(ids, window) {
		half := len(part) / 2
		if len(part)-half < 2 {
			continue // nothing is scored
		}
		if err := cmp.Or(a.Reset(), a.feed(ctx, part[:half])); err != nil {
			return nil, err
		}
		state, err := a.Snapshot()
		if err == nil {
			err = b.Restore(state)
		}
		if err != nil {
			return nil, err
		}
		bits, err := tokens.score(ctx, b, part[half:], func(int) {})
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
	try := func(payload, quantize string) Trial {
		t := c.try(payload, quantize)
		done++
		if c.tell != nil {
			c.tell(done, all)
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

// try evaluates with a quantize.
func (c *calibrator) try(payload, quantize string) Trial {
	t := Trial{Payload: payload}
	fails := func(err error) Trial {
		t.Fails = err.Error()
		return t
	}
	m, err := c.open(quantize, nil)
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
		return fails(errors.New("logits are not finite: a payload left the range of its format"))
	}
	return t
}

// lossOf is by how much of itself the bits per token of a text grew, and the standard error of
// that mean over its windows.
func lossOf(base, e *Evaluation) (loss, err float64) {
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

// sentBytes is what a rank sends for a token, on average over the ranks.
func sentBytes(m *Model) (int64, error) {
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

// ranges looks at the sums of a site, and what formats do to them, over the first window.
func (c *calibrator) ranges(site *Site, values []string) error {
	m, err := c.open("", values)
	if err != nil {
		return err
	}
	defer m.Close()
	slot, err := m.engine.Alloc()
	if err != nil {
		return err
	}
	ids := c.ids[:min(len(c.ids), max(2, c.o.Window), prefillChunk)]
	results, err := m.engine.Step(c.ctx, &exec.Batch{Sequences: []exec.Sequence{{Slot: slot, Tokens: ids}}})
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

// offBy is the sum of the squares of what a format makes a row differ.
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

// Choice is what [Calibration.Choose] takes, and why.
type Choice struct {
	Quantize string // empty: nothing in the budget saves anything
	Bytes    int64  // that a rank sends for a token
	Loss     float64
	Reasons  []string
}

// margin is how many standard errors a loss may be above what was measured, since it is to hold
// on other texts.
const margin = 2

// atMost is what the loss of a trial is taken to be.
func (t *Trial) atMost() float64 { return max(0, t.Loss) + margin*t.Error }

// option is a payload of a site.
type option struct {
	payload string
	bytes   int64 // that it saves
	loss    float64
}

// options of a site: the trials, and pairs of those for summands and for sums, whose losses
// are taken to add up; without those that save less and lose more than another.
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
	slices.SortStableFunc(list, func(a, b option) int {
		return cmp.Or(cmp.Compare(a.loss, b.loss), cmp.Compare(b.bytes, a.bytes))
	})
	kept := list[:0]
	for _, o := range list {
		if len(kept) == 0 || o.bytes > kept[len(kept)-1].bytes {
			kept = append(kept, o)
		}
	}
	return kept
}

// Choose takes, for each site and direction, payloads that together send the fewest bytes with a
// loss in the budget, a share of the bits per token. What single trials lose is taken to add
// up, each two standard errors more than was measured. A format for all sites that is in the
// budget as it was measured and sends less is taken instead.
func (c *Calibration) Choose(budget float64) Choice {
	best := Choice{Bytes: c.Bytes}
	type partial struct {
		bytes  int64
		loss   float64
		chosen []option
	}
	front := []partial{{}}
	for i := range c.Sites {
		var next []partial
		for _, p := range front {
			for _, o := range c.options(&c.Sites[i]) {
				if loss := p.loss + o.loss; loss <= budget {
					next = append(next, partial{p.bytes + o.bytes, loss, append(slices.Clone(p.chosen), o)})
				}
			}
		}
		slices.SortStableFunc(next, func(a, b partial) int { return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(a.loss, b.loss)) })
		front = front[:0]
		for _, p := range next { // those than which none saves more and loses less
			if len(front) == 0 || p.loss < front[len(front)-1].loss {
				front = append(front, p)
			}
		}
	}
	if len(front) > 0 && front[0].bytes > 0 { // no choice is in a budget below 0
		p := front[0]
		best.Bytes, best.Loss = c.Bytes-p.bytes, p.loss
		var parts []string
		for i, o := range p.chosen {
			parts = append(parts, c.Sites[i].Name+"="+o.payload)
			best.Reasons = append(best.Reasons, fmt.Sprintf("%s travels as %s: %d bytes less for a token, and at most %.3f%% more bits", c.Sites[i].Name, o.payload, o.bytes, 100*o.loss))
		}
		best.Quantize = strings.Join(parts, ",")
	}
	for i := range c.Same {
		t := &c.Same[i]
		if t.Fails != "" || t.atMost() > budget {
			why := t.Fails
			if why == "" {
				why = fmt.Sprintf("up to %.3f%% more bits", 100*t.atMost())
			}
			best.Reasons = append(best.Reasons, fmt.Sprintf("%s at all sites is not in the budget: %s", t.Payload, why))
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

// ParseBudget reads 0.5%, or a share such as 0.005.
func ParseBudget(text string) (float64, error) {
	number, percent := strings.CutSuffix(text, "%")
	var v float64
	if n, err := fmt.Sscanf(number+"\n", "%g\n", &v); n != 1 || err != nil || !(v >= 0) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("budget %q: it is how many more bits per token are allowed, such as 0.5%%", text)
	}
	if percent {
		v /= 100
	}
	return v, nil
}

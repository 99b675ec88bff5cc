package reproduce

import (
	"fmt"
	"slices"
	"strings"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
)

// measured is what is simulated for a claim: a range of numbers, or a text. Also has what
// belongs beside it, each with its name.
type measured struct {
	span
	also []string
	// open says that the range is one of settings that are not published.
	open bool
}

// measures simulate what claims are about, by name.
var measures map[string]func(*lab, *claim) (measured, error)

func init() {
	measures = map[string]func(*lab, *claim) (measured, error){
		"gain": (*lab).gain, "ttft": (*lab).ttft, "tpot": (*lab).tpot, "longest": (*lab).longestPrompt, "ratio": (*lab).longestRatio,
		"fp16": (*lab).fp16, "ablation": (*lab).ablation, "busy": (*lab).busy, "memory": (*lab).memory, "collectives": (*lab).collectives,
		"slower": (*lab).slower,
	}
}

// each calls see for the machines, models and points of a claim.
func (c *claim) each(see func(machine string, m *model, p point) error) error {
	for _, machine := range c.on() {
		for _, m := range c.models() {
			for _, p := range c.points(m) {
				if err := see(machine, m, p); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// gain is the throughput over another one's, each with the largest batch that it has room
// for. Replicas share nothing, and have that of one GPU times their number.
func (l *lab) gain(c *claim) (measured, error) {
	out := measured{span: empty()}
	err := c.each(func(machine string, m *model, p point) error {
		x, err := l.gainAt(m, machine, c.GPUs, p)
		if c.Over == "DP" {
			x = (x+100)/float64(c.GPUs) - 100
		}
		out.add(x)
		return err
	})
	return out, err
}

// gainAt is the gain over one GPU in percent.
func (l *lab) gainAt(m *model, machine string, gpus int, p point) (float64, error) {
	one, err := l.largest(setup{size: m.size, machine: machine, gpus: 1}, p)
	if err != nil {
		return 0, err
	}
	many, err := l.largest(setup{size: m.size, machine: machine, gpus: gpus}, p)
	return 100 * (many.throughput/one.throughput - 1), err
}

// both are the two ways to define a gain in time, in percent.
func both(tp, dp float64) (less, more float64) { return 100 * (1 - tp/dp), 100 * (dp/tp - 1) }

// ttft is how much sooner the first tokens are there than on a replica with the same
// batch: one sequence, and as many as one GPU has room for.
func (l *lab) ttft(c *claim) (measured, error) {
	out, more := measured{span: empty(), open: true}, empty()
	err := c.each(func(machine string, m *model, p point) error {
		if p.out != 16 {
			return nil // it does not depend on the output
		}
		one, many := setup{size: m.size, machine: machine, gpus: 1}, setup{size: m.size, machine: machine, gpus: c.GPUs}
		most, err := l.maxBatch(one, p)
		if err != nil {
			return err
		}
		for _, batch := range []int{1, most} {
			a, err := l.run(many, p, batch)
			if err != nil {
				return err
			}
			b, err := l.run(one, p, batch)
			if err != nil {
				return err
			}
			less, beyond := both(a.ttft, b.ttft)
			out.add(less)
			more.add(beyond)
		}
		return nil
	})
	out.also = []string{fmt.Sprintf("as DP/TP − 1: %s", rangeText(more, "%"))}
	return out, err
}

// tpot is the same of the time per token.
func (l *lab) tpot(c *claim) (measured, error) {
	out, more := measured{span: empty()}, empty()
	err := c.each(func(machine string, m *model, p point) error {
		if p.in != 16 && p.in != m.longest {
			return nil
		}
		one, many := setup{size: m.size, machine: machine, gpus: 1}, setup{size: m.size, machine: machine, gpus: c.GPUs}
		most, err := l.maxBatch(one, p)
		if err != nil {
			return err
		}
		a, err := l.run(many, p, most)
		if err != nil {
			return err
		}
		b, err := l.run(one, p, most)
		less, beyond := both(a.tpot, b.tpot)
		out.add(less)
		more.add(beyond)
		return err
	})
	out.also = []string{fmt.Sprintf("as DP/TP − 1: %s", rangeText(more, "%"))}
	return out, err
}

// longestPrompt is the longest of the prompts that are powers of two, and beside it the
// longest of all, and Krait's own: fused, also in chunks.
func (l *lab) longestPrompt(c *claim) (measured, error) {
	out := measured{span: empty()}
	m := c.models()[0]
	s := setup{size: m.size, machine: c.on()[0], gpus: c.GPUs}
	power, exact, err := l.longest(s, 256)
	if err != nil {
		return out, err
	}
	out.add(float64(power))
	out.also = append(out.also, fmt.Sprintf("of any length: %d", exact))
	s.fused = true
	if power, exact, err = l.longest(s, 256); err == nil && m.scans {
		out.also = append(out.also, fmt.Sprintf("fused scan: %d (%d)", power, exact))
	}
	return out, err
}

// longestRatio is by how much the longest prompt grows from one GPU to four.
func (l *lab) longestRatio(c *claim) (measured, error) {
	out := measured{span: empty()}
	for _, machine := range c.on() {
		for _, m := range c.models() {
			one, _, err := l.longest(setup{size: m.size, machine: machine, gpus: 1}, 256)
			if err != nil {
				return out, err
			}
			many, _, err := l.longest(setup{size: m.size, machine: machine, gpus: c.GPUs}, 256)
			if err != nil {
				return out, err
			}
			if one > 0 {
				out.add(float64(many) / float64(one))
			}
			out.also = append(out.also, fmt.Sprintf("%s on %s: %d to %d", m.name, machine, one, many))
		}
	}
	return out, nil
}

// fp16 is the throughput where sums travel in 16 bits over that where they do not.
func (l *lab) fp16(c *claim) (measured, error) {
	out := measured{span: empty()}
	err := c.each(func(machine string, m *model, p point) error {
		s := setup{size: m.size, machine: machine, gpus: c.GPUs}
		full, err := l.largest(s, p)
		if err != nil {
			return err
		}
		s.quantize = "fp16"
		half, err := l.largest(s, p)
		out.add(100 * (half.throughput/full.throughput - 1))
		return err
	})
	return out, err
}

// ablations are the steps of the published one: where the first port's sums are, whether
// the text is read again for every token, what travels.
var ablations = map[string]struct {
	strategy, quantize string
	cache              bool
}{
	"baseline":                 {"paper-naive", "", false},
	"sharding":                 {"", "", false},
	"sharding+cache":           {"", "", true},
	"sharding+cache+quantized": {"", "fp16", true},
}

// ablation is the time per token of output, in milliseconds, with the largest batch with
// which the first step has room for the whole text; without a cache all of the text goes
// through the model for every token, of which the mean is taken at its ends and middle.
func (l *lab) ablation(c *claim) (measured, error) {
	out := measured{span: empty(), open: true}
	m, machine := c.models()[0], c.on()[0]
	a, p := ablations[c.Step], point{c.In, c.Out}
	batch, err := l.maxBatch(setup{size: m.size, machine: machine, gpus: c.GPUs, strategy: "paper-naive"}, point{p.in + p.out - 1, 1})
	if err != nil {
		return out, err
	}
	s := setup{size: m.size, machine: machine, gpus: c.GPUs, strategy: a.strategy, quantize: a.quantize}
	for _, b := range []int{1, batch} {
		var seconds float64
		if a.cache {
			t, err := l.run(s, p, b)
			if err != nil {
				return out, err
			}
			seconds = (t.ttft + float64(p.out-1)*t.tpot) / float64(p.out)
		} else {
			seconds, err = simpson(p.in, p.in+p.out-1, func(tokens int) (float64, error) {
				t, err := l.run(s, point{tokens, 1}, b)
				return t.ttft, err
			})
			if err != nil {
				return out, err
			}
		}
		out.add(1000 * seconds)
	}
	out.also = []string{fmt.Sprintf("batches of 1 and %d", batch)}
	return out, nil
}

// busy is the share of the time of a prompt in which a GPU runs something; a collective
// that waits is a kernel that runs, as tools count.
func (l *lab) busy(c *claim) (measured, error) {
	out := measured{span: empty()}
	m := c.models()[0]
	t, err := l.largest(setup{size: m.size, machine: c.on()[0], gpus: c.GPUs}, point{c.In, c.Out})
	if err != nil {
		return out, err
	}
	kernels := slices.Max(t.prefill.Busy)
	out.add(100 * (kernels + t.prefill.Exposed()) / t.prefill.Seconds())
	out.also = []string{fmt.Sprintf("kernels without collectives: %.1f %%", 100*kernels/t.prefill.Seconds())}
	return out, nil
}

// memory is the share of a GPU's memory that is in use at most.
func (l *lab) memory(c *claim) (measured, error) {
	out := measured{span: empty()}
	err := c.each(func(machine string, m *model, p point) error {
		s := setup{size: m.size, machine: machine, gpus: c.GPUs}
		batch, err := l.maxBatch(s, p)
		if err != nil {
			return err
		}
		share, err := l.memoryShare(s, p, batch)
		out.add(share)
		return err
	})
	return out, err
}

// collectives counts those of a block of the model, and lists what they are after.
func (l *lab) collectives(c *claim) (measured, error) {
	out := measured{span: empty()}
	for _, m := range c.models() {
		list, err := l.schedules(setup{size: m.size, gpus: 4, strategy: c.Step})
		if err != nil {
			return out, err
		}
		plan, err := lowering.NewPlan(list)
		if err != nil {
			return out, err
		}
		n, names := 0, []string{}
		for i := range plan.Collectives {
			if x := &plan.Collectives[i]; graph.BlockOf(x.Name) == "layers.1" {
				n++
				names = append(names, strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(x.Name, "layers.1.mixer."), "_sum"), "_all"))
			}
		}
		out.add(float64(n))
		out.also = append(out.also, m.name+": "+strings.Join(names, ", "))
	}
	return out, nil
}

// slower is by how much 4 GPUs are more above as many replicas than 2 are above 2, in
// points, for those points of the grid where they are least.
func (l *lab) slower(c *claim) (measured, error) {
	out := measured{span: empty()}
	err := c.each(func(machine string, m *model, p point) error {
		four, err := l.gainAt(m, machine, 4, p)
		if err != nil {
			return err
		}
		two, err := l.gainAt(m, machine, 2, p)
		out.add((four+100)/4 - (two+100)/2)
		return err
	})
	return out, err
}

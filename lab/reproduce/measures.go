package reproduce

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
)

// measurement is the simulated result for a claim: a range, with further results as texts.
type measurement struct {
	span
	also []string
}

// measures has the simulations of claims, by name.
var measures map[string]func(*lab, *claim) (measurement, error)

func init() {
	measures = map[string]func(*lab, *claim) (measurement, error){
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

// gain compares throughputs, each with the largest batch that fits. Replicas share nothing: their
// throughput is that of one GPU times their number, unless a share of it is assumed.
func (l *lab) gain(c *claim) (measurement, error) {
	out := measurement{span: empty()}
	err := c.each(func(machine string, m *model, p point) error {
		x, err := l.gainAt(m, machine, c.GPUs, p)
		if c.Over == "DP" {
			x = (x+100)/float64(c.GPUs)/cmp.Or(l.assume.replicas, 1) - 100
		}
		out.add(x)
		return err
	})
	return out, err
}

// gainAt returns the gain over one GPU in percent.
func (l *lab) gainAt(m *model, machine string, gpus int, p point) (float64, error) {
	one, err := l.largest(setup{size: m.size, machine: machine, gpus: 1}, p)
	if err != nil {
		return 0, err
	}
	many, err := l.largest(setup{size: m.size, machine: machine, gpus: gpus}, p)
	return 100 * (many.throughput/one.throughput - 1), err
}

// both returns the two definitions of a gain in time, in percent.
func both(tp, dp float64) (less, more float64) { return 100 * (1 - tp/dp), 100 * (dp/tp - 1) }

// ttft compares the time to first token with that of a replica with the same batch: one sequence,
// and the largest batch that fits on one GPU.
func (l *lab) ttft(c *claim) (measurement, error) {
	out, more := measurement{span: empty()}, empty()
	err := c.each(func(machine string, m *model, p point) error {
		if p.out != 16 {
			return nil // it does not depend on the output
		}
		one, many := setup{size: m.size, machine: machine, gpus: 1}, setup{size: m.size, machine: machine, gpus: c.GPUs}
		most, err := l.maxBatch(one, p)
		if err != nil {
			return err
		}
		for _, batch := range l.batchesUpTo(most) {
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

// tpot compares the time per output token likewise.
func (l *lab) tpot(c *claim) (measurement, error) {
	out, more := measurement{span: empty()}, empty()
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

// longestPrompt returns the longest prompt that is a power of two, and beside it the exact one, and
// those with Krait's fused scan.
func (l *lab) longestPrompt(c *claim) (measurement, error) {
	out := measurement{span: empty()}
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

// longestRatio compares the longest prompts of four GPUs and of one.
func (l *lab) longestRatio(c *claim) (measurement, error) {
	out := measurement{span: empty()}
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

// fp16 compares the throughput with payloads in fp16 to that with f32.
func (l *lab) fp16(c *claim) (measurement, error) {
	out := measurement{span: empty()}
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

// ablations are the steps of the published ablation: the first port's sharding, no cache, and
// payloads.
var ablations = map[string]struct {
	strategy, quantize string
	cache              bool
}{
	"baseline":                 {"paper-naive", "", false},
	"sharding":                 {"", "", false},
	"sharding+cache":           {"", "", true},
	"sharding+cache+quantized": {"", "fp16", true},
}

// ablation returns the time per output token in milliseconds, with the largest batch that fits in
// the first step. Without a cache the model processes the whole text for every token; the mean is
// taken at its ends and middle.
func (l *lab) ablation(c *claim) (measurement, error) {
	out := measurement{span: empty()}
	m, machine := c.models()[0], c.on()[0]
	a, p := ablations[c.Step], point{c.In, c.Out}
	batch, err := l.maxBatch(setup{size: m.size, machine: machine, gpus: c.GPUs, strategy: "paper-naive"}, point{p.in + p.out - 1, 1})
	if err != nil {
		return out, err
	}
	s := setup{size: m.size, machine: machine, gpus: c.GPUs, strategy: a.strategy, quantize: a.quantize}
	for _, b := range l.batchesUpTo(batch) {
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

// busy returns the share of prefill in which a GPU is busy. A waiting collective counts, as in
// profilers.
func (l *lab) busy(c *claim) (measurement, error) {
	out := measurement{span: empty()}
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

// memory returns the peak share of a GPU's memory.
func (l *lab) memory(c *claim) (measurement, error) {
	out := measurement{span: empty()}
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

// collectives counts the collectives of a block, and names the values before them.
func (l *lab) collectives(c *claim) (measurement, error) {
	out := measurement{span: empty()}
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

// slower compares the gains of 4 GPUs over 4 replicas with those of 2 over 2, in points, at the
// point of the grid with the least difference.
func (l *lab) slower(c *claim) (measurement, error) {
	out := measurement{span: empty()}
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

package reproduce

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/krait-ml/krait/cost"
	"github.com/krait-ml/krait/exec/virtual"
)

// instead replaces figures of the profiles; zeros keep them.
type instead struct {
	kernels   float64 // factor of the time of kernels
	prompts   float64 // of those in the steps of prompts
	steps     float64 // of those in the steps of single tokens
	launch    float64 // seconds of a launch
	memory    float64 // factor of the memory
	bandwidth float64 // factor of the link's
	latency   float64 // likewise
	link      string  // profile of the link
	free      bool    // collectives take no time
	batch     int     // of all runs, where it fits; 0: the largest of each
	replicas  float64 // share of their number that the throughput of replicas is
}

// fits is what the largest batch depends on.
func (x instead) fits() instead { return instead{memory: x.memory} }

// device returns a machine with these figures.
func (x instead) device(machine string, gpus int) (*virtual.Device, error) {
	p, err := cost.Find(machine) // a new copy each time
	if err != nil {
		return nil, err
	}
	d := &virtual.Device{Profile: p}
	if x.kernels > 0 {
		d.SlowRanks = map[int]float64{}
		for r := range gpus {
			d.SlowRanks[r] = x.kernels
		}
	}
	if x.launch > 0 {
		p.Overhead.Launch.Value = x.launch
	}
	if x.link != "" {
		other, err := cost.Find(x.link)
		if err != nil {
			return nil, err
		}
		p.Link = other.Link
	}
	if x.memory > 0 {
		p.Memory.Capacity.Value *= x.memory
	}
	for i := range p.Link.Algorithms {
		a := &p.Link.Algorithms[i]
		if x.latency > 0 {
			a.Base.Value, a.Step.Value = x.latency*a.Base.Value, x.latency*a.Step.Value
		}
		if x.bandwidth > 0 {
			a.Bandwidth.Value *= x.bandwidth
		}
		if x.free {
			a.Base.Value, a.Step.Value, a.Bandwidth.Value = 0, 0, math.MaxFloat64
		}
	}
	return d, nil
}

// question asks for the gains over one GPU under another assumption.
type question struct {
	If string
	instead
	same bool   // 4 GPUs have the largest batch of one
	only string // a machine; empty: both
}

// questions apply to both machines.
var questions = []question{
	{If: "nothing: as simulated above"},
	{If: "sums took no time", instead: instead{free: true}},
	{If: "sums took what they take over the A6000's PCIe", instead: instead{link: "a6000-pcie"}, only: "A100"},
	{If: "sums took what they take over the A6000's PCIe, and kernels twice as long", instead: instead{link: "a6000-pcie", kernels: 2}, only: "A100"},
	{If: "kernels took twice as long", instead: instead{kernels: 2}},
	{If: "kernels took three times as long", instead: instead{kernels: 3}},
	{If: "a launch took 10 µs", instead: instead{launch: 10e-6}},
	{If: "4 GPUs had the batch of one", same: true},
	{If: "4 GPUs had the batch of one, and kernels took three times as long", instead: instead{kernels: 3}, same: true},
	{If: "the batch were 64", instead: instead{batch: 64}},
	{If: "the batch were 64, and a launch took 10 µs", instead: instead{launch: 10e-6, batch: 64}},
}

// Answer is the gain of 4 GPUs over one, in percent, at the corners of the grid: the
// shortest and longest prompts and outputs.
type Answer struct {
	Machine string   `json:"machine"`
	If      string   `json:"if"`
	Gains   []string `json:"gains"` // by model; –: it does not fit
	FP16    string   `json:"fp16"`  // gain of Mamba with payloads in fp16
	TPOT    string   `json:"tpot"`  // of Mamba on 4 GPUs, 256 tokens and 256 of output

	gains []span
	fp16  span
	tpot  float64 // milliseconds
}

// answers simulates all questions.
func (l *lab) answers() (list []Answer, err error) {
	for _, m := range machines {
		for i := range questions {
			q := &questions[i]
			if q.only != "" && q.only != m.name {
				continue
			}
			a := Answer{Machine: m.name, If: q.If, fp16: empty()}
			for k := range evaluated {
				if err := l.answer(&a, q, &evaluated[k], m.profile); err != nil {
					return nil, err
				}
			}
			a.FP16, a.TPOT = rangeText(a.fp16, "%"), rangeText(span{a.tpot, a.tpot}, "ms")
			list = append(list, a)
		}
	}
	return list, nil
}

// answer adds a model to an answer.
func (l *lab) answer(a *Answer, q *question, m *model, machine string) error {
	gain := empty()
	for _, p := range m.corners() {
		s := setup{size: m.size, machine: machine, gpus: 1, instead: q.instead}
		one, err := l.ask(q, s, p)
		if err != nil {
			return err
		}
		if one.batch == 0 {
			gain = empty()
			break
		}
		s.gpus = 4
		four, err := l.ask(q, s, p)
		if err != nil {
			return err
		}
		gain.add(100 * (four.throughput/one.throughput - 1))
		if m.name != "Mamba" {
			continue
		}
		if p == (point{m.longest, m.longest}) {
			a.tpot = 1000 * four.tpot
		}
		s.quantize = "fp16"
		half, err := l.ask(q, s, p)
		if err != nil {
			return err
		}
		a.fp16.add(100 * (half.throughput/four.throughput - 1))
	}
	a.gains, a.Gains = append(a.gains, gain), append(a.Gains, rangeText(gain, "%"))
	return nil
}

// ask runs with the batch of a question. The batch of the result is 0 if it does not fit on one
// GPU.
func (l *lab) ask(q *question, s setup, p point) (times, error) {
	if q.batch == 0 && !q.same {
		return l.largest(s, p)
	}
	one := s
	one.gpus, one.quantize = 1, ""
	batch, err := l.maxBatch(one, p)
	if err != nil || q.batch > batch {
		return times{}, err
	}
	return l.run(s, p, batch)
}

// corners returns the points with the shortest and longest prompts and outputs.
func (m *model) corners() []point {
	inner := func(n int) bool { return n != 16 && n != m.longest }
	return slices.DeleteFunc(m.grid(), func(p point) bool { return inner(p.in) || inner(p.out) })
}

// explain writes the answers, below the published figures.
func (r *Report) explain(b *strings.Builder) {
	b.WriteString("\n### What would explain the gains of 4 GPUs over one\n\n| machine | if | Mamba | Mamba-2 | Falcon-Mamba | Zamba | Mamba by sums in fp16 | Mamba's TPOT at 256 and 256 |\n|---|---|---|---|---|---|---|---|\n")
	machine := ""
	for _, a := range r.Answers {
		if a.Machine != machine {
			machine = a.Machine
			gain := r.published("throughput_gain_percent." + machine + ".vs_1x.4")
			fmt.Fprintf(b, "| %s | *published* | %s | %s | %s | %s | %s | %s |\n", machine, gain, gain, gain, gain,
				r.published("quantized_allreduce.throughput_gain_percent."+machine+".Mamba"), r.published("ablation_latency_per_token_ms_mamba_256_256."+machine+".sharding+cache"))
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s |\n", a.Machine, a.If, strings.Join(a.Gains, " | "), a.FP16, a.TPOT)
	}
	b.WriteString(explanation)
}

// published returns the published figure of a claim.
func (r *Report) published(claim string) string {
	i := slices.IndexFunc(r.Lines, func(x Line) bool { return x.Claim == claim })
	if i < 0 {
		panic("BUG: there is no claim " + claim)
	}
	return r.Lines[i].Published
}

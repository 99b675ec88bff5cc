package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/exec/virtual"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lab/simulate"
	"github.com/krait-ml/krait/passes"
)

// deployments compares deployments on the same number of devices.
type deployments struct {
	Model    string `json:"model"`
	Hardware string `json:"hardware"`
	Devices  int    `json:"devices"`
	Batch    int    `json:"batch"`
	Prompt   int    `json:"prompt_tokens"`
	Output   int    `json:"output_tokens"`
	Lines    []line `json:"deployments"`
	about    string
}

// line is a deployment.
type line struct {
	Ranks       int     `json:"ranks"`
	Replicas    int     `json:"replicas"`
	Strategy    string  `json:"strategy"`
	Payload     string  `json:"payload"`
	Error       string  `json:"error,omitempty"` // why it does not run
	TTFT        float64 `json:"ttft_seconds,omitempty"`
	TPOT        float64 `json:"tpot_seconds,omitempty"`
	Throughput  float64 `json:"tokens_per_second,omitempty"`
	Collectives float64 `json:"collective_seconds"`
	Exposed     float64 `json:"exposed_seconds"`
	Bytes       int64   `json:"bytes_per_rank,omitempty"` // of the rank that has most
	MaxBatch    int     `json:"max_batch"`
	MaxPrompt   int     `json:"max_prompt"`
}

// payloadFormats are those in which sums may travel; the first is as they are.
var payloadFormats = []string{"", "fp16"}

// deployments simulates all deployments on the devices, from replicas of one rank each to
// one model on all of them. tell gets the number of those simulated; it may be nil.
func (f *simulateFlags) deployments(g *graph.Graph, d *virtual.Device, tell func(done, all int)) (*deployments, error) {
	devices := max(1, f.sharding.Ranks, g.Ranks) * f.replicas.Number
	if g.Stage >= graph.PartitionedStage {
		return nil, errors.New("the graph is partitioned; --compare needs it at an earlier stage")
	}
	out := &deployments{Hardware: d.Profile.Name, Devices: devices, Batch: f.work.Batch, Prompt: f.work.Prompt, Output: f.work.Output, about: d.Profile.About}
	var all []krait.Sharding
	for n := 1; n <= min(devices, passes.MaxRanks); n++ {
		if devices%n != 0 {
			continue
		}
		for _, s := range passes.Strategies {
			for _, p := range payloadFormats {
				all = append(all, krait.Sharding{Ranks: n, Strategy: s.Name, Payload: p, States: f.sharding.States})
				if n == 1 {
					break
				}
			}
			if n == 1 { // all are the same
				break
			}
		}
	}
	for i, s := range all {
		if tell != nil {
			tell(i, len(all))
		}
		out.Lines = append(out.Lines, f.line(g, d, s, devices/s.Ranks))
	}
	return out, nil
}

func (f *simulateFlags) line(g *graph.Graph, d *virtual.Device, s krait.Sharding, replicas int) line {
	l := line{Ranks: s.Ranks, Replicas: replicas, Strategy: s.Strategy, Payload: cmp.Or(s.Payload, "f32")}
	if err := f.fill(&l, g, d, s); err != nil {
		l.Error = firstLine(err)
	}
	return l
}

func (f *simulateFlags) fill(l *line, g *graph.Graph, d *virtual.Device, s krait.Sharding) error {
	o, err := s.Options()
	if err != nil {
		return err
	}
	on := *d
	if l.Replicas > 1 && l.Ranks == 1 { // a slow one would be one of the replicas
		on.SlowRanks, on.SlowLinks = nil, nil
	}
	m, err := simulate.Compile(g, o, &on)
	if err != nil {
		return err
	}
	g1 := *f
	g1.replicas.Number = l.Replicas
	w, err := g1.workload(m)
	if err != nil {
		return err
	}
	part := g1.replicas.Each(w)
	if l.MaxBatch, l.MaxPrompt, err = g1.most(m, part); err != nil {
		return err
	}
	one, err := m.Run(part)
	if err != nil {
		return err
	}
	r := g1.replicas.All(w, one)
	l.TTFT, l.TPOT, l.Throughput = r.TTFT, r.TPOT, r.Throughput
	l.Collectives, l.Exposed = r.Prefill.Collectives+r.Decode.Collectives, r.Prefill.Exposed+r.Decode.Exposed
	for _, n := range r.Memory {
		l.Bytes = max(l.Bytes, n.Sum)
	}
	return nil
}

func (r *deployments) print(w io.Writer) {
	fmt.Fprintf(w, "%s on %s: %s\n%s of %s, and %s of output each\n\n", r.Model, count(r.Devices, "device"), r.about, count(r.Batch, "sequence"), count(r.Prompt, "token"), count(r.Output, "token"))
	fmt.Fprintf(w, "%3s %3s  %-12s  %-7s  %10s  %10s  %10s  %11s  %11s  %15s  %9s  %9s\n", "tp", "dp", "strategy", "payload", "TTFT", "TPOT", "tokens/s", "collectives", "exposed", "bytes per rank", "max batch", "max prompt")
	for _, x := range r.Lines {
		fmt.Fprintf(w, "%3d %3d  %-12s  %-7s  ", x.Ranks, x.Replicas, x.Strategy, x.Payload)
		if x.Error != "" {
			fmt.Fprintln(w, x.Error)
			continue
		}
		fmt.Fprintf(w, "%10s  %10s  %10.1f  %11s  %11s  %15s  %9s  %9s\n", round(seconds(x.TTFT)), round(seconds(x.TPOT)), x.Throughput,
			round(seconds(x.Collectives)), round(seconds(x.Exposed)), thousands(x.Bytes), orAny(x.MaxBatch), orAny(x.MaxPrompt))
	}
	fmt.Fprintln(w, "collectives: seconds of the generation in which one was active; exposed: seconds that no kernel overlapped")
}

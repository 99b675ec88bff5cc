// Prefixcache repeats the published evaluation of a prefix cache for hybrids (Marconi, Pan et al.
// 2025) on synthetic traces, as the published ones are not available. It prints hit rates and times
// to the first token by policy beside the published gains, and with -svg draws the gains against
// the capacity: they depend on how regularly requests of a session follow each other.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/krait-ml/krait/lab/workload"
	"github.com/krait-ml/krait/session/prefix"
	"github.com/krait-ml/krait/visualize/svg"
)

func main() {
	sessions := flag.Int("sessions", 100, "sessions of a trace; of kinds with one request each ten times as many")
	flops := flag.Float64("flops", 5e14, "FLOP/s of prefill (4 A100 at 40 % of their 312e12)")
	queue := flag.Bool("queue", false, "let prompts wait for each other, first come first served")
	drawing := flag.String("svg", "", "file for a chart of the gains against the capacity, instead of the tables")
	flag.Parse()
	err := error(nil)
	if *drawing != "" {
		var text []byte
		if text, err = chart(*sessions); err == nil {
			err = os.WriteFile(*drawing, text, 0o644)
		}
	} else {
		err = run(os.Stdout, *sessions, server{*flops, *queue})
	}
	if err != nil {
		log.Fatal(err)
	}
}

// hybrid is a model of width 4096, in 16 bits, with the costs that are published: of L
// tokens, attention takes 8LD² + 4L²D FLOPs, an MLP 16LD², an SSM 12LD² + 16LDN + 10L.
type hybrid struct{ attention, ssm, mlp, state int }

func (h hybrid) model() prefix.Model {
	const d = 4096
	attention, ssm, mlp, n := int64(h.attention), int64(h.ssm), int64(h.mlp), int64(h.state)
	return prefix.Model{
		FLOPsPerToken:        float64(attention*8*d*d + mlp*16*d*d + ssm*(12*d*d+16*d*n+10)),
		FLOPsPerTokenSquared: float64(attention * 4 * d),
		CacheBytes:           attention * 4 * d,
		StateBytes:           ssm * (2*d*n + 2*4*(2*d+2*n)), // of the scan, and of the convolution
	}
}

// published is the model that most of the figures are of.
var published = hybrid{4, 24, 28, 128}

// setting is a row: a trace, a model and a cache.
type setting struct {
	name      string
	trace     workload.Options
	model     hybrid
	gigabytes float64
	published string
}

// section is a table.
type section struct {
	title string
	rows  []setting
}

// agents is the trace that stands for SWE-Bench: as many sessions at a time as in the published
// evaluation, whose steps follow after 10 seconds. A share of these is the same for all.
func agents(sessions int, regular float64) workload.Options {
	return workload.Options{Kind: "agent", Sessions: sessions, Seed: 1, Rate: 0.5, Pause: 10, Regular: regular}
}

// sections vary one thing each. Chat stands for ShareGPT and LMSys. Layers that were published for
// a ratio are not known: 24 SSM layers stay.
func sections(sessions int) []section {
	agent := agents(sessions, 0.8)
	with := func(rate, pause float64) workload.Options {
		o := agent
		o.Rate, o.Pause = rate, pause
		return o
	}
	kind := func(name string, n int, regular float64) workload.Options {
		return workload.Options{Kind: name, Sessions: n * sessions, Seed: 1, Rate: 1, Pause: -1, Regular: regular}
	}
	return []section{
		{"regular share of pauses", []setting{
			{"agent, 0, 20 GB", agents(sessions, 0), published, 20, ""},
			{"agent, 0.5, 20 GB", agents(sessions, 0.5), published, 20, ""},
			{"agent, 0.8, 20 GB", agents(sessions, 0.8), published, 20, "SWEBench: x34.4, +219.7%; P95 -46.8% of none, -24.7% of leaves"},
			{"agent, 1, 20 GB", agents(sessions, 1), published, 20, ""},
			{"chat, 0, 5 GB", kind("chat", 5, 0), published, 5, ""},
			{"chat, 0.8, 5 GB", kind("chat", 5, 0.8), published, 5, "ShareGPT: x7.3, +19.0%; LMSys: x4.5, +45.6%"}}},
		{"capacity", []setting{
			{"agent, 10 GB", agent, published, 10, "60 GB: +24.3%"},
			{"agent, 20 GB", agent, published, 20, "80 GB: +51.5%"},
			{"agent, 40 GB", agent, published, 40, "100 GB: +68.3%"},
			{"agent, 60 GB", agent, published, 60, "120 GB: +30.0%"},
			{"agent, 80 GB", agent, published, 80, "140 GB: +10.0%"}}},
		{"attention : SSM", []setting{
			{"1:2, 12 and 24", agent, hybrid{12, 24, 36, 128}, 20, "x1.135, +5.8%"},
			{"1:4, 6 and 24", agent, hybrid{6, 24, 30, 128}, 20, "x1.666, +26.0%"},
			{"1:8, 3 and 24", agent, hybrid{3, 24, 27, 128}, 20, "x2.6, +59.7%"},
			{"attention only, 28", agent, hybrid{28, 0, 28, 128}, 20, "all are equal"}}},
		{"sessions per second", []setting{
			{"0.25", with(0.25, 10), published, 20, ""},
			{"0.5", with(0.5, 10), published, 20, ""},
			{"2", with(2, 10), published, 20, "gains grow with it"}}},
		{"other kinds", []setting{
			{"fewshot, 1 GB", kind("fewshot", 10, 0), published, 1, ""},
			{"docs, 15 GB", kind("docs", 10, 0), published, 15, ""},
			{"tools, 20 GB", kind("tools", 1, 0), published, 20, ""}}},
	}
}

// policies are compared. In the publication none is vanilla, blocks32 vLLM+, leaves SGLang+,
// marconi what its text says, and released:1 what its code does.
var policies = [...]string{"none", "blocks32", "leaves", "lru", "marconi", "released:1", "reuse"}

// outcome is what the policies make of a setting.
type outcome struct {
	rate [len(policies)]float64 // share of input tokens that is not computed
	ttft [len(policies)]float64 // P95, in seconds
}

// server prefills prompts.
type server struct {
	flops float64 // per second
	queue bool    // one prompt at a time, in the order of arrival
}

// p95 is the time to the first token that 95 % of the requests keep.
func (s server) p95(m prefix.Model, trace []prefix.Request, hits []int) float64 {
	times, free := make([]float64, len(trace)), 0.0
	for i, r := range trace {
		work := (m.FLOPs(r.InputLen) - m.FLOPs(hits[i])) / s.flops
		begin := r.At
		if s.queue {
			begin = max(begin, free)
		}
		free = begin + work
		times[i] = free - r.At
	}
	slices.Sort(times)
	return times[(len(times)*95+99)/100-1]
}

func (s setting) measure(at server) (out outcome, err error) {
	trace, err := workload.Make(s.trace)
	if err != nil {
		return out, err
	}
	m := s.model.model()
	for i, policy := range policies {
		r, err := prefix.Replay(policy, m, int64(s.gigabytes*1e9), trace)
		if err != nil {
			return out, err
		}
		out.rate[i] = float64(r.HitTokens) / float64(r.InputTokens)
		out.ttft[i] = at.p95(m, trace, r.Hits)
	}
	return out, nil
}

// measure measures settings, on all cores.
func measure(rows []setting, at server) ([]outcome, error) {
	var wg sync.WaitGroup
	free := make(chan struct{}, runtime.GOMAXPROCS(0))
	out, errs := make([]outcome, len(rows)), make([]error, len(rows))
	for i, row := range rows {
		wg.Go(func() {
			free <- struct{}{}
			defer func() { <-free }()
			if out[i], errs[i] = row.measure(at); errs[i] != nil {
				errs[i] = fmt.Errorf("%s: %w", row.name, errs[i])
			}
		})
	}
	wg.Wait()
	return out, errors.Join(errs...)
}

// run prints the tables.
func run(w io.Writer, sessions int, at server) error {
	fmt.Fprintf(w, "%-22s %8s %6s %6s %7s %8s %6s   %7s %8s %6s   %6s %6s %8s %6s   %s\n", "", "", "", "hit", "rate", "", "", "over", "leaves", "", "P95", "TTFT,", "ms", "", "published")
	fmt.Fprintf(w, "%-22s %8s %6s %6s %7s %8s %6s   %7s %8s %6s   %6s %6s %8s %6s   %s\n", "", "blocks32", "leaves", "lru", "marconi", "released", "reuse",
		"marconi", "released", "reuse", "none", "leaves", "released", "reuse", "over blocks32, over leaves")
	for _, s := range sections(sessions) {
		fmt.Fprintln(w, s.title)
		out, err := measure(s.rows, at)
		if err != nil {
			return err
		}
		for i, row := range s.rows {
			out[i].print(w, row)
		}
	}
	return nil
}

func (o outcome) print(w io.Writer, row setting) {
	r, t := o.rate, o.ttft
	line := fmt.Sprintf("  %-20s %7.1f%% %5.1f%% %5.1f%% %6.1f%% %7.1f%% %5.1f%%   %7s %8s %6s   %6.0f %6.0f %8.0f %6.0f   %s", row.name,
		100*r[1], 100*r[2], 100*r[3], 100*r[4], 100*r[5], 100*r[6], more(r[4], r[2]), more(r[5], r[2]), more(r[6], r[2]),
		1e3*t[0], 1e3*t[2], 1e3*t[5], 1e3*t[6], row.published)
	fmt.Fprintln(w, strings.TrimRight(line, " "))
}

func more(x, y float64) string {
	if y == 0 {
		return "-"
	}
	return fmt.Sprintf("%+.0f%%", 100*(x/y-1))
}

// regularities are the lines of the chart.
var regularities = []struct {
	share  float64
	colour string
}{{0, "#1f5fa8"}, {0.5, "#41ab9d"}, {0.8, "#f08c00"}, {1, "#b2182b"}}

// chart draws the hit tokens of the released score over those of leaves, against the capacity.
func chart(sessions int) ([]byte, error) {
	c := svg.Chart{Title: "FLOP-aware eviction against LRU of leaves, by the regular share of pauses", X: "capacity", Y: "hit tokens, ratio"}
	for i, gigabytes := range []float64{5, 10, 20, 40, 60, 80, 100} {
		c.Categories = append(c.Categories, fmt.Sprintf("%g GB", gigabytes))
		var rows []setting
		for _, r := range regularities {
			rows = append(rows, setting{trace: agents(sessions, r.share), model: published, gigabytes: gigabytes})
		}
		out, err := measure(rows, server{flops: 1})
		if err != nil {
			return nil, err
		}
		for k, r := range regularities {
			if i == 0 {
				c.Lines = append(c.Lines, svg.Line{Name: fmt.Sprintf("%g", r.share), Colour: r.colour})
			}
			c.Lines[k].Points = append(c.Lines[k].Points, svg.Point{X: float64(i), Y: out[k].rate[5] / out[k].rate[2]})
		}
	}
	return c.SVG(), nil
}

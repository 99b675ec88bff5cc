// Prefixcache repeats the published evaluation of a prefix cache for hybrids (Marconi, Pan
// et al. 2025) on traces that are made up: the published ones are not at hand. It prints
// hit rates and times to the first token of tuned, lru, blocks32 and no cache beside the
// published figures. Nothing is fitted to these.
package main

import (
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
)

func main() {
	sessions := flag.Int("sessions", 200, "sessions of a trace; of kinds with one request each ten times as many")
	flops := flag.Float64("flops", 5e14, "FLOP/s of prefill (4 A100 at 40 % of their 312e12)")
	queue := flag.Bool("queue", false, "let prompts wait for each other, first come first served")
	flag.Parse()
	if err := run(os.Stdout, *sessions, server{*flops, *queue}); err != nil {
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

// sections vary one thing each. The agents' trace stands for SWEBench, chat for ShareGPT
// and LMSys. Layers that were published for a ratio are not known: 24 SSM layers stay.
func sections(sessions int) []section {
	agent := workload.Options{Kind: "agent", Sessions: sessions, Seed: 1, Rate: 1, Pause: 5}
	with := func(o workload.Options, rate, pause float64) workload.Options {
		o.Rate, o.Pause = rate, pause
		return o
	}
	kind := func(name string, n int) workload.Options {
		return workload.Options{Kind: name, Sessions: n * sessions, Seed: 1, Rate: 1, Pause: -1}
	}
	return []section{
		{"kinds of requests", []setting{
			{"chat, 5 GB", kind("chat", 5), published, 5, "ShareGPT: ×7.3, up to +19.0%; P95 -73.2% of none, -12.8% of lru"},
			{"chat, 20 GB", kind("chat", 5), published, 20, "LMSys: ×4.5, up to +45.6%; P95 -36.9% of none, -17.2% of lru"},
			{"agent, 6 GB", agent, published, 6, "SWEBench: ×34.4, up to +219.7%; P95 -46.8% of none, -24.7% of lru"},
			{"agent, 20 GB", agent, published, 20, ""},
			{"agent, 60 GB", agent, published, 60, ""},
			{"fewshot, 1 GB", kind("fewshot", 10), published, 1, ""},
			{"docs, 5 GB", kind("docs", 10), published, 5, ""},
			{"docs, 15 GB", kind("docs", 10), published, 15, ""}}},
		{"capacity", []setting{
			{"agent, 60 GB", agent, published, 60, "+24.3%"},
			{"agent, 80 GB", agent, published, 80, "+51.5%"},
			{"agent, 100 GB", agent, published, 100, "+68.3%"},
			{"agent, 120 GB", agent, published, 120, "+30.0%"},
			{"agent, 140 GB", agent, published, 140, "+10.0%"}}},
		{"attention : SSM", []setting{
			{"1:2, 12 and 24", agent, hybrid{12, 24, 36, 128}, 60, "×1.135, +5.8%"},
			{"1:4, 6 and 24", agent, hybrid{6, 24, 30, 128}, 60, "×1.666, +26.0%"},
			{"1:8, 3 and 24", agent, hybrid{3, 24, 27, 128}, 60, "×2.6, +59.7%"},
			{"attention only, 28", agent, hybrid{28, 0, 28, 128}, 60, "all three are equal"}}},
		{"state", []setting{
			{"16", agent, hybrid{4, 24, 28, 16}, 60, "×5.7"},
			{"32", agent, hybrid{4, 24, 28, 32}, 60, ""},
			{"64", agent, hybrid{4, 24, 28, 64}, 60, ""},
			{"128", agent, published, 60, "×35.4"}}},
		{"sessions per second", []setting{
			{"0.5", with(agent, 0.5, 5), published, 60, "48.7% hit"},
			{"1", with(agent, 1, 5), published, 60, ""},
			{"2", with(agent, 2, 5), published, 60, "43.0% hit"}}},
		{"seconds between requests", []setting{
			{"5", agent, published, 60, "25.9% hit"},
			{"10", with(agent, 1, 10), published, 60, "24.1% hit"}}},
	}
}

// policies are compared; their names elsewhere are vanilla, vLLM+, SGLang+ and Marconi.
var policies = [...]string{"none", "blocks32", "lru", "tuned"}

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

// run measures all settings, on all cores, and prints them in their order.
func run(w io.Writer, sessions int, at server) error {
	all := sections(sessions)
	var wg sync.WaitGroup
	free := make(chan struct{}, runtime.GOMAXPROCS(0))
	out, errs := make([][]outcome, len(all)), make([][]error, len(all))
	for i, s := range all {
		out[i], errs[i] = make([]outcome, len(s.rows)), make([]error, len(s.rows))
		for j, row := range s.rows {
			wg.Go(func() {
				free <- struct{}{}
				defer func() { <-free }()
				out[i][j], errs[i][j] = row.measure(at)
			})
		}
	}
	wg.Wait()
	fmt.Fprintf(w, "%-26s %8s %6s %6s   %-15s   %6s %8s %6s %6s\n", "", "blocks32", "lru", "tuned", "tuned over", "none", "blocks32", "lru", "tuned")
	fmt.Fprintf(w, "%-26s %22s   %8s %6s   %29s   %s\n", "", "hit rate", "blocks32", "lru", "P95 TTFT, ms", "published: tuned over blocks32, over lru")
	for i, s := range all {
		fmt.Fprintln(w, s.title)
		for j, row := range s.rows {
			if errs[i][j] != nil {
				return fmt.Errorf("%s, %s: %w", s.title, row.name, errs[i][j])
			}
			out[i][j].print(w, row)
		}
	}
	return nil
}

func (o outcome) print(w io.Writer, row setting) {
	line := fmt.Sprintf("  %-24s %7.1f%% %5.1f%% %5.1f%%   %8s %6s   %6.0f %8.0f %6.0f %6.0f   %s", row.name, 100*o.rate[1], 100*o.rate[2], 100*o.rate[3],
		times(o.rate[3], o.rate[1]), more(o.rate[3], o.rate[2]), 1e3*o.ttft[0], 1e3*o.ttft[1], 1e3*o.ttft[2], 1e3*o.ttft[3], row.published)
	fmt.Fprintln(w, strings.TrimRight(line, " "))
}

func times(x, y float64) string {
	if y == 0 {
		return "-"
	}
	return fmt.Sprintf("×%.4g", x/y)
}

func more(x, y float64) string {
	if y == 0 {
		return "-"
	}
	return fmt.Sprintf("%+.1f%%", 100*(x/y-1))
}

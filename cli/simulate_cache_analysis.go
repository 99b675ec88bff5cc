package cli

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/session/prefix"
	draw "github.com/krait-ml/krait/visualize/svg"
)

// kindCost is what layers of a kind cost, and save per byte that they hold of a prefix.
type kindCost struct {
	Kind            string     `json:"kind"`
	PerToken        float64    `json:"flops_per_token"`
	PerTokenSquared float64    `json:"flops_per_token_squared"`
	CacheBytes      int64      `json:"cache_bytes_per_token"`
	StateBytes      int64      `json:"state_bytes"`
	Efficiency      [2]float64 `json:"flops_per_byte"` // of prefixes of efficiencyAt tokens; 0: it holds none
}

var efficiencyAt = [2]int{1000, 10_000}

// kindCosts returns the costs by kind of a graph's layers.
func kindCosts(g *graph.Graph) (list []kindCost) {
	costs := g.PrefillByKind()
	for _, kind := range graph.PrefillKinds {
		p, ok := costs[kind]
		if !ok {
			continue
		}
		m := prefix.Model{FLOPsPerToken: p.PerToken, FLOPsPerTokenSquared: p.PerTokenSquared, CacheBytes: p.CacheBytes, StateBytes: p.StateBytes}
		k := kindCost{Kind: kind, PerToken: p.PerToken, PerTokenSquared: p.PerTokenSquared, CacheBytes: p.CacheBytes, StateBytes: p.StateBytes}
		for i, n := range efficiencyAt {
			if b := m.Bytes(n, true); b > 0 {
				k.Efficiency[i] = m.FLOPs(n) / float64(b)
			}
		}
		list = append(list, k)
	}
	return list
}

// printAnalysis prints the costs by kind of layer, and for each policy what hits and what bytes are
// for.
func (r *cacheReport) printAnalysis(w io.Writer) {
	if r.Kinds != nil {
		fmt.Fprintf(w, "\n%-10s  %12s  %12s  %12s  %12s  %22s\n", "layers", "FLOPs/token", "/token²", "bytes/token", "state bytes", "FLOPs saved per byte")
		fmt.Fprintf(w, "%-10s  %12s  %12s  %12s  %12s  %10s  %10s\n", "", "", "", "", "", count(efficiencyAt[0], "token"), count(efficiencyAt[1], "token"))
		for _, k := range r.Kinds {
			efficiency := [2]string{"–", "–"} // of layers that hold no bytes
			for i, e := range k.Efficiency {
				if e > 0 {
					efficiency[i] = short(e)
				}
			}
			fmt.Fprintf(w, "%-10s  %12s  %12s  %12s  %12s  %10s  %10s\n", k.Kind, short(k.PerToken), short(k.PerTokenSquared), thousands(k.CacheBytes), thousands(k.StateBytes), efficiency[0], efficiency[1])
		}
	}
	for _, x := range r.Results {
		fmt.Fprintf(w, "\n%s\n", x.Policy)
		r.printUse(w, x.Analysis)
		r.printBins(w, x.Analysis)
	}
}

// printUse prints what was admitted and used, and the bytes by kind over time.
func (r *cacheReport) printUse(w io.Writer, a *prefix.Analysis) {
	if a.Held == nil {
		return
	}
	fmt.Fprintf(w, "  used before eviction: %s of %s (%.1f%%), KV cache of %s of %s (%.1f%%)\n",
		thousands(a.StatesUsed), count(int(a.States), "state"), percent(float64(a.StatesUsed), float64(a.States)),
		thousands(a.CacheTokensUsed), count(int(a.CacheTokens), "token"), percent(float64(a.CacheTokensUsed), float64(a.CacheTokens)))
	fmt.Fprintf(w, "  %10s  %12s  %16s  %16s\n", "requests", "seconds", "KV cache, bytes", "states, bytes")
	for i, h := range a.Held {
		if (i+1)%max(1, len(a.Held)/5) == 0 || i == len(a.Held)-1 {
			fmt.Fprintf(w, "  %10s  %12s  %16s  %16s\n", thousands(int64(h.Requests)), fmt.Sprintf("%.2f", h.At), thousands(h.CacheBytes), thousands(h.StateBytes))
		}
	}
}

// printBins prints hit rates, and times to the first token, by the prompt's length.
func (r *cacheReport) printBins(w io.Writer, a *prefix.Analysis) {
	fmt.Fprintf(w, "  %17s  %10s  %14s  %8s", "prompt, tokens", "requests", "hit tokens", "of input")
	if r.Speed > 0 {
		fmt.Fprintf(w, "  %13s  %8s", "TTFT p50, ms", "p95, ms")
	}
	fmt.Fprintln(w)
	for _, b := range a.Bins {
		fmt.Fprintf(w, "  %17s  %10s  %14s  %7.1f%%", thousands(int64(b.From))+" to "+thousands(int64(b.To-1)), thousands(int64(b.Requests)), thousands(b.Hit),
			percent(float64(b.Hit), float64(b.Input)))
		if r.Speed > 0 {
			fmt.Fprintf(w, "  %13.2f  %8.2f", 1e3*b.Median/r.Speed, 1e3*b.P95/r.Speed)
		}
		fmt.Fprintln(w)
	}
}

// heldColours are of the KV cache, of states, and of both.
var heldColours = [...]string{"#1f5fa8", "#d95f0e", "#666666"}

// heldChart draws the bytes by kind over the requests.
func (r *cacheReport) heldChart() []byte {
	x := r.Results[0]
	c := draw.Chart{Title: fmt.Sprintf("%s, %s", filepath.Base(r.Trace), x.Policy), X: "requests", Y: "GB"}
	for i, name := range []string{"KV cache", "states", "capacity"} {
		line := draw.Line{Name: name, Colour: heldColours[i]}
		for _, h := range slices.Concat([]prefix.Held{{}}, x.Analysis.Held) {
			bytes := []int64{h.CacheBytes, h.StateBytes, r.Capacity}[i]
			line.Points = append(line.Points, draw.Point{X: float64(h.Requests), Y: float64(bytes) / 1e9})
		}
		c.Lines = append(c.Lines, line)
	}
	c.Lines[2].Dashes = "4 3"
	return c.SVG()
}

package prefix

import (
	"math"
	"math/bits"
	"slices"
)

// Reused counts what a cache admitted, and how much of it was part of a hit before its eviction.
type Reused struct {
	States          int64 `json:"states"`
	StatesUsed      int64 `json:"states_used"`
	CacheTokens     int64 `json:"cache_tokens"` // of the KV cache
	CacheTokensUsed int64 `json:"cache_tokens_used"`
}

// hit counts the first uses of a node's state and of the rows before a depth.
func (r *Reused) hit(t *Tree, n *node, depth int) {
	if n.state && n.uses == 0 {
		r.StatesUsed++
	}
	for ; n != t.root; n = n.parent {
		if more := min(n.depth, depth) - max(n.parent.depth, int(n.read)); more > 0 {
			r.CacheTokensUsed += int64(more)
			n.read = int32(min(n.depth, depth))
		}
	}
}

// read counts the first use of a block's rows.
func (r *Reused) read(b *block, size int) {
	if !b.read {
		b.read = true
		r.CacheTokensUsed += int64(size)
	}
}

// held returns the bytes of the states, and what was used.
func (t *Tree) held() (states int64, reused Reused) {
	for _, n := range t.nodes {
		if n.state {
			states += t.model.StateBytes
		}
	}
	return states, t.reused
}

func (b *Blocks) held() (states int64, reused Reused) {
	return int64(len(b.queue)) * b.stateBytes, b.reused
}

// Held is what a cache held after a number of requests.
type Held struct {
	Requests   int     `json:"requests"`
	At         float64 `json:"at"` // seconds
	CacheBytes int64   `json:"cache_bytes"`
	StateBytes int64   `json:"state_bytes"`
}

// Bin has the requests with prompts of From to To−1 tokens.
type Bin struct {
	From     int     `json:"from"`
	To       int     `json:"to"`
	Requests int     `json:"requests"`
	Input    int64   `json:"input_tokens"`
	Hit      int64   `json:"hit_tokens"`
	Without  float64 `json:"flops"` // of their prefills, without a cache
	Median   float64 `json:"flops_p50"`
	P95      float64 `json:"flops_p95"` // of their prefills
	flops    []float64
}

// Analysis says where a policy hits, and what for it holds bytes.
type Analysis struct {
	Reused
	Held []Held `json:"held"` // after equal numbers of requests, and all
	Bins []Bin  `json:"bins"` // by powers of two
}

// samples is the number of times at which bytes are taken down.
const samples = 20

// analyst makes an analysis.
type analyst struct {
	Analysis
	m     Model
	every int
}

// took counts a request that a policy has served.
func (a *analyst) took(p Policy, number, all int, r Request, hit int) {
	k := bits.Len(uint(r.InputLen)) - 1
	for len(a.Bins) <= k {
		a.Bins = append(a.Bins, Bin{From: 1 << len(a.Bins), To: 2 << len(a.Bins)})
	}
	b := &a.Bins[k]
	b.Requests++
	b.Input += int64(r.InputLen)
	b.Hit += int64(hit)
	b.Without += a.m.FLOPs(r.InputLen)
	b.flops = append(b.flops, a.m.FLOPs(r.InputLen)-a.m.FLOPs(hit))
	if h, ok := p.(interface{ held() (int64, Reused) }); ok && (number%a.every == 0 || number == all) {
		states, reused := h.held()
		a.Reused = reused
		a.Held = append(a.Held, Held{number, r.At, p.Bytes() - states, states})
	}
}

// end returns the analysis.
func (a *analyst) end() *Analysis {
	a.Bins = slices.DeleteFunc(a.Bins, func(b Bin) bool { return b.Requests == 0 })
	for i := range a.Bins {
		b := &a.Bins[i]
		slices.Sort(b.flops)
		at := func(share float64) float64 { return b.flops[int(math.Ceil(share*float64(len(b.flops))))-1] }
		b.Median, b.P95 = at(0.5), at(0.95)
	}
	return &a.Analysis
}

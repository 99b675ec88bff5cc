package prefix_test

import (
	"math"
	"math/rand/v2"

	"github.com/krait-ml/krait/lab/workload"
	"github.com/krait-ml/krait/session/prefix"
)

// kindTrace draws a trace of a kind with about n requests.
func kindTrace(kind string, n int, seed uint64, rate float64) []prefix.Request {
	per := map[string]float64{"chat": 5, "agent": 22, "fewshot": 1, "docs": 1, "tools": 8}[kind]
	tr, err := workload.Make(workload.Options{Kind: kind, Sessions: max(int(float64(n)/per), 2), Seed: seed, Rate: rate, Pause: -1})
	if err != nil {
		panic(err) // BUG
	}
	return tr
}

// shift spreads a trace from one time to another, and gives prompts a first token.
func shift(tr []prefix.Request, ids int32, from, to float64) (out []prefix.Request) {
	first, last := tr[0].At, tr[len(tr)-1].At
	for _, r := range tr {
		var b prefix.Builder
		b.Append(ids, 1)
		b.AppendTokens(r.Tokens)
		out = append(out, prefix.Request{At: from + (r.At-first)/(last-first)*(to-from), Tokens: b.Tokens(), InputLen: r.InputLen + 1})
	}
	return out
}

// merge merges traces by time, with a request per second.
func merge(a, b []prefix.Request) (out []prefix.Request) {
	for len(a)+len(b) > 0 {
		if len(b) == 0 || len(a) > 0 && a[0].At <= b[0].At {
			out, a = append(out, a[0]), a[1:]
		} else {
			out, b = append(out, b[0]), b[1:]
		}
	}
	for i := range out {
		out[i].At = float64(i)
	}
	return out
}

// fresh returns a new text of lognormal length.
func fresh(rng *rand.Rand, next *int32, median, sigma float64) prefix.Tokens {
	n := max(1, min(100000, int(median*math.Exp(sigma*rng.NormFloat64()))))
	var b prefix.Builder
	b.Append(*next, n)
	*next += int32(n) + 1
	return b.Tokens()
}

// ask returns a request of a text and a question about it.
func ask(about prefix.Tokens, q, a prefix.Tokens, at float64) prefix.Request {
	var b prefix.Builder
	b.AppendTokens(about)
	b.AppendTokens(q)
	n := b.Len()
	b.AppendTokens(a)
	return prefix.Request{At: at, Tokens: b.Tokens(), InputLen: n}
}

// shapeTrace draws a trace of 500 requests and more, of a kind of package workload or a shape that
// it does not have.
func shapeTrace(shape string, seed uint64) []prefix.Request {
	rng := rand.New(rand.NewPCG(seed, 4711))
	rate := 0.2 + 1.8*rng.Float64()
	next := int32(1 << 28)
	kinds := []string{"chat", "agent", "fewshot", "docs", "tools"}
	switch shape {
	case "flood": // a kind, and once or twice a flood of prompts that never come again
		k := kinds[rng.IntN(5)]
		base := shift(kindTrace(k, 700, seed, rate), 7, 0, 1000)
		var f []prefix.Request
		for range 1 + rng.IntN(2) {
			at := 100 + 800*rng.Float64()
			for i := range 60 + rng.IntN(200) {
				f = append(f, ask(fresh(rng, &next, 1500, 1), fresh(rng, &next, 40, 1), fresh(rng, &next, 100, .7), at+float64(i)*0.1))
			}
			if len(f) > 0 {
				base, f = merge(base, f), nil
			}
		}
		return base
	case "cycle": // documents in turn, sometimes another
		n := 10 + rng.IntN(40)
		var docs []prefix.Tokens
		for range n {
			docs = append(docs, fresh(rng, &next, 4000, .8))
		}
		noise := 0.3 * rng.Float64()
		var tr []prefix.Request
		for i := range 600 + rng.IntN(400) {
			d := docs[i%n]
			if rng.Float64() < noise {
				d = fresh(rng, &next, 2000, 1)
			}
			tr = append(tr, ask(d, fresh(rng, &next, 40, 1), fresh(rng, &next, 100, .7), float64(i)))
		}
		return tr
	case "mix": // two kinds at once
		a, b := rng.IntN(5), rng.IntN(5)
		return merge(shift(kindTrace(kinds[a], 450, seed, rate), 7, 0, 1000), shift(kindTrace(kinds[b], 450, seed+1, rate), 8, 0, 1000))
	case "phase": // one kind after the other
		a, b := rng.IntN(5), rng.IntN(5)
		return merge(shift(kindTrace(kinds[a], 450, seed, rate), 7, 0, 550), shift(kindTrace(kinds[b], 450, seed+1, rate), 8, 450, 1000))
	case "zipf": // documents of lasting or drifting popularity, and as many that never come again
		n := 30 + rng.IntN(200)
		var docs []prefix.Tokens
		for range n {
			docs = append(docs, fresh(rng, &next, 1500, 1.3))
		}
		s, drift, once := 0.6+rng.Float64(), rng.IntN(3)*20, rng.Float64()*0.7
		var tr []prefix.Request
		for i := range 600 + rng.IntN(900) {
			if drift > 0 && i%drift == 0 {
				docs = append(docs[1:], docs[0])
			}
			sum := 0.0
			for k := range docs {
				sum += math.Pow(float64(k+1), -s)
			}
			x, k := rng.Float64()*sum, 0
			for x -= math.Pow(1, -s); x > 0 && k < n-1; x -= math.Pow(float64(k+1), -s) {
				k++
			}
			d := docs[k]
			if rng.Float64() < once {
				d = fresh(rng, &next, 1000, 1.3)
			}
			tr = append(tr, ask(d, fresh(rng, &next, 40, 1), fresh(rng, &next, 100, .7), float64(i)))
		}
		return tr
	}
	return kindTrace(shape, 700, seed, rate)
}

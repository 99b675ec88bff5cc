package main

import (
	"fmt"
	"math"
)

// scan generates the recurrence of selective_scan with channels in the lanes, four at a time
// and then one after the other, in the first lane: a channel's sums are in the order of its states.
func scan(f *file) {
	g := f.function("scan", "(y, u, dt, a, h, b, c *float32, tokens, channels, n, ys, us, dts, hs, bs, cs int)",
		"runs h = exp(dt a) h + dt u b, y = Σ h c over n states of channels, for tokens whose rows are ys, us, dts, bs and cs elements apart. Rows of a and h, hs elements apart, have a state of all channels.")
	g.hasConstants()
	names := []string{"y", "u", "dt", "b", "c"}
	rows := map[string]*register{}
	for _, name := range names {
		rows[name] = g.param(name)
	}
	hs, tokens := g.stride("hs", 4), g.param("tokens")
	g.at("token")
	place := map[string]*register{}
	for _, name := range names[:3] {
		place[name] = g.rows(rows[name], nil, 1)[0]
	}
	rates, states, left := g.param("a"), g.param("h"), g.param("channels")
	for _, lanes := range []int{4, 1} {
		g.loop(left, lanes, func() {
			dt := g.load(place["dt"], 4*lanes)
			in := g.of("fmul", "4s", dt, g.load(place["u"], 4*lanes))
			log := g.of("fmul", "4s", dt, g.c(math.Log2E))
			rest := g.new() // what rounding took from that
			g.arm("fneg 4s 4s", rest, log)
			g.fma("4s", rest, dt, g.c(math.Log2E))
			g.fma("4s", rest, dt, g.c(log2eRest))
			sum := g.zero()
			a, h, b, c, n := g.rows(rates, nil, 1)[0], g.rows(states, nil, 1)[0], g.rows(rows["b"], nil, 1)[0], g.rows(rows["c"], nil, 1)[0], g.param("n")
			g.loop(n, 1, func() {
				decay := g.power(g.peek(a, 4*lanes), log, rest)
				next := g.new()
				g.arm("fmul 4s 4s s[0]", next, in, g.load(b, 4))
				g.fma("4s", next, decay, g.peek(h, 4*lanes))
				g.do(moves[4*lanes]+" F%d, (R%d)", next, h)
				g.arm("fmla 4s 4s s[0]", sum, next, g.load(c, 4))
				g.do("ADD R%d, R%d, R%d", hs, a, a)
				g.do("ADD R%d, R%d, R%d", hs, h, h)
			})
			g.put(sum, place["y"], 4*lanes)
			for _, at := range []*register{rates, states} {
				g.do(fmt.Sprintf("ADD $%d, R%%d, R%%d", 4*lanes), at, at)
			}
		})
	}
	for _, name := range names {
		g.do("ADD R%d, R%d, R%d", g.stride(name+"s", 4), rows[name], rows[name])
	}
	g.countdown(tokens, 1, "BNE", "token")
}

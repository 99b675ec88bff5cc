package prefix

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// wait is a wait of a node that counts: of a class, up to an age, until the node was used or not.
type wait struct {
	family, class int
	age           int
	used          bool
	weight        float64
}

func waitOf(n *node, age int, used bool) wait {
	return wait{classOf(n) / depthsEach, classOf(n), age, used, 1}
}

// TestWaits: densities are what the list of all waits says, by ages read off a table.
func TestWaits(t *testing.T) {
	edges := []int{1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512} // of ages 0, 2, 3, …
	bucket := func(age int) int {
		at := len(edges) - 1
		for edges[at] > age {
			at--
		}
		if at == 0 {
			return 0
		}
		return at + 1 // no age of whole requests is in bucket 1
	}
	rng := rand.New(rand.NewPCG(1, 42))
	h, list := newHazard(), []wait(nil)
	first := h.all // what is expected before any wait
	nodes := make([]*node, 12)
	for i := range nodes {
		nodes[i] = &node{kind: kind(i % 3), depth: 100 << (i % 4), uses: i % 2}
	}
	request := 0
	for range 40 {
		for range 30 {
			request += rng.IntN(4)
			n := nodes[rng.IntN(len(nodes))]
			used := rng.IntN(2) == 0
			if age := max(request-n.since, 1); request > n.since || used {
				list = append(list, waitOf(n, age, used))
			}
			h.count(n, request, used)
		}
		now := slices.Clone(list)
		waiting := []claim{{since: request - 3, class: idle}} // that one does not count
		for _, n := range nodes {
			waiting = append(waiting, claim{since: n.since, class: int32(classOf(n))})
			if request > n.since {
				now = append(now, waitOf(n, request-n.since, false))
			}
		}
		h.refresh(waiting, request)
		for _, n := range nodes {
			got := h.of(classOf(n), request-n.since)
			if want := densityOf(now, first, n, bucket, max(request-n.since, 1)); math.Abs(got-want) > 1e-9*want {
				t.Fatalf("request %d: a node that waits for %d requests has a density of %g, want %g", request, request-n.since, got, want)
			}
		}
		for i := range list {
			list[i].weight *= 0.99
		}
		first.scale(0.99)
	}
}

// densityOf is the density of a class at an age, from a list of waits.
func densityOf(list []wait, first waits, n *node, bucket func(int) int, age int) float64 {
	c := classOf(n)
	sum := func(of func(wait) bool) (w waits) {
		for _, x := range list {
			if !of(x) {
				continue
			}
			for r := 1; r <= x.age; r++ {
				w.time[bucket(r)] += x.weight
			}
			if x.age >= 2 { // the first request is half of ages from 1 to 1.5, half of those to 2
				w.time[0], w.time[1] = w.time[0]-x.weight/2, w.time[1]+x.weight/2
			}
			if x.used {
				w.uses[bucket(x.age)] += x.weight
			}
			w.number += x.weight
		}
		return w
	}
	extend := func(w, by waits) waits {
		share := 1.0
		if by.number > 100 {
			share = 100 / by.number
		}
		for b := range w.uses {
			w.uses[b] += share * by.uses[b]
			w.time[b] += share * by.time[b]
		}
		w.number += 100
		return w
	}
	all := sum(func(wait) bool { return true })
	for b := range all.uses {
		all.uses[b] += first.uses[b]
		all.time[b] += first.time[b]
	}
	all.number += first.number
	family := extend(sum(func(x wait) bool { return x.family == c/depthsEach }), all)
	class := extend(sum(func(x wait) bool { return x.class == c }), family)
	best, uses, time := 0.0, 0.0, 0.0
	for b := bucket(age); b < len(class.uses); b++ {
		uses += class.uses[b]
		time += class.time[b]
		best = max(best, uses/time)
	}
	return best
}

// TestClassOf: nodes of a class have one kind, fan-out, uses and power of four of tokens.
func TestClassOf(t *testing.T) {
	seen := map[int][4]int{}
	for k := range 3 {
		for fan := range 5 {
			for uses := range 6 {
				for octave := range 16 { // depths from 32 tokens on
					n := &node{kind: kind(k), uses: uses, depth: 32 << octave, fan: fan}
					want := [4]int{k, min(fan, 2), min(uses, 3), min(octave/2, 7)}
					class := classOf(n)
					if was, ok := seen[class]; ok && was != want {
						t.Fatalf("class %d has %v and %v", class, was, want)
					}
					seen[class] = want
				}
			}
		}
	}
	if len(seen) != 3*3*4*8 {
		t.Errorf("%d classes, want %d", len(seen), 3*3*4*8)
	}
}

package passes

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/krait-ml/krait/graph"
)

// TestFewestLaunches: of random collectives of one to three kinds that need each other's
// results, merge's plan and the search's count are the least of all ways to number their
// launches; the plan keeps kinds and order.
func TestFewestLaunches(t *testing.T) {
	waits := 0
	for seed := range uint64(400) {
		rng := rand.New(rand.NewPCG(seed, 9))
		all := make([]travel, 1+rng.IntN(6))
		kinds := 1 + rng.IntN(3)
		for i := range all {
			all[i].kind = fmt.Sprint(rng.IntN(kinds))
			for j := range i {
				if rng.IntN(3) == 0 {
					all[i].needs = append(all[i].needs, j)
				}
			}
		}
		best := leastLaunches(all)
		plan := shortest(all)
		if got := slices.Max(plan); got != best {
			t.Errorf("seed %d: a plan of %d launches, the least is %d: %v", seed, got, best, plan)
		}
		for i, a := range all {
			for j := range i {
				if plan[i] == plan[j] && a.kind != all[j].kind || slices.Contains(a.needs, j) && plan[i] <= plan[j] {
					t.Errorf("seed %d: %d and %d are in launches %d and %d", seed, j, i, plan[j], plan[i])
				}
			}
		}
		if got := searchLaunches(all); got != best {
			t.Errorf("seed %d: the search counts %d launches, the least is %d", seed, got, best)
		}
		if greedy := firstKinds(all); greedy > best {
			waits++
		}
	}
	if waits == 0 {
		t.Error("it is always the least to let the first kind go that can; the test says nothing")
	}
}

// leastLaunches numbers launches in every way.
func leastLaunches(all []travel) int {
	best, at := len(all), make([]int, len(all))
	var rest func(i int)
	rest = func(i int) {
		if i == len(all) {
			used := slices.Clone(at)
			slices.Sort(used)
			best = min(best, len(slices.Compact(used)))
			return
		}
		for at[i] = range len(all) {
			ok := true
			for j := range i {
				ok = ok && (at[i] != at[j] || all[i].kind == all[j].kind) && (at[i] > at[j] || !slices.Contains(all[i].needs, j))
			}
			if ok {
				rest(i + 1)
			}
		}
	}
	rest(0)
	return best
}

// searchLaunches is the least over the states that the search goes through, which takes
// the collectives in turn.
func searchLaunches(all []travel) int {
	joints := map[string]graph.Joint{"0": {Rows: 1}, "1": {Rows: 2}, "2": {Rows: 3}}
	states := []*state{{copies: make([][]there, len(all))}}
	for i, a := range all {
		next := frontier{at: map[string][]*state{}}
		for _, st := range states {
			after := 0
			for _, j := range a.needs {
				after = max(after, st.copies[j][0].after)
			}
			st.joinOrAdd(joints[a.kind], after, func(st *state, at int) {
				st.copy(i, there{0, at})
				next.add(st)
			})
		}
		states = next.states()
	}
	best := len(all)
	for _, st := range states {
		best = min(best, st.cost.launches)
	}
	return best
}

// firstKinds counts launches where the first that can go lets its kind go.
func firstKinds(all []travel) int {
	plan := make([]int, len(all))
	at := 0
	for slices.Contains(plan, 0) {
		at++
		plan = oneMore(all, plan, at)[0]
	}
	return at
}

package passes

import (
	"fmt"
	"sort"
	"strconv"
	"strings"

	"github.com/krait-ml/krait/graph"
)

// Pipeline is how many pipeline stages and replicas run a compiled graph. The zero value is one.
type Pipeline struct {
	Stages   int    // 0: one, or those of At
	At       string // the numbers of the blocks at which stages after the first begin; empty: by cost
	Replicas int    // 0: one
}

// Pipeline is that of the sharding.
func (s Sharding) Pipeline() Pipeline { return Pipeline{s.Stages, s.StagesAt, s.Replicas} }

// Cut returns the first blocks of the stages after the first, for a compiled graph.
func (p Pipeline) Cut(g *graph.Graph) ([]string, error) {
	switch {
	case p.Stages < 0 || p.Replicas < 0 || g.Ranks*max(1, p.Stages)*max(1, p.Replicas) > graph.MaxMesh:
		return nil, fmt.Errorf("%d ranks in %d pipeline stages and %d replicas; there may be %d ranks in all", g.Ranks, p.Stages, p.Replicas, graph.MaxMesh)
	case p.At == "" && p.Stages <= 1:
		return nil, nil
	case p.At == "":
		return CutStages(g, p.Stages)
	}
	first, err := CutStagesAt(g, p.At)
	if n := len(first) + 1; err == nil && p.Stages != 0 && p.Stages != n {
		return nil, fmt.Errorf("%d pipeline stages, and %d by the blocks %s at which they begin: give one of them", p.Stages, n, p.At)
	}
	return first, err
}

// stages returns the stage of each block; nil if there is one.
func (p Pipeline) stages(g *graph.Graph) (map[string]int, error) {
	first, err := p.Cut(g)
	if err != nil || len(first) == 0 {
		return nil, err
	}
	of, stage := map[string]int{}, 0
	for _, b := range g.Blocks() {
		if stage < len(first) && b == first[stage] {
			stage++
		}
		of[b] = stage
	}
	return of, nil
}

// CutStages returns the first blocks of all pipeline stages but the first, layers.N, so that the
// most expensive stage is as cheap as it can be. The cost of a block is the bytes that a decode
// step of one sequence reads and writes there, mostly weights: a shared block counts wherever it is
// used, the embedding in the first block, the head in the last.
func CutStages(g *graph.Graph, stages int) ([]string, error) {
	blocks := g.Blocks()
	if stages < 1 || stages > len(blocks) {
		return nil, fmt.Errorf("%d pipeline stages of a model of %d blocks; there may be from 1 to %d", stages, len(blocks), len(blocks))
	}
	first := make([]string, 0, stages-1)
	for _, i := range cutEvenly(blockCosts(g, blocks), stages) {
		first = append(first, blocks[i])
	}
	return first, nil
}

// CutStagesAt reads where stages begin: the numbers of blocks, such as 10,20,31.
func CutStagesAt(g *graph.Graph, text string) (first []string, err error) {
	blocks, last := g.Blocks(), 0
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(part))
		switch {
		case err != nil:
			return nil, fmt.Errorf("stages %q: %q is not the number of a block; give those at which stages after the first begin, such as 10,20", text, part)
		case n <= last || n >= len(blocks):
			return nil, fmt.Errorf("stages %q: a stage cannot begin at block %d; the numbers must rise, from 1 to %d", text, n, len(blocks)-1)
		}
		first, last = append(first, blocks[n]), n
	}
	return first, nil
}

// blockCosts is the cost of each block, and of what is outside of all in the first or the last.
func blockCosts(g *graph.Graph, blocks []string) []float64 {
	number := map[string]int{}
	for i, b := range blocks {
		number[b] = i
	}
	one := graph.Sizes{Tokens: 1, Seqs: 1, Rows: 1, Cached: 1, Pairs: 1, Largest: 1}
	costs, after := make([]float64, len(blocks)), make([]bool, g.Len()) // by value: it depends on a block
	for _, n := range g.Nodes {
		i, inBlock := number[n.Block()]
		depends := inBlock
		for _, v := range n.Args {
			depends = depends || after[v.ID]
		}
		if !inBlock && depends {
			i = len(blocks) - 1
		}
		for _, v := range n.Results {
			after[v.ID] = depends && n.Op.Class != graph.Leaf
		}
		c := n.Cost()
		costs[i] += c.Read.Float(one) + c.Write.Float(one)
	}
	return costs
}

// cutEvenly cuts costs in n runs, none empty, so that the largest sum is the least that is
// possible, and returns where the runs after the first begin. Dynamic programming over the
// prefixes: the best of s runs of the first b costs grows with b, so that the last cut is found by
// bisection.
func cutEvenly(costs []float64, n int) []int {
	sums := make([]float64, len(costs)+1)
	for i, c := range costs {
		sums[i+1] = sums[i] + c
	}
	best := append([]float64(nil), sums...) // of runs so far, by the length of the prefix
	cuts := make([][]int, n)                // by runs: where the last begins
	for s := 1; s < n; s++ {
		next := make([]float64, len(sums))
		cuts[s] = make([]int, len(sums))
		for b := s + 1; b < len(sums); b++ {
			k := s + sort.Search(b-1-s, func(k int) bool { return best[s+k] >= sums[b]-sums[s+k] })
			if k > s && max(best[k-1], sums[b]-sums[k-1]) <= max(best[k], sums[b]-sums[k]) {
				k--
			}
			next[b], cuts[s][b] = max(best[k], sums[b]-sums[k]), k
		}
		best = next
	}
	out := make([]int, n-1)
	for s, b := n-1, len(costs); s > 0; s-- {
		b = cuts[s][b]
		out[s-1] = b
	}
	return out
}

package reference

import (
	"math"
	"slices"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

var _ = kernels.Register(Kernels, kernels.Set{"choose": whole(choose)})

// choose takes a token of each row, or says why there is none.
func choose(c *kernels.Call) {
	logits, seen := &c.Args[0], &c.Args[2]
	for i := range logits.Rows() {
		choice, ok := kernels.ChoiceOf(&c.Args[1], i, logits.Cols)
		scores := make([]float64, logits.Cols)
		for id := range scores {
			scores[id] = at(logits, i, id)
		}
		id := int32(graph.BadChoice)
		if ok {
			penalise(scores, choice.Penalty, seen.RowOfInts(i), logits.DType)
			id = draw(scores, choice)
		}
		set(&c.Results[0], i, 0, float64(id))
	}
}

// penalise lowers the scores of the tokens seen. Of f32 logits they are f32, and
// what is too large for it is its largest.
func penalise(scores []float64, penalty float64, seen []int32, d graph.DType) {
	for id, x := range scores {
		if !kernels.Seen(seen, id) || penalty == 0 || math.IsInf(x, 0) {
			continue
		}
		if x > 0 {
			x /= penalty
		} else {
			x *= penalty
		}
		if d == graph.F32 && x == x {
			x = float64(float32(max(-math.MaxFloat32, min(x, math.MaxFloat32))))
		}
		scores[id] = x
	}
}

// draw chooses among all that the filters leave: the first of which the
// probabilities up to it, by ids, are above the random number.
func draw(scores []float64, c kernels.Choice) int32 {
	p := probabilities(scores, c)
	if p == nil {
		return graph.BrokenLogits
	}
	id, sum := int32(graph.NoToken), 0.0
	for i, w := range p {
		if w == 0 {
			continue
		}
		id = int32(i) // the last one stays where rounding leaves some of the number
		if sum += w; sum > c.Uniform {
			break
		}
	}
	return id
}

// probabilities are those with which each token is chosen: none where none is left,
// nil where a score is NaN or +Inf.
func probabilities(scores []float64, c kernels.Choice) []float64 {
	if slices.ContainsFunc(scores, func(x float64) bool { return math.IsNaN(x) || math.IsInf(x, 1) }) {
		return nil
	}
	p := make([]float64, len(scores))
	order := make([]int, 0, len(scores)) // best first, of equal ones the lowest id
	for id, x := range scores {
		if !math.IsInf(x, -1) {
			order = append(order, id)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case scores[a] > scores[b]:
			return -1
		case scores[a] < scores[b]:
			return 1
		}
		return 0
	})
	switch {
	case len(order) == 0:
		return p
	case c.Temperature == 0:
		p[order[0]] = 1
		return p
	}
	if k := c.TopK; k > 0 && k < len(order) {
		for k < len(order) && scores[order[k]] == scores[order[k-1]] {
			k++
		}
		order = order[:k]
	}
	weigh(p, scores, order, c)
	return p
}

// weigh gives the tokens in order their share: of the softmax of their scores over
// the temperature, up to top-p.
func weigh(p, scores []float64, order []int, c kernels.Choice) {
	total := 0.0
	for _, id := range order {
		p[id] = math.Exp((scores[id] - scores[order[0]]) / c.Temperature)
		total += p[id]
	}
	if c.TopP > 0 && c.TopP < 1 {
		reached := 0.0
		for _, id := range order {
			if reached >= c.TopP*total {
				p[id] = 0
			}
			reached += p[id]
		}
		total = 0
		for _, id := range order {
			total += p[id]
		}
	}
	for _, id := range order {
		p[id] /= total
	}
}

// MayChoose reports whether choose may give a token for a row of f32 logits where it
// knows sums of probabilities to eps only: whether it is the one of a top-p and a
// random number so close to those given.
func MayChoose(logits []float32, c kernels.Choice, seen []int32, id int32, eps float64) bool {
	scores := make([]float64, len(logits))
	for i, x := range logits {
		scores[i] = float64(x)
	}
	penalise(scores, c.Penalty, seen, graph.F32)
	for _, off := range []float64{0, -eps, eps} {
		near := c
		if c.TopP > 0 && c.TopP < 1 {
			near.TopP = max(math.SmallestNonzeroFloat64, c.TopP+off)
		}
		p := probabilities(scores, near)
		if p == nil || slices.Max(p) == 0 {
			return id == draw(scores, near)
		}
		if id < 0 || int(id) >= len(p) {
			return false
		}
		before := 0.0
		for _, w := range p[:id] {
			before += w
		}
		if c.Temperature == 0 || p[id] > 0 && before <= c.Uniform+eps && before+p[id] >= c.Uniform-eps {
			return p[id] > 0
		}
	}
	return false
}

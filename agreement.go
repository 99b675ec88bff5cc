package krait

import (
	"cmp"
	"context"
	"fmt"
	"slices"
)

// Agreement compares what two models put first, over the tokens of a text. The shares
// are of the tokens after which something holds. Published figures for rounded
// payloads are Top1 and Top5Ordered, and one without order whose exact meaning is not
// published.
type Agreement struct {
	Tokens        int     `json:"tokens"`
	Top1          float64 `json:"top1"`           // both put the same token first
	Top5Ordered   float64 `json:"top5_ordered"`   // the five most likely tokens are the same, in the same order
	Top5Set       float64 `json:"top5_same_set"`  // the five most likely tokens are the same, in any order
	Top5Places    float64 `json:"top5_places"`    // mean share of the five places that hold the same token
	Top5Unordered float64 `json:"top5_unordered"` // mean share of the five most likely tokens that both have
}

// Agree runs two models over the same windows of token ids, which each start
// from an empty state, and compares their logits after every token but the last
// of a window.
func Agree(ctx context.Context, a, b *Model, ids []int, o Evaluate) (*Agreement, error) {
	if a.Vocab() != b.Vocab() || a.Vocab() < 5 {
		return nil, fmt.Errorf("vocabularies of %d and %d: they must be equal, and at least 5", a.Vocab(), b.Vocab())
	}
	if o.Window == 0 {
		o.Window = len(ids)
	}
	if o.Window < 2 || len(ids) < 2 {
		return nil, fmt.Errorf("%d tokens in windows of %d: at least 2 are needed, nothing follows the last of a window", len(ids), o.Window)
	}
	var sum Agreement
	var err [2]error
	var s [2]*Sequence
	for i, m := range []*Model{a, b} {
		if s[i], err[i] = m.NewSequence(); err[i] != nil {
			return nil, err[i]
		}
		defer s[i].Close()
	}
	for start := 0; start+1 < len(ids); start += o.Window {
		window := ids[start:min(start+o.Window, len(ids))]
		if err := agreeWindow(ctx, s, window[:len(window)-1], &sum); err != nil {
			return nil, err
		}
		if o.Progress != nil {
			o.Progress(start+len(window), len(ids))
		}
	}
	sum.mean()
	return &sum, nil
}

func agreeWindow(ctx context.Context, s [2]*Sequence, ids []int, sum *Agreement) error {
	for i := range s {
		if err := s[i].Reset(); err != nil {
			return err
		}
	}
	chunk := max(1, min(prefillChunk, maxLogits/s[0].m.Vocab()))
	for tokens := range slices.Chunk(ids, chunk) {
		var top [2][][5]int
		for i := range s {
			var err error
			if top[i], err = s[i].topFive(ctx, tokens); err != nil {
				return err
			}
		}
		for i, x := range top[0] {
			sum.add(x, top[1][i])
		}
	}
	return nil
}

// topFive feeds tokens and lists the five most likely next ones after each.
func (s *Sequence) topFive(ctx context.Context, tokens []int) ([][5]int, error) {
	out := make([][5]int, len(tokens))
	order := make([]int, s.m.Vocab())
	err := s.every(ctx, tokens, func(i int, logits []float32) { out[i] = firstFive(order, logits) })
	return out, err
}

// firstFive lists the ids of the five largest logits; of equal ones the smaller id
// comes first. It sorts in order, which has room for all ids.
func firstFive(order []int, logits []float32) (five [5]int) {
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Or(cmp.Compare(logits[b], logits[a]), a-b) })
	copy(five[:], order)
	return five
}

// add counts one token; what becomes a share is a sum until the end.
func (a *Agreement) add(x, y [5]int) {
	places, both := 0, 0
	for i := range x {
		if x[i] == y[i] {
			places++
		}
		if slices.Contains(y[:], x[i]) {
			both++
		}
	}
	a.Tokens++
	a.Top5Places += float64(places) / 5
	a.Top5Unordered += float64(both) / 5
	if x[0] == y[0] {
		a.Top1++
	}
	if places == 5 {
		a.Top5Ordered++
	}
	if both == 5 {
		a.Top5Set++
	}
}

// AgreementOf compares lists of the five most likely tokens, of two models after the same
// tokens. Without any all shares are 0.
func AgreementOf(a, b [][5]int) Agreement {
	var sum Agreement
	for i := range a {
		sum.add(a[i], b[i])
	}
	sum.mean()
	return sum
}

// TopFive lists the ids of the five largest logits; of equal ones the smaller id comes first.
// There must be five at least.
func TopFive(logits []float32) [5]int { return firstFive(make([]int, len(logits)), logits) }

// mean makes shares of sums.
func (a *Agreement) mean() {
	for _, share := range []*float64{&a.Top1, &a.Top5Ordered, &a.Top5Set, &a.Top5Places, &a.Top5Unordered} {
		*share /= float64(max(1, a.Tokens))
	}
}

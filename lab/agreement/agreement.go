// Package agreement measures how often two models rank the same tokens first, over the tokens of
// a text: what rounding payloads, states or weights changes.
package agreement

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/krait-ml/krait"
)

// Agreement compares the most probable next tokens of two models. All but Tokens are shares of the
// tokens of a text. Published figures for rounded payloads are Top1, Top5Ordered, and an unordered
// one whose exact definition is not published.
type Agreement struct {
	Tokens        int     `json:"tokens"`
	Top1          float64 `json:"top1"`           // the same token is first
	Top5Ordered   float64 `json:"top5_ordered"`   // the five most probable tokens are the same, in order
	Top5Set       float64 `json:"top5_same_set"`  // the same in any order
	Top5Places    float64 `json:"top5_places"`    // mean share of the five ranks that hold the same token
	Top5Unordered float64 `json:"top5_unordered"` // mean share of the five most probable tokens in both lists
}

// Measure runs two models over the same windows of token ids, each from an empty state, and
// compares their logits after every token but the last of a window.
func Measure(ctx context.Context, a, b *krait.Model, ids []int, o krait.Evaluate) (*Agreement, error) {
	if a.Vocab() != b.Vocab() || a.Vocab() < 5 {
		return nil, fmt.Errorf("vocabularies of %d and %d tokens; they must be equal, and at least 5", a.Vocab(), b.Vocab())
	}
	window := cmp.Or(o.Window, len(ids))
	if window < 2 || len(ids) < 2 {
		return nil, fmt.Errorf("%d tokens in windows of %d; at least 2 are needed, nothing follows the last of a window", len(ids), window)
	}
	var s [2]*krait.Sequence
	for i, m := range []*krait.Model{a, b} {
		var err error
		if s[i], err = m.NewSequence(); err != nil {
			return nil, err
		}
		defer s[i].Close()
	}
	var sum Agreement
	done := 0
	for part := range slices.Chunk(ids, window) {
		if len(part) > 1 {
			if err := sum.addWindow(ctx, s, part[:len(part)-1]); err != nil {
				return nil, err
			}
		}
		if done += len(part); o.Progress != nil {
			o.Progress(done, len(ids))
		}
	}
	sum.mean()
	return &sum, nil
}

// chunkTokens is how many tokens' logits are in memory at a time.
const chunkTokens = 64

func (a *Agreement) addWindow(ctx context.Context, s [2]*krait.Sequence, ids []int) error {
	for i := range s {
		if err := s[i].Reset(); err != nil {
			return err
		}
	}
	for tokens := range slices.Chunk(ids, chunkTokens) {
		all := make([]int, len(tokens))
		for i := range all {
			all[i] = i
		}
		var r [2]*krait.FeedResult
		for i := range s {
			var err error
			if r[i], err = s[i].Feed(ctx, tokens, krait.Selection{Logits: all}); err != nil {
				return err
			}
		}
		for i, logits := range r[0].Logits {
			a.add(TopFive(logits), TopFive(r[1].Logits[i]))
		}
	}
	return nil
}

// TopFive returns the ids of the five largest logits, the smaller id first among equal ones. There
// must be at least five.
func TopFive(logits []float32) (five [5]int) {
	order := make([]int, len(logits))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Or(cmp.Compare(logits[b], logits[a]), a-b) })
	copy(five[:], order)
	return five
}

// add counts one token; shares are sums until mean.
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

// Of compares lists of the five most probable tokens of two models after the same tokens. All
// shares of empty lists are 0.
func Of(a, b [][5]int) Agreement {
	var sum Agreement
	for i := range a {
		sum.add(a[i], b[i])
	}
	sum.mean()
	return sum
}

func (a *Agreement) mean() {
	for _, share := range []*float64{&a.Top1, &a.Top5Ordered, &a.Top5Set, &a.Top5Places, &a.Top5Unordered} {
		*share /= float64(max(1, a.Tokens))
	}
}

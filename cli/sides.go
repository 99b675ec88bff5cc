package cli

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/krait-ml/krait"
	"github.com/spf13/cobra"
)

// diffFlag adds --diff, for commands that compare two ways to shard a model.
func diffFlag(c *cobra.Command, diff *[]string) {
	c.Flags().StringSliceVar(diff, "diff", nil, "compare two strategies or rank counts: channel,context or 2,8")
	detail(c, "diff", "each is a strategy, a number of ranks, or both, as channel@2,channel@8.")
}

// sideOf returns the sharding of one side of --diff: s with its strategy, its ranks, or both.
func sideOf(s krait.Sharding, text string) (krait.Sharding, error) {
	strategy, ranks, both := strings.Cut(text, "@")
	if n, err := strconv.Atoi(strategy); err == nil && !both {
		strategy, ranks = "", strconv.Itoa(n)
	}
	if ranks != "" || both {
		n, err := strconv.Atoi(ranks)
		if err != nil || n < 1 {
			return s, fmt.Errorf("--diff: %q is no number of ranks above 0; write channel@4", ranks)
		}
		s.Ranks = n
	}
	if strategy != "" {
		s.Strategy = strategy
	}
	if s.Ranks == 0 {
		return s, fmt.Errorf("--diff: %s has no ranks; give --tp, or write %[1]s@4", text)
	}
	return s, nil
}

// sides makes both sides of --diff, and returns them with their names.
func sides[T any](diff []string, s krait.Sharding, of func(krait.Sharding) (T, error)) (a, b T, names [2]string, err error) {
	if len(diff) != 2 {
		return a, b, names, fmt.Errorf("--diff has %s; it must have two, as channel,context or 2,8", count(len(diff), "part"))
	}
	for i, to := range []*T{&a, &b} {
		side, err := sideOf(s, diff[i])
		if err != nil {
			return a, b, names, err
		}
		if *to, err = of(side); err != nil {
			return a, b, names, fmt.Errorf("--diff %s: %w", diff[i], err)
		}
		names[i] = sideName(side)
	}
	return a, b, names, nil
}

// sideName is what a side is called, as on pages of explain: 8 ranks, channel.
func sideName(s krait.Sharding) string {
	name := count(s.Ranks, "rank")
	if s.Ranks > 1 {
		name += ", " + cmp.Or(s.Place, s.Strategy, "channel")
	}
	return name
}

package traffic

import (
	"cmp"
	"fmt"

	"github.com/krait-ml/krait/exec/virtual"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lab/simulate"
	"github.com/krait-ml/krait/passes"
	"github.com/krait-ml/krait/session"
	"github.com/krait-ml/krait/session/prefix"
)

// Deploy returns a number of servers of a model, each with the plan of its memory on the ranks of
// the options. The graph has the states' formats.
func Deploy(number int, g *graph.Graph, p passes.Options, d *virtual.Device, o session.Options) (Server, error) {
	m, err := simulate.Compile(g, p, d)
	if err != nil {
		return Server{}, err
	}
	s := Server{Number: number, Ranks: len(m.Plan.Ranks), Clock: m.Steps()}
	if s.Limits, err = m.Limits(o); err != nil {
		return Server{}, fmt.Errorf("on %d ranks: %w", s.Ranks, err)
	}
	if o.PrefixCache > 0 {
		c := g.Prefill()
		s.Policy, s.Capacity = cmp.Or(o.PrefixPolicy, prefix.Default), o.PrefixCache
		s.Model = prefix.Model{FLOPsPerToken: c.PerToken, FLOPsPerTokenSquared: c.PerTokenSquared,
			CacheBytes: c.CacheBytes, StateBytes: c.StateBytes, Grain: cmp.Or(o.PrefixGrain, prefix.Grain)}
	}
	return s, nil
}

// StateBytes returns the bytes that a state of a model has, for a [Link].
func StateBytes(g *graph.Graph) func(tokens int) int64 {
	c := g.Prefill()
	return func(tokens int) int64 { return c.StateBytes + int64(tokens)*c.CacheBytes }
}

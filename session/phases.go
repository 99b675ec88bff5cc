package session

import (
	"cmp"
	"fmt"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/passes"
)

// Lower makes the schedules of a graph that was compiled by a sharding, with pieces of a number of
// tokens; 0: [lowering.PieceTokens]. They are for a device; nil: for any.
func Lower(g *graph.Graph, s passes.Sharding, pieceTokens int, d exec.Device) ([]*lowering.Schedule, error) {
	if pieceTokens < 0 || pieceTokens > graph.MaxPiece {
		return nil, fmt.Errorf("pieces of %d tokens; the size must be from 1 to %d, or 0 for %d", pieceTokens, graph.MaxPiece, lowering.PieceTokens)
	}
	p := s.Pipeline()
	first, err := p.Cut(g)
	if err != nil {
		return nil, err
	}
	chains, ok := d.(exec.Chains)
	return lowering.LowerStages(g, cmp.Or(pieceTokens, lowering.PieceTokens), lowering.Stages{First: first, Replicas: p.Replicas, Chain: ok && chains.Chains()})
}

// NewPrefill compiles a graph for prefill, if a sharding has a strategy for it; otherwise the
// result is nil.
func NewPrefill(g *graph.Graph, s passes.Sharding, pieceTokens int, d exec.Device) (*exec.Prefill, error) {
	s, err := s.Resolve(g)
	of, ok := s.ForPrefill()
	if !ok || err != nil {
		return nil, err
	}
	compiled, err := of.Compile(g)
	if err != nil {
		return nil, fmt.Errorf("prefill: %w", err)
	}
	list, err := Lower(compiled, of, pieceTokens, d)
	return &exec.Prefill{Schedules: list, Verify: CheckPayloads(compiled)}, err
}

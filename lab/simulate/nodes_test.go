package simulate_test

import (
	"math"
	"testing"

	"github.com/krait-ml/krait/checkpoint/synth"
	"github.com/krait-ml/krait/cost"
	"github.com/krait-ml/krait/exec/virtual"
	"github.com/krait-ml/krait/internal/embedded"
	"github.com/krait-ml/krait/lab/simulate"
	"github.com/krait-ml/krait/passes"
)

// roundNodes is hardware whose kernels take no time: nodes of 8 ranks and 2 rails. Within a node a
// ring starts after 1 second, a step takes 2, and a rank sends 512 bytes per second; between nodes
// a ring starts after 5, a step takes 10, and a rail carries 256 bytes per second.
func roundNodes() *cost.Profile {
	is := func(v float64) cost.Figure { return cost.Figure{Value: v} }
	return &cost.Profile{
		Name:    "round",
		Memory:  cost.Memory{Capacity: is(1 << 50), Bandwidth: is(1e300), Achieved: is(1)},
		Compute: map[string]cost.Compute{"f32": {Peak: is(1e300), Achieved: is(1)}},
		Link:    cost.Link{Algorithms: []cost.Algorithm{{Name: "ring", Protocol: "p", Base: is(1), Step: is(2), Bandwidth: is(512)}}},
		Network: &cost.Network{Ranks: is(8), Rails: is(2), Link: cost.Link{Algorithms: []cost.Algorithm{{Name: "ring", Protocol: "p", Base: is(5), Step: is(10), Bandwidth: is(256)}}}},
	}
}

// TestNodesByHand: TPOT of the embedded model, worked out by the formulas of docs/simulate.md. A
// step of one sequence has 7 all_reduces of 512 bytes and 6 of 160, and an all_gather of 1,024.
//
//   - 4 ranks on 2 nodes: a rail for each rank. The hierarchical way takes 2·(1 + 2 + 256/512) and
//     5 + 2·10 + 256/256 for 512 bytes, so 33, and 2·(3 + 80/512) + 25 + 80/256 = 31.625 for 160.
//     The all_gather takes 3 + 512/512 and 15 + 256/256, so 20: 7·33 + 6·31.625 + 20 = 440.75.
//   - 4 on 4 nodes: rings by a rail each. 5 + 6·10 + 768/256 = 68, 65 + 240/256 = 65.9375, and 5 +
//     3·10 + 768/256 = 38: 7·68 + 6·65.9375 + 38 = 909.625.
//   - 8 on 2 nodes, 3 sequences: half a rail for each. 2·(7 + 1152/512) + 25 + 384/128 = 46.5 for
//     1,536 bytes; 2·(7 + 360/512) + 25 + 120/128 = 41.34375 for 480; 7 + 2304/512 + 15 + 384/128 =
//     29.5 for 3,072: 7·46.5 + 6·41.34375 + 29.5 = 603.0625.
//   - 2 replicas of 2 ranks on 4 nodes, a sequence each: 7·(25 + 512/256) + 6·(25 + 160/256) + 15 +
//     512/256 = 359.75.
//   - 2 stages of 2 on 2 nodes: sums are within nodes, 1 + 4 + 512/512 = 6, 5 + 160/512 = 5.3125
//     and 1 + 2 + 512/512 = 4. A send takes 5 + 10 + 512/256 = 17: 7·6 + 6·5.3125 + 4 + 17 =
//     94.875. For 2 sequences in turns each stage takes 4·6 + 3·5.3125 = 39.9375 or, the last,
//     3·6 + 3·5.3125 + 4 = 37.9375, and a send: a round is 2·(39.9375 + 17) = 113.875.
//   - 2 parts of sequences (cp) of 2 ranks on 2 nodes: sums as before, and all_gathers along cp of
//     3,072, 17,408 and 512 bytes: 7·6 + 6·5.3125 + 4 + 6·(15 + 1536/256) + 6·(15 + 8704/256) +
//     15 + 256/256 = 513.875.
func TestNodesByHand(t *testing.T) {
	for _, c := range []struct {
		s            passes.Sharding
		nodes, batch int
		want         float64
	}{
		{passes.Sharding{Ranks: 4}, 2, 1, 440.75},
		{passes.Sharding{Ranks: 4}, 4, 1, 909.625},
		{passes.Sharding{Ranks: 8}, 2, 3, 603.0625},
		{passes.Sharding{Ranks: 2, Replicas: 2}, 4, 2, 359.75},
		{passes.Sharding{Ranks: 2, Stages: 2}, 2, 1, 94.875},
		{passes.Sharding{Ranks: 2, Stages: 2}, 2, 2, 113.875},
		{passes.Sharding{Ranks: 4, Context: 2}, 2, 1, 513.875},
	} {
		o, err := c.s.Options()
		if err != nil {
			t.Fatal(err)
		}
		ranks := c.s.Ranks * max(1, c.s.Stages) * max(1, c.s.Replicas)
		r, err := compiled(t, sized(t, synth.Options{Config: embedded.Config, From: "config.json"}), o, &virtual.Device{Profile: roundNodes(), NodeRanks: ranks / c.nodes}).Run(simulate.Workload{Batch: c.batch, Prompt: 1, Output: 3})
		if err != nil || math.Abs(r.TPOT-c.want) > 1e-9 {
			t.Errorf("%+v on %d nodes, %d sequences: %+v, want %g; %v", c.s, c.nodes, c.batch, r, c.want, err)
		}
	}
}

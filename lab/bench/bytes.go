package bench

import (
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
)

// stepBytes returns a lower bound on the bytes that a decode step moves through a GPU's memory:
// weights once, states in and out, KV caches of context tokens in. Activations stay in the chip's
// cache. Of several GPUs it is the one with most.
func stepBytes(schedules []*lowering.Schedule, gpus, batch, context int) int64 {
	sums := make([]int64, gpus)
	for i, s := range schedules {
		sums[i%gpus] += rankBytes(s, int64(batch), int64(context))
	}
	most := int64(0)
	for _, n := range sums {
		most = max(most, n)
	}
	return most
}

func rankBytes(s *lowering.Schedule, batch, context int64) int64 {
	readers := make([][]*lowering.Step, len(s.Buffers))
	for i := range s.Steps {
		for _, ref := range s.Steps[i].Args {
			readers[ref.Buffer] = append(readers[ref.Buffer], &s.Steps[i])
		}
	}
	n := int64(0)
	for i, b := range s.Buffers {
		switch b.Space {
		case lowering.Param, lowering.Constant:
			n += weightBytes(s, i, readers[i], batch)
		case lowering.State:
			n += 2 * b.Bytes * batch
		case lowering.Cache:
			n += b.Bytes * batch * context
		}
	}
	return n
}

// weightBytes returns the bytes read of a parameter: none if it is used at load only, a row per
// token of an embedding table, and of experts those that the router chooses.
func weightBytes(s *lowering.Schedule, buffer int, readers []*lowering.Step, batch int64) int64 {
	t := s.Local(s.Buffers[buffer].Type)
	all := t.Bytes().At(graph.Sizes{})
	most := int64(0)
	for _, st := range readers {
		n := all
		switch rows := int64(t.Dims[0].Len()); st.Op.Name {
		case "embedding":
			n = all / max(1, rows) * min(rows, batch)
		case "experts", "ungated_experts", "add_experts", "add_ungated_experts":
			n = all / max(1, rows) * min(rows, batch*int64(st.Attrs.Int("top")))
		}
		most = max(most, n)
	}
	return most
}

package validate

import (
	"fmt"

	"github.com/krait-ml/krait/graph"
)

// need is the bytes that the tensors of a section take: those of the checkpoint once, what ranks
// copy of them, and float64 for everything else; and those of sparse tensors alone.
func (r *runner) need(s *section) (n, sparse int64, err error) {
	seen := map[string]bool{}
	for side, h := range []*half{&s.source, &s.partition} {
		on := over([]*graph.Graph{r.source, r.partition}[side])
		ranks := on.Ranks()
		for _, v := range h.leaves {
			if v.Def.Op.Name != "param" {
				continue
			}
			tensors, err := tensorsOf(v)
			if err != nil {
				return 0, 0, err
			}
			for _, t := range tensors {
				if !seen[t.key()] {
					seen[t.key()] = true
					n += t.bytes()
					if t.pattern(r.run).sparse {
						sparse += aligned(t.bytes())
					}
				}
			}
			n += copies(v, on.Along(graph.TP)) * int64(on.Along(graph.CP))
		}
		for _, v := range h.values() {
			for rank := range ranks {
				x, err := describeOn(r.lot, v, on, rank)
				if err != nil {
					return 0, 0, err
				}
				n += 8 * int64(lines(&x, v.Type)) * int64(x.Cols)
			}
		}
	}
	return n, sparse, nil
}

// values lists what takes memory beside parameters.
func (h *half) values() []*graph.Value {
	out := append([]*graph.Value(nil), h.given...)
	for _, v := range h.leaves {
		if v.Def.Op.Name != "param" {
			out = append(out, v)
		}
	}
	for _, n := range h.nodes {
		out = append(out, n.Results...)
	}
	return out
}

// copies is the bytes that reading a parameter takes beside its tensors: nothing for neighbouring
// rows or columns of one tensor, which are a view; each rank's part, and the whole where it has to
// be gathered first.
func copies(v *graph.Value, ranks int) int64 {
	s, t := v.Def.Storage, v.Type
	gathered := s != nil && (len(s.Pieces) != 1 || s.Pieces[0].Step > 1 || s.Perm != nil)
	apart := t.Layout.Kind == graph.Sharded && (t.Layout.Axis > 0 || len(t.Layout.Place) > 1)
	var n int64
	if gathered {
		n += int64(ranks) * t.Bytes().At(graph.Sizes{})
	}
	for r := range ranks {
		if _, view := columns(t, ranks, r); apart && !view {
			n += t.Local(ranks, r).Bytes().At(graph.Sizes{})
		}
	}
	return n
}

// size writes bytes in GiB, or in MiB where that is more telling.
func size(n int64) string {
	if n < 1<<30 {
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}

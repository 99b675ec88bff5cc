package passes

import (
	"errors"
	"slices"
	"strings"

	"github.com/krait-ml/krait/graph"
)

// watchedPrefix begins the names of the outputs that [Quantize] adds to watch.
const watchedPrefix = "overflow."

// watches notes a sum that travelled as fp16; an output is whole, so shares are gathered for it.
func (q *quantizer) watches(of, sum *graph.Value) error {
	if q.Watch && sum.Type.Layout.Kind == graph.Sharded {
		n, err := q.out.Add("all_gather", nil, []string{sum.Name + "_watched"}, sum)
		if err != nil {
			return err
		}
		n.Note = "to be looked at"
		sum = n.Results[0]
	}
	q.watched = append(q.watched, graph.Output{Name: watchedPrefix + of.Name, Value: sum})
	return nil
}

// watch adds the outputs, after those that the graph has.
func (q *quantizer) watch(g *graph.Graph) error {
	if !q.Watch {
		return nil
	}
	if len(q.watched) == 0 {
		return errors.New("no payload is fp16, so none can overflow: bf16 and f32 have the range of the values")
	}
	for _, o := range q.watched {
		if err := g.AddOutput(o.Name, o.Value); err != nil {
			return err
		}
	}
	return nil
}

// Watch is an output that shows whether a payload left the range of fp16, or a codec was
// given what is not finite: the sum, widened to f32 again. An element that overflowed, on any
// rank or as the sum, is an infinity or a NaN there.
type Watch struct {
	Site   string // the name of the value that travelled
	Output string
	Format graph.DType // in which it came
}

// Watched finds the outputs that [Quantize] added, in the order in which they run.
func Watched(g *graph.Graph) []Watch {
	var list []Watch
	for _, o := range g.Outputs {
		if site, ok := strings.CutPrefix(o.Name, watchedPrefix); ok {
			if d := travelled(o.Value); watchable(d) {
				list = append(list, Watch{site, o.Name, d})
			}
		}
	}
	return list
}

// travelled is the format in which a value came, NoDType where in that of its own.
func travelled(v *graph.Value) graph.DType {
	n := v.Def
	switch i := slices.Index(n.Results, v); {
	case n.Op.Name == "dequantize":
		return n.Args[0].Type.DType
	case sums(n):
		return n.Args[i].Type.DType
	case n.Op.Class == graph.Collective:
		return travelled(n.Args[i])
	}
	return graph.NoDType
}

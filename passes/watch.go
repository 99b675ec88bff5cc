package passes

import (
	"errors"
	"strings"

	"github.com/krait-ml/krait/graph"
)

// watchedPrefix begins the names of the outputs that [Quantize] adds to watch.
const watchedPrefix = "overflow."

// watch adds the outputs, after those that the graph has.
func (q *quantizer) watch(g *graph.Graph) error {
	if !q.Watch {
		return nil
	}
	if len(q.watched) == 0 {
		return errors.New("no payload is fp16, so there is none to watch for overflow: bf16 and f32 have the range of the values")
	}
	for _, o := range q.watched {
		if err := g.AddOutput(o.Name, o.Value); err != nil {
			return err
		}
	}
	return nil
}

// Watched finds the outputs that show whether payloads left the range of fp16: the
// sums, widened to f32 again, in the order of their nodes. An element that
// overflowed, on any rank or as the sum, is an infinity or a NaN there.
func Watched(g *graph.Graph) []graph.Output {
	var list []graph.Output
	for _, o := range g.Outputs {
		if n := o.Value.Def; strings.HasPrefix(o.Name, watchedPrefix) && n.Op.Name == "dequantize" && n.Args[0].Type.DType == graph.F16 {
			list = append(list, o)
		}
	}
	return list
}

// WatchedSite is the name of the value that travelled.
func WatchedSite(o graph.Output) string { return strings.TrimPrefix(o.Name, watchedPrefix) }

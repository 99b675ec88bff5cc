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

// Watch is an output that shows whether a payload left the range of fp16: the sum,
// widened to f32 again. An element that overflowed, on any rank or as the sum, is
// an infinity or a NaN there.
type Watch struct {
	Site   string // the name of the value that travelled
	Output string
}

// Watched finds the outputs that [Quantize] added, in the order in which they run.
func Watched(g *graph.Graph) []Watch {
	var list []Watch
	for _, o := range g.Outputs {
		site, ok := strings.CutPrefix(o.Name, watchedPrefix)
		if n := o.Value.Def; ok && n.Op.Name == "dequantize" && n.Args[0].Type.DType == graph.F16 {
			list = append(list, Watch{site, o.Name})
		}
	}
	return list
}

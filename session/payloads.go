package session

import (
	"fmt"
	"strings"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/passes"
)

// CheckPayloads returns a check of a step's results for a compiled graph, or nil if the graph
// watches no payloads: it fails if a sum that travels as fp16 or in a codec is not finite. The
// error names the first such sum, since values computed from it are not finite either.
func CheckPayloads(g *graph.Graph) func(exec.Results) error {
	watched := passes.Watched(g)
	if len(watched) == 0 {
		return nil
	}
	return func(results exec.Results) error {
		var bad []passes.Watch
		for _, w := range watched {
			sum, err := results.Output(w.Output)
			if err != nil {
				return err
			}
			if !finite(&sum) {
				bad = append(bad, w)
			}
		}
		if len(bad) == 0 {
			return nil
		}
		name, also := bad[0].Site, ""
		if n := len(bad) - 1; n > 0 {
			also = fmt.Sprintf(" (and %d after it)", n)
		}
		site := name[strings.LastIndexByte(name, '.')+1:]
		if format := bad[0].Format; format.InBlocks() {
			return fmt.Errorf("%s%s is not finite after being sent as %s: a partial sum or the sum was not finite before, which makes its block NaN; find the source with %s=none", name, also, format, site)
		}
		return fmt.Errorf("%s%s is not finite after being sent as fp16, whose largest value is 65504; send it as scaled16 (payload fp16,%s=scaled16), bf16 or f32 (%[3]s=none)", name, also, site)
	}
}

// finite reports whether a tensor has no infinity and no NaN.
func finite(t *kernels.Tensor) bool {
	for i := range t.Rows() {
		for _, v := range t.Row(i) {
			if v-v != 0 { // NaN
				return false
			}
		}
	}
	return true
}

package krait

import (
	"fmt"
	"strings"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/passes"
)

// payloads are the sums that travel as fp16 or in a codec and are watched.
type payloads []passes.Watch

// check refuses the results of a step in which one of them is not finite. The first
// one is to blame: what is computed from it is not finite either.
func (p payloads) check(results exec.Results) error {
	first, format, others := "", graph.NoDType, 0
	for _, w := range p {
		sum, err := results.Output(w.Output)
		switch {
		case err != nil:
			return err
		case finite(&sum):
		case first == "":
			first, format = w.Site, w.Format
		default:
			others++
		}
	}
	if first == "" {
		return nil
	}
	also := ""
	if others > 0 {
		also = fmt.Sprintf(" (and %d after it)", others)
	}
	if format.InBlocks() {
		return fmt.Errorf("%s%s is not finite after travelling as %s, whose blocks are NaN where what is put into them is not finite: a summand or the sum was not before; look for where it comes from with %s=none", first, also, format, first[strings.LastIndexByte(first, '.')+1:])
	}
	site := first[strings.LastIndexByte(first, '.')+1:]
	return fmt.Errorf("%s%s is not finite after travelling as fp16, which ends at 65504; let it travel as scaled16 (quantize fp16,%s=scaled16), bf16 or f32 (%[3]s=none)", first, also, site)
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

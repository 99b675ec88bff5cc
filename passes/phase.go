package passes

import (
	"fmt"
	"slices"
	"strings"
)

// Phases are prefill and decode, by which payloads may differ where each has schedules of its own.
var Phases = []string{"prefill", "decode"}

// ByPhase reports whether a quantize has payloads for one phase: out_proj=int8@decode.
func ByPhase(quantize string) bool { return strings.Contains(quantize, "@") }

// QuantizeIn is what a quantize is in a phase: parts that end in @ and its name go before those
// that are for both, and those of the other are left out. Of one that is by phase it is an error to
// name none.
func QuantizeIn(quantize, phase string) (string, error) {
	if phase != "" && !slices.Contains(Phases, phase) {
		return "", fmt.Errorf("unknown phase %q; it must be %s", phase, strings.Join(Phases, " or "))
	}
	if !ByPhase(quantize) {
		return quantize, nil
	}
	var own, both, all, ownAll []string // of sites, and for all
	for part := range strings.SplitSeq(quantize, ",") {
		text, of, some := strings.Cut(part, "@")
		site := strings.Contains(text, "=")
		switch {
		case some && !slices.Contains(Phases, of):
			return "", fmt.Errorf("payload %q: unknown phase %q; it must be %s", part, of, strings.Join(Phases, " or "))
		case some && of != phase:
		case some && site:
			own = append(own, text)
		case some:
			ownAll = append(ownAll, text)
		case site:
			both = append(both, text)
		default:
			all = append(all, text)
		}
	}
	if phase == "" {
		return "", fmt.Errorf("payload %q differs by phase, but this process runs prefill and decode: give --phase prefill or decode, a strategy of prefill (--prefill-strategy, which may equal --strategy), or use a prefill server (krait serve prefill, generate --prefill)", quantize)
	}
	return strings.Join(slices.Concat(own, both, all, ownAll), ","), nil
}

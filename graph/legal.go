package graph

import (
	"fmt"
	"math"
	"slices"
)

// Legal says which values an attribute may have; the zero Legal allows all of its type.
type Legal struct {
	OneOf []string // texts
	// A number is from Min, or above it, to Max, or to the size of the letter MaxOf
	// of the rule; an integer is a multiple of Step.
	Min, Max float64
	Above    bool
	MaxOf    byte
	Step     int

	// More allows texts beside those of OneOf; tests draw of OneOf.
	More func(text string) bool

	want string // for errors; %d is the size of MaxOf
}

// What attributes of the table may be.
var (
	anything     Legal
	above0       = Legal{Above: true, Max: math.Inf(1), want: "above 0"}
	severalParts = Legal{Min: 2, Max: MaxRanks, want: "2 to 1024"}
	zeroOrOne    = Legal{Max: 1, want: "0 or 1"}
	someExperts  = Legal{Min: 1, MaxOf: 'e', want: "1 to %d, the experts"}
	fewGroups    = Legal{Min: 1, Max: 64, want: "1 to 64"}
	someGroups   = Legal{Min: 1, MaxOf: 'g', want: "1 to %d, the groups"}
	evenPart     = Legal{MaxOf: 'p', Step: 2, want: "even and at most %d, the size of a head"}
	transport    = Legal{OneOf: []string{"f32", "f16", "bf16"}, More: isCodec, want: "f32, f16, bf16 or a codec such as int8/32"}
	widened      = Legal{OneOf: []string{"f32", "f16", "bf16"}, want: "f32, f16 or bf16"}
	accumulator  = Legal{OneOf: []string{"", "f32"}, want: "f32"}
	meshAxis     = Legal{OneOf: []string{"", "tp", "cp"}, want: "tp or cp"}
	joinable     = Legal{OneOf: []string{"", "add_rmsnorm"}, want: "add_rmsnorm"}
	// What experts may apply to their gate, or to what they have for one: names of operations.
	gateActivation = Legal{OneOf: []string{"silu", "gelu", "gelu_tanh", "relu", "relu2"}, want: "one of [silu gelu gelu_tanh relu relu2]"}
)

// isCodec reports whether a text is the name of a codec's format.
func isCodec(text string) bool {
	d, ok := ParseDType(text)
	return ok && d.InBlocks()
}

func atLeast(n int) Legal {
	return Legal{Min: float64(n), Max: math.Inf(1), want: fmt.Sprint("at least ", n)}
}

// Any reports whether all values of the attribute's type are legal.
func (l *Legal) Any() bool {
	return l.OneOf == nil && l.Min == 0 && l.Max == 0 && !l.Above && l.MaxOf == 0 && l.Step == 0
}

// allows reports whether a value is legal; size gives the sizes of letters.
func (l *Legal) allows(v any, size func(letter byte) int) bool {
	switch v := v.(type) {
	case string:
		return l.OneOf == nil || slices.Contains(l.OneOf, v) || l.More != nil && l.More(v)
	case int:
		return l.holds(float64(v), size) && (l.Step == 0 || v%l.Step == 0)
	case float64:
		return l.holds(v, size)
	}
	return true // absent
}

func (l *Legal) holds(v float64, size func(letter byte) int) bool {
	return l.Any() || (v > l.Min || v == l.Min && !l.Above) && v <= l.Most(size)
}

// Most is the largest number that is legal.
func (l *Legal) Most(size func(letter byte) int) float64 {
	switch {
	case l.MaxOf == 0:
		return l.Max
	case size == nil: // the row has no rule
		return math.Inf(1)
	}
	return float64(size(l.MaxOf))
}

// checkAttrs holds a node's attributes against the row.
func checkAttrs(n *Node, size func(letter byte) int) error {
	for i := range n.Op.Attrs {
		a := &n.Op.Attrs[i]
		v := n.Attrs[a.Name]
		if a.Legal.allows(v, size) {
			continue
		}
		want := a.Legal.want
		if a.Legal.MaxOf != 0 {
			want = fmt.Sprintf(want, size(a.Legal.MaxOf))
		}
		if a.Kind == StringAttr {
			return fmt.Errorf("attribute %s is %q; it must be %s", a.Name, v, want)
		}
		return fmt.Errorf("attribute %s is %v; it must be %s", a.Name, v, want)
	}
	return nil
}

package graph

import (
	"fmt"
	"slices"
	"strings"
)

// StatePair says that a result replaces an operand that is state, and what kind of state that is.
type StatePair struct {
	Operand, Result int
	Kind            StateKind
}

// StateKind says what an operation keeps between steps, and so in which number
// formats it may be kept. Whatever the format, kernels compute in f32; what is kept is
// rounded when it is written, to nearest and ties to even, once per step; in F8, what is beyond 448
// becomes 448.
type StateKind string

// The kinds of state. A conv state has inputs and a KV cache has
// keys and values: each is written once. The state of a scan is a sum that is carried
// on and rounded in every step, over a range that f16 does not have.
const (
	ConvState  StateKind = "conv"  // the last inputs
	SSMState   StateKind = "ssm"   // h
	CacheState StateKind = "cache" // a row per token; the step's own tokens are read from it, rounded
)

// StateKinds lists the kinds.
var StateKinds = []StateKind{ConvState, SSMState, CacheState}

// Formats lists the number formats that a state of the kind may have, the default first.
func (k StateKind) Formats() []DType {
	if k == SSMState {
		return []DType{F32, BF16}
	}
	return []DType{F32, F16, BF16, F8}
}

// Takes is nil where a state of the kind may have a format, else says which it may have.
func (k StateKind) Takes(d DType) error {
	formats := k.Formats()
	if slices.Contains(formats, d) {
		return nil
	}
	var names []string
	for _, f := range formats[:len(formats)-1] {
		names = append(names, f.String())
	}
	return fmt.Errorf("%s; a state of kind %s is %s or %s", d, k, strings.Join(names, ", "), formats[len(formats)-1])
}

// state is the kind of state that an operand is, "" where it is none.
func (op *Op) state(operand int) StateKind {
	for _, p := range op.States {
		if p.Operand == operand {
			return p.Kind
		}
	}
	return ""
}

package cli

import (
	"fmt"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/kernels/cuda"
)

// formatsFlag is --formats: it compiles as for a GPU with math of bf16 or of f32, without one.
type formatsFlag struct{ s *krait.Sharding }

func (f formatsFlag) Set(text string) error {
	math, ok := map[string]cuda.Math{"bf16": cuda.BF16, "pieces": cuda.F32}[text]
	if !ok {
		return fmt.Errorf("%q; it must be bf16 or pieces", text)
	}
	f.s.Target = &cuda.Target{Math: math}
	return nil
}

func (f formatsFlag) String() string {
	switch {
	case f.s == nil || f.s.Target == nil:
		return ""
	case f.s.Target.Pieces():
		return "pieces"
	}
	return "bf16"
}

func (f formatsFlag) Type() string { return "string" }

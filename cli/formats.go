package cli

import (
	"fmt"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/kernels/cuda"
)

// formatsFlag is --formats: it compiles as for a GPU with math of bf16, without one.
type formatsFlag struct{ s *krait.Sharding }

func (f formatsFlag) Set(text string) error {
	if text != "bf16" {
		return fmt.Errorf("%q; it must be bf16", text)
	}
	f.s.Target = &cuda.Target{}
	return nil
}

func (f formatsFlag) String() string {
	if f.s == nil || f.s.Target == nil {
		return ""
	}
	return "bf16"
}

func (f formatsFlag) Type() string { return "string" }

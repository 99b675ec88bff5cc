package gorgoniacu

import (
	"slices"
	"testing"
)

func TestParamsOf(t *testing.T) {
	const ptx = `
.visible .entry none()
{ }
.visible .entry mixed(
	.param .u64 mixed_param_0,
	.param .u32 mixed_param_1,
	.param .f64 mixed_param_2,
	.param .u8 mixed_param_3,
	.param .align 4 .b8 mixed_param_4[20]
)
.visible .entry pointer(.param .u64 .ptr .global .align 4 p, .param .u16 q[2])
.visible .entry big(.param .align 8 .b8 p[48], .param .u32 q)
.visible .entry odd(.param .what q)`
	for kernel, want := range map[string][]param{
		"none":    nil,
		"missing": nil,
		"mixed":   {{0, 8}, {8, 4}, {16, 8}, {24, 1}, {28, 20}},
		"pointer": {{0, 8}, {8, 4}},
	} {
		if got, err := paramsOf(ptx, kernel); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v; want %v", kernel, got, err, want)
		}
	}
	for _, kernel := range []string{"big", "odd"} {
		if got, err := paramsOf(ptx, kernel); err == nil {
			t.Errorf("%s: %v", kernel, got)
		}
	}
}

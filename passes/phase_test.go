package passes

import (
	"strings"
	"testing"
)

// TestQuantizeIn: what is for a phase goes before what is for both, and counts after it where it
// is for all sites.
func TestQuantizeIn(t *testing.T) {
	for _, c := range []struct{ quantize, phase, want string }{
		{"int8", "", "int8"},
		{"int8", "decode", "int8"},
		{"x=int8,fp16", "prefill", "x=int8,fp16"},
		{"out=int8@decode", "decode", "out=int8"},
		{"out=int8@decode", "prefill", ""},
		{"out=int8,out=int4:int8@decode,x=fp16:acc32", "decode", "out=int4:int8,out=int8,x=fp16:acc32"},
		{"int4@prefill,int8,none@decode", "prefill", "int8,int4"},
		{"int4@prefill,int8,none@decode", "decode", "int8,none"},
	} {
		got, err := QuantizeIn(c.quantize, c.phase)
		if err != nil || got != c.want {
			t.Errorf("%q in %q: %q, %v; want %q", c.quantize, c.phase, got, err, c.want)
		}
		if _, err := ParseQuantize(got); err != nil {
			t.Error(err)
		}
	}
	for _, c := range []struct{ quantize, phase, want string }{
		{"int8@decode", "", "give --phase prefill or decode"},
		{"int8@both", "decode", `unknown phase "both"; it must be prefill or decode`},
		{"int8@", "decode", `unknown phase ""`},
		{"int8@decode@decode", "decode", `unknown phase "decode@decode"`},
		{"int8", "verify", `phase "verify"; it must be prefill or decode`},
	} {
		if got, err := QuantizeIn(c.quantize, c.phase); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q in %q: %q, %v", c.quantize, c.phase, got, err)
		}
	}
}

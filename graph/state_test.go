package graph

import (
	"strings"
	"testing"
)

// TestStateFormats: every operation that keeps something takes it in the formats of its
// kind and no other, and puts the new state out in that of the old.
func TestStateFormats(t *testing.T) {
	nodes := map[string]struct{ leaves, node string }{ // D is the format of the states
		"conv1d":               {"x f32[t 6]; w f32[6 4]; $h D[s 6 3]", "conv1d x w $h seg"},
		"unbiased_conv1d_silu": {"x f32[t 6]; w f32[6 4]; $h D[s 6 3]", "unbiased_conv1d_silu x w $h seg"},
		"conv1d_silu":          {"x f32[t 6]; w f32[6 4]; b f32[6]; $h D[s 6 3]", "conv1d_silu x w b $h seg"},
		"selective_scan": {"u f32[t 8]; d f32[t 8]; A f32[8 3]; B f32[t 3/3]; C f32[t 3/3]; $h D[s 8 3]",
			"selective_scan u d A B C $h seg"},
		"selective_scan_gated": {"u f32[t 8]; d f32[t 8]; b f32[8]; A f32[8 3]; B f32[t 3/3]; C f32[t 3/3]; D f32[8]; z f32[t 8]; $h D[s 8 3]",
			"selective_scan_gated u d b A B C D z $h seg"},
		"selective_scan_projected": {"u f32[t 8]; x f32[t 5]; w f32[8 5]; b f32[8]; A f32[8 3]; B f32[t 3/3]; C f32[t 3/3]; D f32[8]; z f32[t 8]; $h D[s 8 3]",
			"selective_scan_projected u x w b A B C D z $h seg"},
		"selective_scan_normed": {"u f32[t 8]; x f32[t 5]; v f32[5]; w f32[8 5]; b f32[8]; A f32[8 3]; B f32[t 3]; p f32[3]; C f32[t 3]; q f32[3]; D f32[8]; z f32[t 8]; $h D[s 8 3]",
			"selective_scan_normed u x v w b A B p C q D z $h seg {eps=0.5}"},
		"selective_scan_unit_normed": {"u f32[t 8]; x f32[t 5]; w f32[8 5]; b f32[8]; A f32[8 3]; B f32[t 3]; C f32[t 3]; D f32[8]; z f32[t 8]; $h D[s 8 3]",
			"selective_scan_unit_normed u x w b A B C D z $h seg {eps=0.5}"},
		"ssd_scan_gated": {"x f32[t 24/4]; d f32[t 6]; b f32[6]; A f32[6]; B f32[t 6/3]; C f32[t 6/3]; D f32[6]; z f32[t 24/4]; $h D[s 6 4 3]",
			"ssd_scan_gated x d b A B C D z $h seg {max=1.0 min=0.0}"},
		"scan_output":      {"p f32[t 8 3]; q f32[t 8 3]; C f32[t 3/3]; $h D[s 8 3]", "scan_output p q C $h seg"},
		"ssd_scan":         {"x f32[t 24/4]; d f32[t 6]; A f32[6]; B f32[t 6/3]; C f32[t 6/3]; $h D[s 6 4 3]", "ssd_scan x d A B C $h seg"},
		"delta_scan":       {"q f32[t 6/3]; k f32[t 6/3]; v f32[t 24/4]; g f32[t 6]; b f32[t 6]; $h D[s 6 3 4]", "delta_scan q k v g b $h seg {scale=1.0}"},
		"conv_states":      {"u f32[s*2 8 3]; $h D[s 8 3]", "conv_states u $h seg"},
		"selective_states": {"m f32[s*2 8]; u f32[s*2 8 3]; A f32[8 3]; $h D[s 8 3]", "selective_states m u A $h seg"},
		"ssd_states":       {"m f32[s*2 6]; u f32[s*2 6 4 3]; A f32[6]; $h D[s 6 4 3]", "ssd_states m u A $h seg"},
		"delta_states":     {"m f32[s*2 6 3 3]; u f32[s*2 6 3 4]; $h D[s 6 3 4]", "delta_states m u $h seg"},
		"attention":        {attendedBut("f32[s c", "D[s c"), attentionNode},
	}
	kinds := map[StateKind]int{}
	for _, op := range Ops() {
		if op.States == nil {
			continue
		}
		c, ok := nodes[op.Name]
		if !ok {
			t.Errorf("no case for %s", op.Name)
			continue
		}
		for _, p := range op.States {
			kinds[p.Kind]++
			if op.Operands[p.Operand] != 's' {
				t.Errorf("%s: operand %d is state, and %q of Operands %s", op.Name, p.Operand, op.Operands[p.Operand], op.Operands)
			}
		}
		legal := map[string]bool{"f32": true, "bf16": true, "f16": op.States[0].Kind != SSMState, "e4m3": op.States[0].Kind != SSMState}
		for _, d := range []string{"f32", "f16", "bf16", "e4m3", "f64", "i32"} {
			g, n := deriveGraph(t, strings.ReplaceAll(c.leaves, "D[", d+"["), c.node)
			types, err := infer(n, g.Ranks)
			if (err == nil) != legal[d] {
				t.Errorf("%s with a state in %s: %v", op.Name, d, err)
				continue
			}
			for _, p := range op.States {
				if err == nil && types[p.Result].DType.String() != d {
					t.Errorf("%s makes of a state in %s one in %s", op.Name, d, types[p.Result].DType)
				}
			}
			if err == nil && types[0].DType != F32 {
				t.Errorf("%s with a state in %s puts out %s", op.Name, d, types[0])
			}
		}
	}
	for _, k := range StateKinds {
		if kinds[k] == 0 {
			t.Errorf("no operation keeps a state of kind %s", k)
		}
		delete(kinds, k)
	}
	if len(kinds) > 0 {
		t.Errorf("kinds that are not listed: %v", kinds)
	}
}

// TestStateFormatErrors: what a refusal says.
func TestStateFormatErrors(t *testing.T) {
	for want, c := range map[string][2]string{
		"error: operand 5 is f16; a state of kind ssm is f32 or bf16":                      {"u f32[t 8]; d f32[t 8]; A f32[8 3]; B f32[t 3/3]; C f32[t 3/3]; $h f16[s 8 3]", "selective_scan u d A B C $h seg"},
		"error: operand 2 is i32; a state of kind conv is f32, f16, bf16 or e4m3":          {"x f32[t 6]; w f32[6 4]; $h i32[s 6 3]", "conv1d x w $h seg"},
		"error: operand 4 is f64; a state of kind cache is f32, f16, bf16 or e4m3":         {attendedBut("$values f32", "$values f64"), attentionNode},
		"error: operands 3 and 4 are f16 and bf16; keys and values are kept in one format": {attendedBut("$keys f32", "$keys f16", "$values f32", "$values bf16"), attentionNode},
	} {
		checkDerived(t, c[0], c[1], want)
	}
}

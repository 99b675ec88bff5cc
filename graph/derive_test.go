package graph

import (
	"strings"
	"testing"
)

// deriveCases give the leaves, one node, and the type that its first result
// gets, or the error. All run on 4 ranks unless the text says otherwise.
var deriveCases = []struct{ name, leaves, node, want string }{
	{"matmul, all whole", "x f32[t 8]; w f32[6 8]", "matmul x w", "f32[t 6]"},
	{"matmul, weight split by output", "x f32[t 8]; w f32[6 8] shard(0: split)", "matmul x w", "f32[t 6] shard(1: split)"},
	{"matmul, contraction split", "x f32[t 8] shard(1: split); w f32[6 8] shard(1: split)", "matmul x w", "f32[t 6] partial"},
	{"matmul, contraction split in one operand only", "x f32[t 8]; w f32[6 8] shard(1: split)", "matmul x w",
		"error: operand 0 is whole on k where another operand is split: shard it first"},
	{"matmul, two letters cut", "x f32[t 8] shard(1: split); w f32[6 8] shard(0: split)", "matmul x w",
		"error: operand 1 is split on n and another operand on k: only one may be"},
	{"matmul, packed output", "x f32[t 8]; w f32[a:6|b:3 8] shard(0: a=split b=whole)", "matmul x w", "f32[t a:6|b:3] shard(1: a=split b=whole)"},
	{"matmul, packed contraction, a field whole", "x f32[t a:6|b:3] shard(1: a=split b=whole); w f32[5 a:6|b:3] shard(1: a=split b=whole)", "matmul x w",
		"error: contracts k, which has fields that every rank holds: they would be counted once per rank"},
	{"matmul, packed contraction, a field covered", "x f32[t a:8|b:4/2] shard(1: a=split b=cover/8); w f32[5 a:8|b:4/2] shard(1: a=split b=cover/8)", "matmul x w",
		"error: contracts k, which has fields that every rank holds: they would be counted once per rank"},
	{"matmul, packed contraction, all split", "x f32[t a:6|b:3] shard(1: a=split b=split); w f32[5 a:6|b:3] shard(1: a=split b=split)", "matmul x w", "f32[t 5] partial"},
	{"matmul, units differ", "x f32[t 8/2]; w f32[5 8]", "matmul x w", "error: k is 8 in operand 1 and 8/2 before"},
	{"matmul, activation partial", "p f32[t 8] partial; w f32[6 8]", "matmul p w", "f32[t 6] partial"},
	{"matmul, partial and split", "p f32[t 8] partial; w f32[6 8] shard(0: split)", "matmul p w",
		"error: an operand is a partial sum and another is split on n: reduce or gather one first"},

	{"matmul, rows split", "x f32[t 8] shard(0: even); w f32[6 8]", "matmul x w", "f32[t 6] shard(0: even)"},
	{"matmul, rows and outputs split", "x f32[t 8] shard(0: even); w f32[6 8] shard(0: split)", "matmul x w",
		"error: operand 1 is split on n and another operand on t: only one may be: the 4 ranks would have 4 of the 16 blocks of the product; all_gather the rows first"},
	{"matmul, rows and contraction split", "x f32[t 8] shard(0: sequence); w f32[6 8] shard(1: split)", "matmul x w",
		"error: operand 1 is split on k and another operand on t: only one may be: the 4 ranks would have 4 of the 16 blocks of the product; all_gather the rows first"},
	{"add, rows split alike", "x f32[t 8] shard(0: even); y f32[t 8] shard(0: even)", "add x y", "f32[t 8] shard(0: even)"},
	{"add, rows split in two ways", "x f32[t 8] shard(0: even); y f32[t 8] shard(0: sequence)", "add x y",
		"error: operands 0 and 1 are split differently on a: even and sequence"},
	{"add, rows of one split", "x f32[t 8]; y f32[t 8] shard(0: even)", "add x y", "error: operand 0 is whole on a where another operand is split: shard it first"},
	{"add, rows and a partial sum", "x f32[t 8] shard(0: even); p f32[t 8] partial", "add x p",
		"error: operand 1 is a partial sum and operand 0 is not; all_reduce the first, or make a term of the second"},
	{"mul, rows and a partial sum", "x f32[t 8] shard(0: even); p f32[t 8] partial", "mul x p",
		"error: an operand is a partial sum and another is split on a: reduce or gather one first"},
	{"rmsnorm of rows", "x f32[t 8] shard(0: sequence); w f32[8]", "rmsnorm x w {eps=1e-5}", "f32[t 8] shard(0: sequence)"},
	{"sums of rows", "x f32[t 8] shard(0: even)", "sumsq x", "f32[t] shard(0: even)"},
	{"rms_rows with sums of all rows", "x f32[t 8] shard(0: even); r f32[t]", "rms_rows x r {width=8 eps=1}", "error: operand 1 is whole on t where another operand is split: shard it first"},
	{"rows taken from some", "x f32[t 8] shard(0: even); r i32[o]", "select_rows x r", "error: operand 0 is split on t!, which this operation cannot split"},
	{"conv1d of some rows", "x f32[t 6] shard(0: sequence); w f32[6 4]; $h f32[s 6 3]", "conv1d x w $h seg", "error: operand 0 is split on t!, which this operation cannot split"},
	{"field of some rows", "x f32[t a:6|b:3] shard(0: even)", "field x {name=b}", "f32[t 3] shard(0: even)"},
	{"add_rmsnorm of rows", "x f32[t 8] shard(0: even); y f32[t 8] shard(0: even); w f32[8]", "add_rmsnorm x y w {eps=1e-5}", "f32[t 8] shard(0: even)"},

	{"embedding, vocabulary split", "i i32[t]; w f32[10 8] shard(0: split)", "embedding i w", "f32[t 8] partial"},
	{"embedding, width split", "i i32[t]; w f32[10 8] shard(1: split)", "embedding i w", "f32[t 8] shard(1: split)"},
	{"select_rows of a partial sum", "p f32[t 8] partial; r i32[o]", "select_rows p r", "f32[o 8] partial"},

	{"add, both partial", "p f32[t 8] partial; q f32[t 8] partial", "add p q", "f32[t 8] partial"},
	{"add, one partial", "x f32[t 8]; p f32[t 8] partial", "add x p",
		"error: operand 1 is a partial sum and operand 0 is not; all_reduce the first, or make a term of the second"},
	{"add, both split", "x f32[t 8] shard(1: split); y f32[t 8] shard(1: split)", "add x y", "f32[t 8] shard(1: split)"},
	{"add, one split", "x f32[t 8] shard(1: split); y f32[t 8]", "add x y", "error: operand 1 is whole on b where another operand is split: shard it first"},
	{"bias of a partial sum", "p f32[t 8] partial; b f32[8]", "bias p b",
		"error: operand 0 is a partial sum and operand 1 is not; all_reduce the first, or make a term of the second"},
	{"mul, one partial", "p f32[t 8] partial; x f32[t 8]", "mul p x", "f32[t 8] partial"},
	{"mul, both partial", "p f32[t 8] partial; q f32[t 8] partial", "mul p q", "error: operands 0 and 1 are partial sums and are multiplied; all_reduce one first"},
	{"silu of a partial sum", "p f32[t 8] partial", "silu p", "error: operand 0 is a partial sum; all_reduce it first"},
	{"sigmoid, split", "x f32[t 8] shard(1: split)", "sigmoid x", "f32[t 8] shard(1: split)"},
	{"sigmoid of a partial sum", "p f32[t 8] partial", "sigmoid p", "error: operand 0 is a partial sum; all_reduce it first"},
	{"tanh, split", "x f32[t 8] shard(1: split)", "tanh x", "f32[t 8] shard(1: split)"},
	{"tanh of a partial sum", "p f32[t 8] partial", "tanh p", "error: operand 0 is a partial sum; all_reduce it first"},
	{"scale of a partial sum", "p f32[t 8] partial; d f32[8]", "scale p d", "f32[t 8] partial"},
	{"scale per head", "x f32[t 20/4] shard(1: split); d f32[5] shard(0: split)", "scale x d", "f32[t 20/4] shard(1: split)"},
	{"scale per head, cut inside", "x f32[t 20] shard(1: split); d f32[10] shard(0: split)", "scale x d",
		"error: operand 0 is f32[t 20] shard(1: split) over 4 ranks: rank 0 starts or ends inside a unit of 2 of (h p!)"},

	{"rmsnorm over split channels", "x f32[t 8] shard(1: split); w f32[8] shard(0: split)", "rmsnorm x w {eps=1e-5}",
		"error: operand 0 is split on d!, which this operation cannot split"},
	{"rmsnorm, eps negative", "x f32[t 8]; w f32[8]", "rmsnorm x w {eps=-1}", "error: attribute eps is -1; it must be at least 0"},
	{"a scale by a sum of no width", "x f32[t 8]; r f32[t]", "rms_rows x r {width=0 eps=1}", "error: attribute width is 0; it must be at least 1"},
	{"transport in f64", "x f32[t 8]", "quantize x {to=\"f64\"}", `error: attribute to is "f64"; it must be f32, f16, bf16 or a codec such as int8/32`},
	{"norm per group, groups whole", "x f32[t 16/2] shard(1: split); w f32[16/2] shard(0: split)", "group_rmsnorm x w {groups=4 eps=1e-5}", "f32[t 16/2] shard(1: split)"},
	{"norm per group, groups cut", "x f32[t 16/2] shard(1: split); w f32[16/2] shard(0: split)", "group_rmsnorm x w {groups=2 eps=1e-5}",
		"error: operand 0 is f32[t 16/2] shard(1: split) over 4 ranks: rank 0 starts or ends inside a unit of 8 of (g e!)"},
	{"norm per group, groups do not divide", "x f32[t 16]; w f32[16]", "group_rmsnorm x w {groups=3 eps=1e-5}", "error: (g e!) is 16 in operand 0, which 3 does not divide"},

	{"sums of groups, units are groups", "x f32[t 12/2] shard(1: split)", "group_sumsq x {groups=6}", "f32[t 6/1] shard(1: split)"},
	{"sums of groups, a group crosses ranks", "x f32[t 12/2] shard(1: split)", "group_sumsq x {groups=3}", "f32[t 3/1] partial"},
	// Rank borders are group borders, but ranks have other groups than a split of six gives.
	{"sums of groups, units larger than groups", "x f32[t 12/4] shard(1: split)", "group_sumsq x {groups=6}", "f32[t 6/1] partial"},
	{"a matrix per head, units larger than heads", "x f32[t 12/4] shard(1: split); w f32[18/3 2]", "head_down x w", "f32[t 18/3] partial"},
	{"a matrix per head, units are heads", "x f32[t 12/2] shard(1: split); w f32[18/3 2] shard(0: split)", "head_down x w", "f32[t 18/3] shard(1: split)"},
	{"back from heads, units of both", "x f32[t 6/1] shard(1: split); w f32[12/4 1] shard(0: split)", "head_up x w",
		"error: operand 0: rank 1 holds groups [{1 2}] of (h k!) and needs {0 2}"},

	{"conv1d, split and covered fields", "x f32[t x:6/2|B:4/2] shard(1: x=split B=cover/6); w f32[x:6/2|B:4/2 4] shard(0: x=split B=cover/6); $h f32[s x:6/2|B:4/2 3] shard(1: x=split B=cover/6)",
		"conv1d x w $h seg", "f32[t x:6/2|B:4/2] shard(1: x=split B=cover/6)"},
	{"conv1d, state too short", "x f32[t 6]; w f32[6 4]; $h f32[s 6 4]", "conv1d x w $h seg", "error: a filter of width 4 needs a state of width 3, found 4"},

	{"scan, one group whole", "u f32[t 8] shard(1: split); d f32[t 8] shard(1: split); A f32[8 3] shard(0: split); B f32[t 3/3]; C f32[t 3/3]; $h f32[s 8 3] shard(1: split)",
		"selective_scan u d A B C $h seg", "f32[t 8] shard(1: split)"},
	{"scan, dt whole", "u f32[t 8] shard(1: split); d f32[t 8]; A f32[8 3] shard(0: split); B f32[t 3/3]; C f32[t 3/3]; $h f32[s 8 3] shard(1: split)",
		"selective_scan u d A B C $h seg", "error: operand 1 is whole on (g q) where another operand is split: shard it first"},
	{"scan, B partial", "u f32[t 8] shard(1: split); d f32[t 8] shard(1: split); A f32[8 3] shard(0: split); B f32[t 3/3] partial; C f32[t 3/3]; $h f32[s 8 3] shard(1: split)",
		"selective_scan u d A B C $h seg", "error: operand 3 is a partial sum; all_reduce it first"},
	{"scan over split states", "u f32[t 8]; d f32[t 8]; A f32[8 3] shard(1: split); B f32[t 3/3]; C f32[t 3/3]; $h f32[s 8 3]",
		"selective_scan u d A B C $h seg", "error: operand 2 is split on n!, which this operation cannot split"},

	{"terms of a scan, one group whole", "u f32[t 8] shard(1: split); d f32[t 8] shard(1: split); A f32[8 3] shard(0: split); B f32[t 3/3]",
		"scan_terms u d A B", "f32[t 8 3] shard(1: split)"},
	{"terms of a scan, A whole", "u f32[t 8] shard(1: split); d f32[t 8] shard(1: split); A f32[8 3]; B f32[t 3/3]",
		"scan_terms u d A B", "error: operand 2 is whole on (g q) where another operand is split: shard it first"},
	{"terms of a scan, dt partial", "u f32[t 8]; d f32[t 8] partial; A f32[8 3]; B f32[t 3/3]", "scan_terms u d A B", "error: operand 1 is a partial sum; all_reduce it first"},
	{"prefixes of split channels", "x f32[t 8 3] shard(1: split); y f32[t 8 3] shard(1: split)", "scan_prefix x y seg", "f32[t 8 3] shard(1: split)"},
	{"prefixes of split states", "x f32[t 8 3] shard(2: split); y f32[t 8 3] shard(2: split)", "scan_prefix x y seg",
		"error: operand 0 is split on n!, which this operation cannot split"},
	{"prefixes of some tokens", "x f32[t 8 3] shard(0: even); y f32[t 8 3] shard(0: even)", "scan_prefix x y seg",
		"error: operand 0 is split on t!, which this operation cannot split"},
	{"output of a scan, C whole", "p f32[t 8 3] shard(1: split); q f32[t 8 3] shard(1: split); C f32[t 3/3]; $h f32[s 8 3] shard(1: split)",
		"scan_output p q C $h seg", "f32[t 8] shard(1: split)"},
	{"output of a scan, sums partial", "p f32[t 8 3]; q f32[t 8 3] partial; C f32[t 3/3]; $h f32[s 8 3]",
		"scan_output p q C $h seg", "error: operand 1 is a partial sum; all_reduce it first"},

	{"delta rule", delta("d", "cover/6", "split"), deltaNode, "f32[t 24/4] shard(1: split)"},
	{"delta rule, a decay for each row of the state", delta("d:3", "cover/6", "split"), deltaNode, "f32[t 24/4] shard(1: split)"},
	{"delta rule, two decays for a head", delta("d:2", "cover/6", "split"), deltaNode,
		"error: operand 3 has 2 decays for each head of operand 2; it must be 1, or 3, the width of a head of keys"},
	{"delta rule, heads of keys whole", strings.ReplaceAll(delta("d", "whole", "split"), " shard(1: whole)", ""), deltaNode, "f32[t 24/4] shard(1: split)"},
	{"delta rule, heads of keys split among ranks", delta("d", "split", "split"), deltaNode,
		"error: operand 0: rank 0 holds groups [{0 0}] of (g n!) and needs {0 1}"},
	{"delta rule, decays whole", strings.Replace(delta("d", "cover/6", "split"), "g f32[t 6/1] shard(1: split)", "g f32[t 6/1]", 1), deltaNode,
		"error: operand 3 is whole on (g q r!) where another operand is split: shard it first"},
	{"delta rule, keys partial", strings.Replace(delta("d", "cover/6", "split"), "k f32[t 6/3] shard(1: cover/6)", "k f32[t 6/3] partial", 1), deltaNode,
		"error: operand 1 is a partial sum; all_reduce it first"},
	{"delta rule, rows of the state split", strings.Replace(delta("d", "cover/6", "split"), "$h f32[s 6 3 4] shard(1: split)", "$h f32[s 6 3 4] shard(2: split)", 1), deltaNode,
		"error: operand 5 is split on n!, which this operation cannot split"},
	{"norms of heads", "x f32[t 12/4] shard(1: split); w f32[4]", "head_rmsnorm x w {eps=1}", "f32[t 12/4] shard(1: split)"},
	{"norms of heads, cut inside", "x f32[t 12/2] shard(1: split); w f32[4]", "head_rmsnorm x w {eps=1}",
		"error: operand 0 is f32[t 12/2] shard(1: split) over 4 ranks: rank 0 starts or ends inside a unit of 4 of (h p!)"},
	{"norms of heads, the weight split", "x f32[t 12/4]; w f32[4] shard(0: split)", "head_rmsnorm x w {eps=1}",
		"error: operand 1 is split on p!, which this operation cannot split"},
	{"norms of heads that are covered", "x f32[t 8/4] shard(1: cover/6)", "head_l2norm x {eps=1}", "f32[t 8/4] shard(1: cover/6)"},
	{"norms of a partial sum", "x f32[t 8/4] partial", "head_l2norm x {eps=1}", "error: operand 0 is a partial sum; all_reduce it first"},
	{"a partial sum plus a number", "x f32[t 8] partial", "plus x {by=1}", "error: operand 0 is a partial sum; all_reduce it first"},
	{"ssd, fewer groups than ranks, covered", ssd("cover/6"), "ssd_scan x d A B C $h seg", "f32[t 24/4] shard(1: split)"},
	{"ssd, groups whole", strings.ReplaceAll(ssd("whole"), " shard(1: whole)", ""), "ssd_scan x d A B C $h seg", "f32[t 24/4] shard(1: split)"},
	{"ssd, groups split among ranks", ssd("split"), "ssd_scan x d A B C $h seg", "error: operand 3: rank 0 holds groups [{0 0}] of (g n!) and needs {0 1}"},
	{"ssd, groups covered as for other heads that need the same", ssd("cover/10"), "ssd_scan x d A B C $h seg", "f32[t 24/4] shard(1: split)"},
	{"ssd, groups of B covered and of C whole", strings.Replace(ssd("cover/6"), "C f32[t 6/3] shard(1: cover/6)", "C f32[t 6/3]", 1), "ssd_scan x d A B C $h seg",
		"error: operands 3 and 4 hold different groups of (g n!) on rank 0"},
	{"ssd, only groups cut", "x f32[t 24/4]; d f32[t 6]; A f32[6]; B f32[t 6/3] shard(1: cover/6); C f32[t 6/3]; $h f32[s 6 4 3]", "ssd_scan x d A B C $h seg",
		"error: operand 0 is whole on (g q p!) where another operand is split: shard it first"},

	{"add_rmsnorm, whole", "x f32[t 8]; y f32[t 8]; w f32[8]", "add_rmsnorm x y w {eps=1e-5}", "f32[t 8]"},
	{"add_rmsnorm, both partial", "p f32[t 8] partial; q f32[t 8] partial; w f32[8]", "add_rmsnorm p q w {eps=1e-5}",
		"error: operand 0 is a partial sum; all_reduce it first"},
	{"add_rmsnorm over split channels", "x f32[t 8] shard(1: split); y f32[t 8] shard(1: split); w f32[8] shard(0: split)", "add_rmsnorm x y w {eps=1e-5}",
		"error: operand 0 is split on d!, which this operation cannot split"},
	{"conv1d_silu, split and covered fields", "x f32[t x:6/2|B:4/2] shard(1: x=split B=cover/6); w f32[x:6/2|B:4/2 4] shard(0: x=split B=cover/6); b f32[x:6/2|B:4/2] shard(0: x=split B=cover/6); $h f32[s x:6/2|B:4/2 3] shard(1: x=split B=cover/6)",
		"conv1d_silu x w b $h seg", "f32[t x:6/2|B:4/2] shard(1: x=split B=cover/6)"},
	{"conv1d_silu, bias whole", "x f32[t 8] shard(1: split); w f32[8 4] shard(0: split); b f32[8]; $h f32[s 8 3] shard(1: split)", "conv1d_silu x w b $h seg",
		"error: operand 2 is whole on c where another operand is split: shard it first"},
	{"conv1d_silu of a partial sum", "p f32[t 8] partial; w f32[8 4]; b f32[8]; $h f32[s 8 3]", "conv1d_silu p w b $h seg",
		"error: operand 0 is a partial sum; all_reduce it first"},
	{"conv1d_silu, state too short", "x f32[t 6]; w f32[6 4]; b f32[6]; $h f32[s 6 4]", "conv1d_silu x w b $h seg", "error: a filter of width 4 needs a state of width 3, found 4"},
	{"unbiased_conv1d_silu, split and covered fields", "x f32[t x:6/2|B:4/2] shard(1: x=split B=cover/6); w f32[x:6/2|B:4/2 4] shard(0: x=split B=cover/6); $h f32[s x:6/2|B:4/2 3] shard(1: x=split B=cover/6)",
		"unbiased_conv1d_silu x w $h seg", "f32[t x:6/2|B:4/2] shard(1: x=split B=cover/6)"},
	{"unbiased_conv1d_silu of a partial sum", "p f32[t 8] partial; w f32[8 4]; $h f32[s 8 3]", "unbiased_conv1d_silu p w $h seg",
		"error: operand 0 is a partial sum; all_reduce it first"},
	{"unbiased_conv1d_silu, state too short", "x f32[t 6]; w f32[6 4]; $h f32[s 6 4]", "unbiased_conv1d_silu x w $h seg", "error: a filter of width 4 needs a state of width 3, found 4"},
	{"silu_mul, the factor partial", "x f32[t 8]; p f32[t 8] partial", "silu_mul x p", "f32[t 8] partial"},
	{"silu_mul, the gate partial", "p f32[t 8] partial; x f32[t 8]", "silu_mul p x", "error: operand 0 is a partial sum; all_reduce it first"},
	{"silu_mul, both split", "x f32[t 8] shard(1: split); y f32[t 8] shard(1: split)", "silu_mul x y", "f32[t 8] shard(1: split)"},
	{"bias_softplus, split", "x f32[t 8] shard(1: split); b f32[8] shard(0: split)", "bias_softplus x b", "f32[t 8] shard(1: split)"},
	{"bias_softplus, both partial", "p f32[t 8] partial; b f32[8] partial", "bias_softplus p b", "error: operand 0 is a partial sum; all_reduce it first"},
	{"add_scaled, both partial", "p f32[t 8] partial; q f32[t 8] partial; d f32[8]", "add_scaled p q d", "f32[t 8] partial"},
	{"add_scaled, one partial", "x f32[t 8]; p f32[t 8] partial; d f32[8]", "add_scaled x p d",
		"error: operand 1 is a partial sum and operand 0 is not; all_reduce the first, or make a term of the second"},
	{"add_scaled, factors partial", "x f32[t 8]; y f32[t 8]; d f32[8] partial", "add_scaled x y d", "error: operand 2 is a partial sum; all_reduce it first"},
	{"add_scaled per head", "y f32[t 20/4] shard(1: split); x f32[t 20/4] shard(1: split); d f32[5] shard(0: split)", "add_scaled y x d", "f32[t 20/4] shard(1: split)"},
	{"add_scaled per head, cut inside", "y f32[t 20] shard(1: split); x f32[t 20] shard(1: split); d f32[10] shard(0: split)", "add_scaled y x d",
		"error: operand 0 is f32[t 20] shard(1: split) over 4 ranks: rank 0 starts or ends inside a unit of 2 of (h p!)"},

	{"choose", chooseLeaves("40", "2"), "choose x choice s", "i32[o]"},
	{"choose of logits in fields", chooseLeaves("a:20|b:20", "2"), "choose x choice s", "i32[o]"},
	{"choose, logits split", strings.Replace(chooseLeaves("40", "2"), "40]", "40] shard(1: split)", 1), "choose x choice s", "error: operand 0 is split on v!, which this operation cannot split"},
	{"choose of a partial sum", strings.Replace(chooseLeaves("40", "2"), "40]", "40] partial", 1), "choose x choice s", "error: operand 0 is a partial sum; all_reduce it first"},
	{"choose, a bit per token", chooseLeaves("32", "1"), "choose x choice s", "i32[o]"},
	{"choose, one bit too few", chooseLeaves("33", "1"), "choose x choice s", "error: operand 2 must have a bit per token: 2 words for a vocabulary of 33, found 1"},
	{"choose, other columns", "x f32[o 40]; c f32[o 6]; s i32[o 2]", "choose x c s",
		"error: operand 1 must say how a token is chosen, f32[o temperature:1|top_k:1|top_p:1|penalty:1|uniform:1|uniform_rest:1], found f32[o 6]"},
	{"choose, rows of something else", "x f32[t 40]; " + strings.SplitN(chooseLeaves("40", "2"), "; ", 2)[1], "choose x choice s", "error: o is o in operand 1 and t before"},
	{"choose, logits rounded", "x bf16[o 40]; " + strings.SplitN(chooseLeaves("40", "2"), "; ", 2)[1], "choose x choice s", "error: operand 0 is bf16; it must be f32"},

	{"field, split", "x f32[t a:6|b:3] shard(1: a=split b=whole)", "field x {name=a}", "f32[t 6] shard(1: split)"},
	{"field, whole", "x f32[t a:6|b:3] shard(1: a=split b=whole)", "field x {name=b}", "f32[t 3]"},
	{"field of a partial sum", "p f32[t a:6|b:3] partial", "field p {name=b}", "f32[t 3] partial"},
	{"field, other axis split", "x f32[a:6|b:3 8] shard(1: split)", "field x {name=b axis=0}", "f32[3 8] shard(1: split)"},
	{"field, a run", "x f32[t z:6|x:6|B:3] shard(1: z=split x=split B=whole)", `field x {name="x|B"}`, "f32[t x:6|B:3] shard(1: x=split B=whole)"},
	{"field, a whole run", "x f32[t z:6|x:6|B:3] shard(1: z=split x=whole B=whole)", `field x {name="x|B"}`, "f32[t x:6|B:3]"},
	{"field, no run", "x f32[t z:6|x:6|B:3]", `field x {name="z|B"}`, `error: no field "z|B" in z:6|x:6|B:3`},
	{"field, no such", "x f32[t a:6|b:3]", "field x {name=c}", `error: no field "c" in a:6|b:3`},

	{"all_reduce", "p f32[t 8] partial", "all_reduce p", "f32[t 8]"},
	{"all_reduce of a whole value", "x f32[t 8]", "all_reduce x", "error: operand 0 is not a partial sum: every rank would add what it already has whole"},
	{"all_gather", "x f32[t 8] shard(1: split)", "all_gather x", "f32[t 8]"},
	{"all_gather of a whole value", "x f32[t 8]", "all_gather x", "error: operand 0 is not sharded: there is nothing to gather"},
	{"all_reduce of parts", "x f32[t 8] shard(1: split)", "all_reduce x", "error: operand 0 is split, not a partial sum; all_gather makes it whole"},
	{"all_reduce of several", "p f32[t 8] partial; q f32[t 3] partial", "all_reduce p q", "f32[t 8]"},
	{"all_reduce of several, one whole", "p f32[t 8] partial; x f32[t 3]", "all_reduce p x", "error: operand 1 is not a partial sum: every rank would add what it already has whole"},
	{"all_reduce of nothing", "p f32[t 8] partial", "all_reduce", "error: no operand is given"},
	{"all_reduce, added in another format", "p f32[t 8] partial", `all_reduce p {acc="f64"}`, `error: attribute acc is "f64"; it must be f32`},
	{"all_gather of several", "x f32[t 8] shard(1: split)", "all_gather x x", alone("f32[t 8] shard(1: split)", "f32[t 8] shard(1: split)")},
	{"all_gather of several of the same tokens", "x f32[t] shard(0: even); y bf16[t 8] shard(0: even)", "all_gather x y", "f32[t]"},
	{"all_gather of other shares of the tokens", "x f32[t 8] shard(0: even); y f32[t 8] shard(0: sequence)", "all_gather x y", alone("f32[t 8] shard(0: sequence)", "f32[t 8] shard(0: even)")},
	{"all_gather of shares of other rows", "x f32[t 8] shard(0: even); y f32[o 8] shard(0: even)", "all_gather x y", alone("f32[o 8] shard(0: even)", "f32[t 8] shard(0: even)")},
	{"all_gather of tokens and channels", "x f32[t 8] shard(0: even); y f32[t 8] shard(1: split)", "all_gather x y", alone("f32[t 8] shard(1: split)", "f32[t 8] shard(0: even)")},
	{"reduce_scatter of several", "p f32[t 8] partial; q f32[t] partial", "reduce_scatter p q {axis=0 place=even}", "f32[t 8] shard(0: even)"},
	{"reduce_scatter of several to channels", "p f32[t 8] partial; q f32[t 4] partial", "reduce_scatter p q", alone("f32[t 4] partial", "f32[t 8] partial")},
	{"reduce_scatter of several, of other rows", "p f32[t 8] partial; q f32[o 8] partial", "reduce_scatter p q {axis=0 place=even}", alone("f32[o 8] partial", "f32[t 8] partial")},
	{"reduce_scatter of several, one whole", "p f32[t 8] partial; q f32[t 8]", "reduce_scatter p q {axis=0 place=even}", "error: operand 1 is not a partial sum: every rank would add what it already has whole"},
	{"reduce_scatter of nothing", "p f32[t 8] partial", "reduce_scatter {axis=0 place=even}", "error: no operand is given"},
	{"all_gather of a partial sum", "p f32[t 8] partial", "all_gather p", "error: operand 0 is not sharded: there is nothing to gather"},
	{"reduce_scatter of a whole value", "x f32[t 8]", "reduce_scatter x", "error: operand 0 is not a partial sum: every rank would add what it already has whole"},
	{"reduce_scatter over tokens", "p f32[t 8] partial", "reduce_scatter p {axis=0}",
		"error: axis 0 of f32[t 8] partial cannot be split without a place for its rows: even, sequence or parts"},
	{"reduce_scatter over tokens, even", "p f32[t 8] partial", "reduce_scatter p {axis=0 place=even}", "f32[t 8] shard(0: even)"},
	{"reduce_scatter over tokens, by sequence", "p f32[t 8] partial", "reduce_scatter p {axis=0 place=sequence}", "f32[t 8] shard(0: sequence)"},
	{"reduce_scatter over rows by sequence", "p f32[o 8] partial", "reduce_scatter p {axis=0 place=sequence}", "error: o is split by sequence; only t may be"},
	{"reduce_scatter over tokens, otherwise", "p f32[t 8] partial", "reduce_scatter p {axis=0 place=odd}", `error: place is "odd"; the rows of a batch lie even, by sequence or in parts`},
	{"reduce_scatter over channels, even", "p f32[t 8] partial", "reduce_scatter p {axis=1 place=even}",
		"error: axis 1 of f32[t 8] partial is not the rows of a batch, and only those can be even; leave the place out"},
	{"all_gather of tokens", "x f32[t 8] shard(0: sequence)", "all_gather x", "f32[t 8]"},
	{"all_reduce of tokens", "x f32[t 8] shard(0: even)", "all_reduce x", "error: operand 0 is split, not a partial sum; all_gather makes it whole"},
	{"shard of parts", "x f32[t 8] shard(1: split)", "shard x", "error: operand 0 is not whole on every rank"},
	{"reduce_scatter", "p f32[t 8] partial", "reduce_scatter p", "f32[t 8] shard(1: split)"},
	{"shard", "x f32[t a:6|b:3]", "shard x", "f32[t a:6|b:3] shard(1: a=split b=split)"},
	{"shard over tokens", "x f32[t 8]", "shard x {axis=0}",
		"error: axis 0 of f32[t 8] cannot be split without a place for its rows: even, sequence or parts"},
	{"shard over tokens, even", "x f32[t 8]", "shard x {axis=0 place=even}", "f32[t 8] shard(0: even)"},
	{"shard of rows again", "x f32[t 8] shard(0: even)", "shard x {axis=0 place=sequence}", "error: operand 0 is not whole on every rank"},
	{"term", "x f32[t 8]", "term x", "f32[t 8] partial"},
	{"term of a partial sum", "p f32[t 8] partial", "term p", "error: operand 0 is not whole on every rank"},
}

// alone is the error where operand 1 cannot travel with operand 0.
func alone(second, first string) string {
	return "error: operand 1, " + second + ", cannot share a launch with operand 0, " + first + ": operands of one launch must be split in the same rows of the batch; use one collective each"
}

const deltaNode = "delta_scan q k v g b $h seg {scale=1.0}"

// delta has the leaves of a delta_scan of 6 heads of values and 2 of keys: with one decay for a
// head, or n for "d:n", and placements of heads of keys and of values.
func delta(decays, keys, values string) string {
	g := map[string]string{"d": "6/1", "d:2": "12/2", "d:3": "18/3"}[decays]
	text := "q f32[t 6/3] shard(1: K); k f32[t 6/3] shard(1: K); v f32[t 24/4] shard(1: V); g f32[t G] shard(1: V); b f32[t 6/1] shard(1: V); $h f32[s 6 3 4] shard(1: V)"
	return strings.NewReplacer("K", keys, "V", values, "G", g).Replace(text)
}

// ssd gives leaves with 6 heads in 2 groups, split over 4 ranks.
func ssd(groups string) string {
	return strings.ReplaceAll("x f32[t 24/4] shard(1: split); d f32[t 6] shard(1: split); A f32[6] shard(0: split); "+
		"B f32[t 6/3] shard(1: G); C f32[t 6/3] shard(1: G); $h f32[s 6 4 3] shard(1: split)", "G", groups)
}

// chooseLeaves are logits of a vocabulary, and bits in a number of words.
func chooseLeaves(vocab, words string) string {
	return "x f32[o " + vocab + "]; choice " + ChoiceType().String() + "; s i32[o " + words + "]"
}

func TestDerive(t *testing.T) {
	for _, c := range deriveCases {
		t.Run(c.name, func(t *testing.T) {
			g, node := deriveGraph(t, c.leaves, c.node)
			got := ""
			if types, err := infer(node, g.Ranks); err != nil {
				got = "error: " + err.Error()
			} else {
				got = types[0].String()
			}
			if got != c.want {
				t.Errorf("%s\ngot  %s\nwant %s", c.node, got, c.want)
			}
		})
	}
}

// deriveGraph makes inputs and states of the leaves and the node on top.
func deriveGraph(t *testing.T, leaves, node string) (*Graph, *Node) {
	t.Helper()
	text := "graph \"t\" stage=partitioned ranks=4\ninput %seg : i32[s 3]\n"
	for leaf := range strings.SplitSeq(leaves, "; ") {
		name, typ, _ := strings.Cut(leaf, " ")
		kind := "input"
		if strings.HasPrefix(name, "$") {
			kind = "state"
		}
		text += kind + " %" + strings.TrimPrefix(name, "$") + " : " + typ + "\n"
	}
	g, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	rest, attrs, _ := strings.Cut(node, "{")
	words := strings.Fields(rest)
	op, ok := Lookup(words[0])
	if !ok {
		t.Fatalf("no operation %s", words[0])
	}
	n := &Node{Op: op}
	for _, w := range words[1:] {
		v, ok := g.Value(strings.TrimPrefix(w, "$"))
		if !ok {
			t.Fatalf("no value %s", w)
		}
		n.Args = append(n.Args, v)
	}
	s := &scanner{"{" + attrs}
	if attrs == "" {
		s.rest = ""
	}
	if n.Attrs, err = op.complete(s.attrs(op)); err != nil {
		t.Fatal(err)
	}
	return g, n
}

// TestDeriveContractedIndex is the rule of a projection per head, where the
// index that ranks own is contracted but for its heads.
func TestDeriveContractedIndex(t *testing.T) {
	r := rule("t (h k), h n k -> t h n")
	tokens := Symbol(Tokens)
	split := func(axis int, d ...Dim) Type { return Type{DType: F32, Dims: d, Layout: SplitOn(axis, 1)} }
	for _, c := range []struct {
		name  string
		in    []Type
		ranks int
		want  string
	}{
		{"ranks own whole heads", []Type{split(1, tokens, Size(12)), split(0, Size(4), Size(5), Size(3))}, 2, "shard"},
		{"ranks share heads, weight covered", []Type{split(1, tokens, Size(12)),
			{DType: F32, Dims: []Dim{Size(2), Size(5), Size(6)}, Layout: Layout{Sharded, 0, []Placement{{Cover, 12}}}}}, 4, "partial"},
		{"ranks share heads, weight whole", []Type{split(1, tokens, Size(12)), TypeOf(F32, Size(2), Size(5), Size(6))}, 4, "partial"},
		{"ranks share heads, weight split", []Type{split(1, tokens, Size(12)), split(0, Size(2), Size(5), Size(6))}, 4, "error"},
		{"inner letter cut", []Type{TypeOf(F32, tokens, Size(12)), split(2, Size(2), Size(5), Size(6))}, 2, "error"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, err := r.bind(c.in, nil)
			if err != nil {
				t.Fatal(err)
			}
			got := "error"
			if l, err := b.derive(c.in, &Op{}, c.ranks); err == nil {
				got = map[LayoutKind]string{Replicated: "whole", Sharded: "shard", Partial: "partial"}[l[0].Kind]
			} else {
				t.Log(err)
			}
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

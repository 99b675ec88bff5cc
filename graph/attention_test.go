package graph

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

type transformerCase struct{ name, leaves, node, want string }

// transformerCases are as deriveCases, but want the types of all results.
var transformerCases = slices.Concat(expertCases("experts", expertsNode), expertCases("ungated experts", ungatedNode), []transformerCase{
	// 6 heads of 2 channels in 2 groups: ranks have heads {0}, {1 2}, {3}, {4 5}.
	{"attention, all whole", attendedBut(), attentionNode,
		"f32[t 12/2]; f32[s c 4/2]; f32[s c 4/2]"},
	{"attention, groups covered", attended(6, 2, "split", "cover/6", "cover/6", "cover/6"), attentionNode,
		"f32[t 12/2] shard(1: split); f32[s c 4/2] shard(2: cover/6); f32[s c 4/2] shard(2: cover/6)"},
	{"attention, keys whole, caches covered", attended(6, 2, "split", "whole", "cover/6", "cover/6"), attentionNode,
		"f32[t 12/2] shard(1: split); f32[s c 4/2] shard(2: cover/6); f32[s c 4/2] shard(2: cover/6)"},
	{"attention, keys and caches whole", attended(6, 2, "split", "whole", "whole", "whole"), attentionNode,
		"f32[t 12/2] shard(1: split); f32[s c 4/2]; f32[s c 4/2]"},
	{"attention, as many groups as ranks", attended(8, 4, "split", "split", "split", "cover/8"), attentionNode,
		"f32[t 16/2] shard(1: split); f32[s c 8/2] shard(2: split); f32[s c 8/2] shard(2: cover/8)"},
	{"attention, one group", attended(6, 1, "split", "whole", "whole", "whole"), attentionNode,
		"f32[t 12/2] shard(1: split); f32[s c 2/2]; f32[s c 2/2]"},
	{"attention, one group, held where a rank has heads", attended(3, 1, "split", "cover/3", "cover/3", "cover/3"), attentionNode,
		"f32[t 6/2] shard(1: split); f32[s c 2/2] shard(2: cover/3); f32[s c 2/2] shard(2: cover/3)"},
	{"attention, a group per head", attended(6, 6, "split", "split", "split", "split"), attentionNode,
		"f32[t 12/2] shard(1: split); f32[s c 12/2] shard(2: split); f32[s c 12/2] shard(2: split)"},

	{"attention, caches whole and keys covered", attended(6, 2, "split", "cover/6", "whole", "whole"), attentionNode,
		"error: operand 3 is whole on every rank, and operand 1 has only some of its (g p!)"},
	{"attention, caches whole and keys split", attended(8, 4, "split", "split", "whole", "whole"), attentionNode,
		"error: operand 3 is whole on every rank, and operand 1 has only some of its (g p!)"},
	{"attention, one cache whole", attended(6, 2, "split", "whole", "whole", "cover/6"), attentionNode,
		"error: operand 3 is whole on every rank, and operand 4 has only some of its (g p!)"},
	{"attention, caches split more narrowly than heads need", attended(6, 2, "split", "cover/6", "split", "split"), attentionNode,
		"error: operand 3: rank 0 holds groups [{0 0}] of (g p!) and needs {0 1}"},
	{"attention, keys split more narrowly than heads need", attended(6, 2, "split", "split", "cover/6", "cover/6"), attentionNode,
		"error: operand 1: rank 0 holds groups [{0 0}] of (g p!) and needs {0 1}"},
	// In 3 groups, rank 2 has group 1 of those that 6 heads share, and 1 and 2 of those that 12 do.
	{"attention, caches wider than needed", attended(6, 3, "split", "cover/12", "cover/12", "cover/12"), attentionNode,
		"f32[t 12/2] shard(1: split); f32[s c 6/2] shard(2: cover/12); f32[s c 6/2] shard(2: cover/12)"},
	{"attention, keys wider than caches", attended(6, 3, "split", "cover/12", "cover/6", "cover/6"), attentionNode,
		"f32[t 12/2] shard(1: split); f32[s c 6/2] shard(2: cover/6); f32[s c 6/2] shard(2: cover/6)"},
	{"attention, caches wider than keys", attended(6, 3, "split", "cover/6", "cover/12", "cover/12"), attentionNode,
		"error: operand 3 holds {2 4} of (g p!) on rank 2, and operand 1 has {2 2}"},
	{"attention, one cache wider than the other", attended(6, 3, "split", "whole", "cover/6", "cover/12"), attentionNode,
		"error: operand 4 holds {2 4} of (g p!) on rank 2, and operand 3 has {2 2}"},

	{"attention, only keys split", attended(8, 4, "whole", "split", "split", "split"), attentionNode,
		"error: operand 0 is whole on (g q p!) where another operand is split: shard it first"},
	{"attention, heads covered", attended(8, 4, "cover/16", "whole", "whole", "whole"), attentionNode,
		"error: operand 0: the index (gq) must be one field that ranks own disjointly"},
	{"attention, keys partial", attendedBut("k f32[t 4/2]", "k f32[t 4/2] partial"), attentionNode,
		"error: operand 1 is a partial sum; all_reduce it first"},

	{"attention, a state that is no cache", "q f32[t 12/2]; k f32[t 4/2]; v f32[t 4/2]; $keys f32[s 9 4/2]; $values f32[s 9 4/2]; past i32[s]", attentionNode,
		"error: operand 3 must be a cache, f32[s c …], found f32[s 9 4/2]"},
	{"attention, caches unlike", "q f32[t 12/2]; k f32[t 4/2]; v f32[t 4/2]; $keys f32[s c 4/2]; $values f32[s 9 4/2]; past i32[s]", attentionNode,
		"error: l is 9 in operand 4 and c before"},
	{"attention, segments of 4 columns", attendedBut() + "; wide i32[s 4]", "attention q k v $keys $values wide past {scale=0.5}",
		"error: operand 5 must be the segments i32[s 3], found i32[s 4]"},
	{"attention, groups do not divide heads", attended(5, 2, "whole", "whole", "whole", "whole"), attentionNode,
		"error: (g q p!) is 10 in operand 0, which 4 does not divide"},
	{"attention, keys of another size", attendedBut("k f32[t 4/2]", "k f32[t 8/2]"), attentionNode,
		"error: (g p!) is 4/2 in operand 2 and 8/2 before"},
	{"attention, caches in bf16", attendedBut("f32[s c", "bf16[s c"), attentionNode,
		"f32[t 12/2]; bf16[s c 4/2]; bf16[s c 4/2]"},
	{"attention, past in f32", attendedBut("past i32", "past f32"), attentionNode,
		"error: operand 6 is f32; it must be i32"},
	{"attention, a past per token", attendedBut("past i32[s]", "past i32[t]"), attentionNode,
		"error: s is t in operand 6 and s before"},

	{"attention of some of the queries", attendedBut("q f32[t 12/2]", "q f32[t 12/2] shard(0: even)"), attentionNode,
		"f32[t 12/2] shard(0: even); f32[s c 4/2]; f32[s c 4/2]"},
	{"attention of some of the keys", attendedBut("k f32[t 4/2]", "k f32[t 4/2] shard(0: even)"), attentionNode,
		"error: operand 1 is split on u!, which this operation cannot split"},
	{"attention of some of the queries and heads", strings.Replace(attended(6, 2, "whole", "split", "split", "split"), "q f32[t 12/2]", "q f32[t 12/2] shard(0: even)", 1), attentionNode,
		"error: operand 1 is split on g and another operand on t: only one may be: the 4 ranks would have 4 of the 16 blocks of the product; all_gather the rows first"},
	{"attention, keys of other rows", attendedBut("k f32[t 4/2]", "k f32[o 4/2]"), attentionNode,
		"error: u is t in operand 2 and o before"},
	{"attention, keys and values of other rows", attendedBut("k f32[t", "k f32[o", "v f32[t", "v f32[o"), attentionNode,
		"error: operand 1 is of o, and the queries are of t; they must be of the same tokens"},
	{"rotary of some of the tokens", "x f32[t 12/4] shard(0: sequence); past i32[s]", "rotary x seg past {theta=100 dims=4}", "f32[t 12/4] shard(0: sequence)"},
	{"rotary", "x f32[t 12/4]; past i32[s]", "rotary x seg past {theta=100 dims=4}", "f32[t 12/4]"},
	{"rotary of nothing", "x f32[t 12/4]; past i32[s]", "rotary x seg past {theta=100 dims=0}", "f32[t 12/4]"},
	{"rotary, heads split", "x f32[t 12/4] shard(1: split); past i32[s]", "rotary x seg past {theta=100 dims=2}", "f32[t 12/4] shard(1: split)"},
	{"rotary, groups covered", "x f32[t 8/4] shard(1: cover/6); past i32[s]", "rotary x seg past {theta=100 dims=2}", "f32[t 8/4] shard(1: cover/6)"},
	{"rotary of a partial sum", "p f32[t 12/4] partial; past i32[s]", "rotary p seg past {theta=100 dims=2}", "error: operand 0 is a partial sum; all_reduce it first"},
	{"rotary, dims odd", "x f32[t 12/4]; past i32[s]", "rotary x seg past {theta=100 dims=3}",
		"error: attribute dims is 3; it must be even and at most 4, the size of a head"},
	{"rotary, theta 0", "x f32[t 12/4]; past i32[s]", "rotary x seg past {theta=0 dims=4}", "error: attribute theta is 0; it must be above 0"},
	{"rotary, dims negative", "x f32[t 12/4]; past i32[s]", "rotary x seg past {theta=100 dims=-2}",
		"error: attribute dims is -2; it must be even and at most 4, the size of a head"},
	{"rotary, dims more than a head", "x f32[t 12/4]; past i32[s]", "rotary x seg past {theta=100 dims=6}",
		"error: attribute dims is 6; it must be even and at most 4, the size of a head"},
	{"rotary, segments of 4 columns", "x f32[t 12/4]; wide i32[s 4]; past i32[s]", "rotary x wide past {theta=100 dims=4}",
		"error: operand 1 must be the segments i32[s 3], found i32[s 4]"},
	{"rotary, a fixed number of sequences", "x f32[t 12/4]; two i32[2 3]; past i32[2]", "rotary x two past {theta=100 dims=4}",
		"error: operand 2 must be the past i32[s], found i32[2]"},

	{"router", "x f32[t 8]", "router x {top=2}", "f32[t 8]"},
	{"router, all stay", "x f32[t 8]", "router x {top=8 norm=1}", "f32[t 8]"},
	{"router, experts split", "x f32[t 8] shard(1: split)", "router x {top=2}", "error: operand 0 is split on e!, which this operation cannot split"},
	{"router of a partial sum", "p f32[t 8] partial", "router p {top=2}", "error: operand 0 is a partial sum; all_reduce it first"},
	{"router, none stay", "x f32[t 8]", "router x {top=0}", "error: attribute top is 0; it must be 1 to 8, the experts"},
	{"router, more than all stay", "x f32[t 8]", "router x {top=9}", "error: attribute top is 9; it must be 1 to 8, the experts"},
	{"router, norm negative", "x f32[t 8]", "router x {top=2 norm=-1}", "error: attribute norm is -1; it must be 0 or 1"},
	{"router, norm of 2", "x f32[t 8]", "router x {top=2 norm=2}", "error: attribute norm is 2; it must be 0 or 1"},

	{"experts, hidden units split in one weight", expert("", " shard(1: split)", ""), expertsNode,
		"error: operand 4 is whole on i where another operand is split: shard it first"},
	{"experts, no such function", expert("", "", ""), "experts x p gate up down {act=tanh top=2}",
		`error: attribute act is "tanh"; it must be one of [silu gelu gelu_tanh relu relu2]`},
	{"experts, none used", expert("", "", ""), "experts x p gate up down {top=0}", "error: attribute top is 0; it must be 1 to 3, the experts"},
	{"sigmoid router", "x f32[t 8]; b f32[8]", "sigmoid_router x b {top=2 norm=1}", "f32[t 8]"},
	{"sigmoid router of some tokens", "x f32[t 8] shard(0: even); b f32[8]", "sigmoid_router x b {top=2}", "f32[t 8] shard(0: even)"},
	{"sigmoid router, experts split", "x f32[t 8] shard(1: split); b f32[8]", "sigmoid_router x b {top=2}", "error: operand 0 is split on (g! e!), which this operation cannot split"},
	{"sigmoid router, bias split", "x f32[t 8]; b f32[8] shard(0: split)", "sigmoid_router x b {top=2}", "error: operand 1 is split on (g! e!), which this operation cannot split"},
	{"sigmoid router of a partial sum", "p f32[t 8] partial; b f32[8]", "sigmoid_router p b {top=2}", "error: operand 0 is a partial sum; all_reduce it first"},
	{"sigmoid router of groups", "x f32[t 8]; b f32[8]", "sigmoid_router x b {groups=4 kept=2 top=2}", "f32[t 8]"},
	{"sigmoid router of uneven groups", "x f32[t 8]; b f32[8]", "sigmoid_router x b {groups=3 top=1}", "error: (g! e!) is 8 in operand 0, which 3 does not divide"},
	{"sigmoid router of many groups", "x f32[t 130]; b f32[130]", "sigmoid_router x b {groups=65 top=1}", "error: attribute groups is 65; it must be 1 to 64"},
	{"sigmoid router, more than a group has", "x f32[t 8]; b f32[8]", "sigmoid_router x b {groups=4 top=3}", "error: attribute top is 3; it must be 1 to 2, the experts"},
	{"sigmoid router, a bias of others", "x f32[t 8]; b f32[7]", "sigmoid_router x b {top=2}", "error: (g! e!) is 7 in operand 1 and 8 before"},
	{"sigmoid router, more than all stay", "x f32[t 8]; b f32[8]", "sigmoid_router x b {top=9}", "error: attribute top is 9; it must be 1 to 8, the experts"},

	{"ungated experts with a gate", expert("", "", ""), "ungated_experts x p gate up down {top=2}", "error: 5 operands given, 4 required"},

	{"experts, more than all used", expert("", "", ""), "experts x p gate up down {top=4}", "error: attribute top is 4; it must be 1 to 3, the experts"},
})

// expertCases are those of experts, gated or not.
func expertCases(name, node string) []transformerCase {
	return []transformerCase{
		{name, expert("", "", ""), node, "f32[t 6]"},
		{name + ", hidden units split", expert("", " shard(1: split)", " shard(2: split)"), node, "f32[t 6] partial"},
		{name + ", results split", expert("", "", " shard(1: split)"), node, "f32[t 6] shard(1: split)"},
		{name + " split among ranks", expert("", " shard(0: split)", " shard(0: split)"), node, "error: operand 2 is split on e!, which this operation cannot split"},
		{name + ", activation split", expert(" shard(1: split)", "", ""), node, "error: operand 0 is split on k!, which this operation cannot split"},
		{name + ", activation partial", expert(" partial", "", ""), node, "error: operand 0 is a partial sum; all_reduce it first"},
	}
}

const (
	attentionNode = "attention q k v $keys $values seg past {scale=0.5}"
	expertsNode   = "experts x p gate up down {top=2}"
	ungatedNode   = "ungated_experts x p up down {top=2}"
)

// attended gives leaves with heads of 2 channels, in groups, and the placements
// of q, of k and v, and of the caches.
func attended(heads, groups int, q, kv, keys, values string) string {
	part := func(name, lead string, heads int, place string) string {
		width := Units(2*heads, 2)
		if place == "whole" {
			return fmt.Sprintf("%s f32[%s %s]", name, lead, width)
		}
		return fmt.Sprintf("%s f32[%s %s] shard(%d: %s)", name, lead, width, len(strings.Fields(lead)), place)
	}
	return strings.Join([]string{part("q", "t", heads, q), part("k", "t", groups, kv), part("v", "t", groups, kv),
		part("$keys", "s c", groups, keys), part("$values", "s c", groups, values), "past i32[s]"}, "; ")
}

// attendedBut gives leaves of 6 heads in 2 groups, whole, with some text for other.
func attendedBut(oldnew ...string) string {
	return strings.NewReplacer(oldnew...).Replace(attended(6, 2, "whole", "whole", "whole", "whole"))
}

// expert gives leaves of 3 experts with 8 hidden units, and the layouts of x, of
// gate and up, and of down.
func expert(x, in, out string) string {
	return "x f32[t 5]" + x + "; p f32[t 3]; gate bf16[3 8 5]" + in + "; up bf16[3 8 5]" + in + "; down bf16[3 6 8]" + out
}

// typesOf are the types of a node's operands and results.
func typesOf(t *testing.T, g *Graph, n *Node) (args, results []Type) {
	t.Helper()
	for _, v := range n.Args {
		args = append(args, v.Type)
	}
	results, err := infer(n, g.Ranks)
	if err != nil {
		t.Fatal(err)
	}
	return args, results
}

// TestAttentionOfRows: a rank that has a third of the queries has a third of the work, and all
// keys and values to keep.
func TestAttentionOfRows(t *testing.T) {
	g, n := deriveGraph(t, attendedBut(), attentionNode)
	args, results := typesOf(t, g, n)
	z := Sizes{Tokens: 30, Seqs: 2, Cached: 99, Pairs: 600}
	whole, err := CostOf(n.Op, n.Attrs, args, results)
	if err != nil {
		t.Fatal(err)
	}
	args[0].Layout, results[0].Layout = SplitRows(Even), SplitRows(Even)
	args[0], results[0] = args[0].Local(3, 0), results[0].Local(3, 0)
	third, err := CostOf(n.Op, n.Attrs, args, results)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := whole.FLOPs.At(z), third.FLOPs.At(z); b*3 != a || whole.Read.At(z)-third.Read.At(z) != 20*12*4 || whole.Write.At(z)-third.Write.At(z) != 20*12*4 {
		t.Errorf("%+v of all, %+v of a third", whole, third)
	}
}

func TestDeriveTransformer(t *testing.T) {
	for _, c := range transformerCases {
		t.Run(c.name, func(t *testing.T) { checkDerived(t, c.leaves, c.node, c.want) })
	}
}

// checkDerived compares the types of all results, or the error.
func checkDerived(t *testing.T, leaves, node, want string) {
	t.Helper()
	g, n := deriveGraph(t, leaves, node)
	types, err := infer(n, g.Ranks)
	var all []string
	for _, typ := range types {
		all = append(all, typ.String())
	}
	got := strings.Join(all, "; ")
	if err != nil {
		got = "error: " + err.Error()
	}
	if got != want {
		t.Errorf("%s\n%s\ngot  %s\nwant %s", leaves, node, got, want)
	}
}

// TestExpertsRead: a token reads the matrices of its experts, several those of as many more, and no
// number of them more than all.
func TestExpertsRead(t *testing.T) {
	leaves := "x f32[t 5]; p f32[t 8]; gate bf16[8 4 5]; up bf16[8 4 5]; down bf16[8 6 4]"
	g, n := deriveGraph(t, leaves, "experts x p gate up down {top=2}")
	args, results := typesOf(t, g, n)
	c, err := CostOf(n.Op, n.Attrs, args, results)
	if err != nil {
		t.Fatal(err)
	}
	expert := int64(2 * (4*5 + 4*5 + 6*4))
	for tokens, experts := range map[int64]int64{1: 2, 3: 6, 4: 8, 5: 8, 100: 8} {
		if want := experts*expert + tokens*4*(5+8); c.Read.At(Sizes{Tokens: tokens}) != want {
			t.Errorf("%d tokens read %d bytes, want %d", tokens, c.Read.At(Sizes{Tokens: tokens}), want)
		}
	}
}

package graph_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/graphgen"
)

// attrCase says what an attribute may just be, what it may just not be, and what
// the error says then.
type attrCase struct {
	legal, illegal []any
	want           string
}

var (
	epsCase   = attrCase{[]any{0.0, 1e-300, 1e300}, []any{-1e-300, -1.0, math.NaN(), math.Inf(-1)}, "it must be at least 0"}
	countCase = attrCase{[]any{1}, []any{0, -1, math.MinInt}, "it must be at least 1"}
	topCase   = attrCase{[]any{1, most(0)}, []any{0, -1, most(1)}, "it must be 1 to %d, the experts"}
	actCase   = attrCase{[]any{"silu", "gelu", "gelu_tanh", "relu", "relu2"}, []any{"softplus", "SILU", ""}, "it must be one of [silu gelu gelu_tanh relu relu2]"}
	typeCase  = attrCase{[]any{"f32", "f16", "bf16"}, []any{"f64", "i32", "F16", "int8", "int8/24", "q8/32", ""}, "it must be f32, f16, bf16 or a codec such as int8/32"}
	alongCase = attrCase{[]any{""}, []any{"pp", "TP", "dp"}, "it must be tp or cp"}
	wideCase  = attrCase{[]any{"f32", "f16", "bf16"}, []any{"f64", "i32", "int8/32", ""}, "it must be f32, f16 or bf16"}
)

// most is a number by its distance from the size of a letter.
type most int

var attrCases = map[string]attrCase{
	"rmsnorm eps":                    epsCase,
	"unit_rmsnorm eps":               epsCase,
	"group_rmsnorm eps":              epsCase,
	"group_rmsnorm groups":           countCase,
	"head_rmsnorm eps":               epsCase,
	"head_l2norm eps":                epsCase,
	"rms_scale eps":                  epsCase,
	"rms_scale width":                countCase,
	"rms_rows eps":                   epsCase,
	"rms_rows width":                 countCase,
	"group_sumsq groups":             countCase,
	"group_rms_scale eps":            epsCase,
	"group_rms_scale width":          countCase,
	"add_rmsnorm eps":                epsCase,
	"norm_matmul eps":                epsCase,
	"norm_matmul_add eps":            epsCase,
	"norm_gated_matmul eps":          epsCase,
	"rmsnorm_each eps":               epsCase,
	"unit_rmsnorm_each eps":          epsCase,
	"selective_scan_normed eps":      epsCase,
	"selective_scan_unit_normed eps": epsCase,
	"rotary theta":                   {[]any{1e-300, 10000.0}, []any{0.0, -1.0, math.NaN()}, "it must be above 0"},
	"rotary dims":                    {[]any{0, 2, most(0)}, []any{-2, 1, 3, most(1), most(2)}, "it must be even and at most %d, the size of a head"},
	"router top":                     topCase,
	"router norm":                    {[]any{0, 1}, []any{-1, 2}, "it must be 0 or 1"},
	"experts top":                    topCase,
	"experts act":                    actCase,
	"sigmoid_router top":             topCase,
	"sigmoid_router norm":            {[]any{0, 1}, []any{-1, 2}, "it must be 0 or 1"},
	"sigmoid_router groups":          countCase,
	"sigmoid_router kept":            {[]any{1, most(0)}, []any{0, most(1)}, "it must be 1 to %d, the groups"},
	"sigmoid_router eps":             epsCase,
	"ungated_experts top":            topCase,
	"ungated_experts act":            actCase,
	"all_reduce acc":                 {[]any{"", "f32"}, []any{"f16", "f64"}, "it must be f32"},
	"all_reduce then":                {[]any{""}, []any{"rmsnorm", "f32"}, "it must be add_rmsnorm"},
	"reduce_scatter acc":             {[]any{"", "f32"}, []any{"f16", "f64"}, "it must be f32"},
	"all_reduce along":               alongCase,
	"all_gather along":               alongCase,
	"reduce_scatter along":           alongCase,
	"shard along":                    alongCase,
	"term along":                     alongCase,
	"quantize to":                    typeCase,
	"dequantize to":                  wideCase,
	"add_experts top":                topCase,
	"add_experts act":                actCase,
	"add_ungated_experts top":        topCase,
	"add_ungated_experts act":        actCase,
	"norm_router eps":                epsCase,
	"norm_router top":                topCase,
	"norm_router norm":               {[]any{0, 1}, []any{-1, 2}, "it must be 0 or 1"},
}

// TestAttrs gives each attribute values at both sides of what its row allows, in
// a graph that is right otherwise.
func TestAttrs(t *testing.T) {
	for _, op := range graph.Ops() {
		if op.Parts {
			continue // see TestPartsRefused
		}
		for _, a := range op.Attrs {
			c, ok := attrCases[op.Name+" "+a.Name]
			if ok == a.Legal.Any() {
				t.Errorf("%s %s: is there a case? %v; may it be anything? %v", op.Name, a.Name, ok, a.Legal.Any())
			}
			if ok {
				t.Run(op.Name+" "+a.Name, func(t *testing.T) { checkAttr(t, op, a, c) })
			}
		}
	}
	for name := range attrCases {
		op, attr, _ := strings.Cut(name, " ")
		if row, ok := graph.Lookup(op); !ok || !slices.ContainsFunc(row.Attrs, func(a graph.Attr) bool { return a.Name == attr }) {
			t.Errorf("there is no attribute %s", name)
		}
	}
}

func checkAttr(t *testing.T, op *graph.Op, a graph.Attr, c attrCase) {
	g, n := using(t, op)
	size := 0
	if op.Name == "sigmoid_router" {
		n.Attrs["groups"], n.Attrs["kept"], n.Attrs["top"] = 1, 1, 1
	}
	if a.Legal.MaxOf == 'g' {
		size = n.Attrs.Int("groups")
	} else if a.Legal.MaxOf != 0 {
		if size = n.Args[0].Type.Dims[1].Len(); strings.HasSuffix(op.Name, "experts") {
			size = n.Args[1].Type.Dims[1].Len()
		} else if op.Name == "norm_router" {
			size = n.Args[2].Type.Dims[0].Len()
		} else if op.Name == "rotary" {
			size = n.Args[0].Type.Dims[1].Fields[0].Unit
		}
	}
	want := strings.Replace(c.want, "%d", fmt.Sprint(size), 1)
	refused := func(v any) string {
		if m, ok := v.(most); ok {
			v = size + int(m)
		}
		old := n.Attrs[a.Name]
		defer func() { n.Attrs[a.Name] = old }()
		n.Attrs[a.Name] = v
		return fmt.Sprint(graph.Check(g))
	}
	for _, v := range c.legal {
		if got := refused(v); strings.Contains(got, "attribute") {
			t.Errorf("%v: %s", v, got)
		}
	}
	for _, v := range c.illegal {
		if got := refused(v); !strings.Contains(got, n.Name()+": "+op.Name+": attribute "+a.Name+" is ") || !strings.Contains(got, want) {
			t.Errorf("%v: got %q, want %q", v, got, want)
		}
	}
}

// using is a graph with a node of an operation.
func using(t *testing.T, op *graph.Op) (*graph.Graph, *graph.Node) {
	find := func(g *graph.Graph) *graph.Node {
		i := slices.IndexFunc(g.Nodes, func(n *graph.Node) bool { return n.Op == op })
		if i < 0 {
			return nil
		}
		return g.Nodes[i]
	}
	if text, ok := transports[op.Name]; ok {
		g, err := graph.Parse("graph \"t\" stage=partitioned ranks=2\ninput %x : f32[t 4]\n%p = term %x\n" + text)
		if err != nil {
			t.Fatal(err)
		}
		return g, find(g)
	}
	for seed := range uint64(300) {
		g := graphgen.Source(seed, graphgen.Options{Ops: []string{op.Name}})
		if n := find(g); n != nil {
			return g, n
		}
	}
	t.Fatalf("no graph uses %s", op.Name)
	return nil, nil
}

// transports have the operations that no source has.
var transports = map[string]string{
	"all_reduce": "%s = all_reduce %p\noutput s = %s\n",

	"all_gather": "%r = shard %x {axis=0 place=even}\n%s = all_gather %r\noutput s = %s\n",
	"shard":      "%r = shard %x {axis=0 place=even}\n%s = all_gather %r\noutput s = %s\n",
	"term":       "%s = all_reduce %p\noutput s = %s\n",

	"reduce_scatter": "%r = reduce_scatter %p {axis=0 place=even}\n%s = all_gather %r\noutput s = %s\n",

	"quantize":   "%q = quantize %p {to=f16}\n%s = all_reduce %q\n%d = dequantize %s\noutput d = %d\n",
	"dequantize": "%q = quantize %p {to=f16}\n%s = all_reduce %q\n%d = dequantize %s\noutput d = %d\n",
}

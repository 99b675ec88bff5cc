package graph

import (
	"fmt"
	"strings"
	"testing"

	"github.com/krait-ml/krait/internal/prop"
	"pgregory.net/rapid"
)

// sample has everything that text can hold.
const sample = `graph "a \"sample\"" stage=partitioned ranks=4
input %ids : i32[t]
input %seg : i32[s 3]
param @table : bf16[10 8] shard(0: split) from "emb.weight"
%e = embedding %ids @table : f32[t 8] partial
%h = all_reduce %e : f32[t 8]

block layers.0
  param @w : f32[x:8/2|B:2/2 8] shard(0: x=split B=cover/4) from "a"[0:2:5] "b" shape(20 8) perm(0 1)
  %mixer.xb = matmul %/h @w : f32[t x:8/2|B:2/2] shard(1: x=split B=cover/4)
  %mixer.x = field %mixer.xb {name=x} : f32[t 8/2] shard(1: split)
  param @taps : f32[8/2 3] shard(0: split)
  state %mixer.conv : f32[s 8/2 2] shard(1: split)
  %mixer.c %mixer.conv_state = conv1d %mixer.x @taps %mixer.conv %/seg : f32[t 8/2] shard(1: split), f32[s 8/2 2] shard(1: split)
  %mixer.k = clamp %mixer.c {max=+inf min=0.1} : f32[t 8/2] shard(1: split)
  %mixer.all = all_gather %mixer.k : f32[t 8/2]  # why "it" is there: # {1}
  %mixer.sent = quantize %mixer.all {to="int8/32"} : int8/32[t 8/2]
  %mixer.got = dequantize %mixer.sent : f32[t 8/2]

output y = %layers.0.mixer.got
`

func TestPrintParsesBack(t *testing.T) {
	g, err := Parse(sample)
	if err != nil {
		t.Fatal(err)
	}
	if err := Check(g); err != nil {
		t.Fatal(err)
	}
	if got := Print(g); got != sample {
		t.Errorf("printed\n%s\nwant\n%s", got, sample)
	}
}

// TestCodecsParseBack: text has a format of each codec and size of blocks, in rows that all ranks
// hold, that are partial sums, and that are split.
func TestCodecsParseBack(t *testing.T) {
	for _, kind := range CodecKinds() {
		for block := MinBlock; block <= MaxBlock; block *= 2 {
			text := exchanged(Codec{kind, block}.String(), "f32")
			g, err := Parse(text)
			if err == nil {
				err = Check(g)
			}
			if err != nil {
				t.Fatalf("%v in\n%s", err, text)
			}
			if got := Print(g); got != text {
				t.Errorf("printed\n%s\nwant\n%s", got, text)
			}
		}
	}
}

// exchanged is a sum that travels in one format, and is gathered in the codec given.
func exchanged(codec, summands string) string {
	first := fmt.Sprintf("%%q = quantize %%p {to=%s} : %[1]s[t 40] partial\n%%r = reduce_scatter %%q {acc=f32 axis=0 place=even} : %[1]s[t 40] shard(0: even)\n", summands)
	if summands == "f32" {
		first = fmt.Sprintf("%%q = quantize %%p {to=%q} : %[1]s[t 40] partial\n%%r = reduce_scatter %%q {acc=f32 axis=0 place=even} : f32[t 40] shard(0: even)\n", codec)
	}
	return "graph \"codecs\" stage=partitioned ranks=2\ninput %x : f32[t 40]\n%p = term %x : f32[t 40] partial\n" + first +
		fmt.Sprintf("%%c = quantize %%r {to=%q} : %[1]s[t 40] shard(0: even)\n%%a = all_gather %%c : %[1]s[t 40]\n%%y = dequantize %%a : f32[t 40]\noutput y = %%y\n", codec)
}

// TestCheckRefusesCodecs: kernels encode f32 and decode to it, ranks alone send nothing, and
// callers have no codes.
func TestCheckRefusesCodecs(t *testing.T) {
	text := exchanged("int8/32", "f32")
	for want, text := range map[string]string{
		"c: quantize: operand 0 is f16; int8/32 encodes f32":                                               exchanged("int8/32", "f16"),
		"c: quantize: operand 0 is bf16; e4m3/64 encodes f32":                                              exchanged("e4m3/64", "bf16"),
		"y: dequantize: attribute to is f16; int8/32 decodes to f32 only":                                  strings.Replace(text, "dequantize %a : f32", "dequantize %a {to=f16} : f16", 1),
		"r: reduce_scatter: operand 0 (q) is int8/32[t 40] partial, and the graph has one rank":            strings.Replace(text, "ranks=2", "ranks=1", 1),
		"r: reduce_scatter: q is int8/32[t 40] partial; codes are decoded and added in f32: write acc=f32": strings.Replace(text, "acc=f32 ", "", 1),
		"output y: a is int8/32[t 40]; dequantize it first":                                                strings.Replace(text, "y = %y", "y = %a", 1),
		"x: input: is int8/32[t 40]; only quantize encodes":                                                "graph \"g\" stage=model ranks=1\ninput %x : int8/32[t 40]\n",
	} {
		g, err := Parse(text)
		if err != nil {
			t.Errorf("%q does not parse: %v", text, err)
			continue
		}
		if err := Check(g); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q\ngot  %v\nwant %s", text, err, want)
		}
	}
}

func TestParseInfersAndIgnoresComments(t *testing.T) {
	g, err := Parse("# a comment\ngraph \"g # no comment\" stage=model ranks=1 # here\ninput %x : f32[t 4]\n\n  # blank\n%y = silu %x\n")
	if err != nil {
		t.Fatal(err)
	}
	if v, _ := g.Value("y"); v.Type.String() != "f32[t 4]" || g.Name != "g # no comment" {
		t.Errorf("%s: y is %s", g.Name, v.Type)
	}
}

func TestParseRefuses(t *testing.T) {
	const head = "graph \"g\" stage=model ranks=1\ninput %x : f32[t 4]\n"
	for text, want := range map[string]string{
		"":                                                 "no graph",
		"graph x":                                          "line 1: expected a quoted string",
		"graph \"g\" stage=raw":                            `line 1: unknown stage "raw"`,
		"graph \"g\" stage=model ranks=0":                  "line 1: ranks=0",
		"graph \"g\" stage=model ranks=1 z":                `line 1: unexpected "z"`,
		head + "%y = sillu %x":                             `line 3: no operation is called "sillu"`,
		head + "%y = silu %z":                              "line 3: z is not defined above",
		head + "%y = silu @x":                              "line 3: x: parameters are written @",
		head + "%y = silu %x {a=1}":                        "line 3: attribute a: silu has no such attribute",
		head + "%y = silu %x %x":                           "line 3: silu: 2 operands given, 1 required",
		head + "%y = clamp %x {min=1}":                     "line 3: clamp: attribute max is missing",
		head + "%x = silu %x":                              "line 3: a value named x exists already",
		head + "%y %z = silu %x":                           "line 3: silu: 2 results named, 1 types",
		head + "%y = silu %x : f32[t 4":                    "line 3: silu: expected an axis",
		head + "%y = silu %x : f31[t 4]":                   `line 3: silu: unknown dtype "f31"`,
		head + "%y = silu %x : f32[t 5/2]":                 "line 3: silu: field 5/2: unit 2 does not divide size 5",
		head + "%y = silu %x : f32[t a:4|a:4]":             "line 3: silu: the fields of a packed axis need different names",
		head + "%y = silu %x : f32[t 4] shard(0: split)":   "line 3: silu: shard axis 0 is the symbol t",
		head + "%y = silu %x : f32[t 4] shard(1: cover/3)": "line 3: silu: cover/3 of field 4",
		head + "%y = silu %x : f32[t 4/0]":                 "line 3: silu: expected an axis",
		head + "%y.. = silu %x":                            "line 3: \"y..\" is not a name",
		head + "block layer.1":                             `line 3: "layer.1" is not a block`,
		head + "output y = %y":                             "line 3: y is not defined above",
		head + "param @w : f32[4] from":                    "line 3: a storage without pieces",
		head + "param @w : f32[4] from \"a\"[0:0:2]":       "line 3: tensor \"a\": rows",
		head + "input %y : f32[99999999999999]":            "line 3: field 99999999999999 has size",
	} {
		_, err := Parse(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q\ngot  %v\nwant %s", text, err, want)
		}
	}
}

func TestCheckRefuses(t *testing.T) {
	const head = "graph \"g\" stage=model ranks=1\ninput %x : f32[t 4]\ninput %seg : i32[s 3]\nparam @w : f32[4 3]\n"
	const scan = "state %s : f32[s 4 2]\n%y %z = conv1d %x @w %s %seg\n"
	for text, want := range map[string]string{
		head + "%y = silu %x : f32[t 5]":             "y is written as f32[t 5]; the operation gives f32[t 4]",
		head + "%y = silu %x : f32[t 4] partial":     "y has a layout at stage model",
		head + "%y = term %x":                        "term: not legal at stage model",
		head + "state %s : f32[s 4 2]":               "s: state is consumed 0 times; it must be exactly once",
		head + scan + "%a %b = conv1d %x @w %s %seg": "s: state is consumed 2 times",
		head + "state %s : f32[t 4 2]\n%y %z = conv1d %x @w %s %seg : f32[t 4], f32[s 4 2]":                          "the first axis of a state is s",
		head + "input %s : f32[s 4 2]\n%y %z = conv1d %x @w %s %seg":                                                 "operand 2 (s) must be state",
		head + "state %s : f32[s 4]\n%y = silu %s":                                                                   "operand 0 (s) is state, which this operation does not update",
		head + "param @p : f32[t 4]":                                                                                 "the shape of a parameter has no symbols",
		head + "%y = matmul %x @w : f32[t 4]":                                                                        "k is 3 in operand 1 and 4 before",
		head + "param @b : bf16[4]\n%y = bias %x @b : f32[t 4]":                                                      "operand 1 is bf16; it must be f32",
		strings.Replace(head, "stage=model ranks=1", "stage=partitioned ranks=2", 1) + "%y = term %x\noutput y = %y": "output y: y is f32[t 4] partial; it must be whole on every rank",
	} {
		g, err := Parse(text)
		if err != nil {
			t.Errorf("%q does not parse: %v", text, err)
			continue
		}
		if err := Check(g); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q\ngot  %v\nwant %s", text, err, want)
		}
	}
}

func TestBlocksThatAreTheSame(t *testing.T) {
	build := func(width int) *Graph {
		b := New("g")
		x := b.Input("x", TypeOf(F32, Symbol(Tokens), Size(width)))
		for i := range 3 {
			l := b.In("layers", i)
			w := l.Param("w", TypeOf(F32, Size(width), Size(width)), Stored(fmt.Sprint("w", i)))
			x = l.Add("h", x, l.MatMul("y", x, w))
		}
		g, err := b.Graph()
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	g := build(4)
	if BlockKey(g, "layers.0") != BlockKey(g, "layers.2") {
		t.Errorf("equal blocks have the keys\n%s\n%s", BlockKey(g, "layers.0"), BlockKey(g, "layers.2"))
	}
	if BlockKey(g, "layers.0") == BlockKey(build(5), "layers.0") {
		t.Error("blocks of another width have the same key")
	}
}

// TestRandomGraphs: graphs of random nodes check, and parse back from print.
func TestRandomGraphs(t *testing.T) {
	prop.Check(t, func(t *rapid.T) {
		g := randomGraph(t)
		text := Print(g)
		h, err := Parse(text)
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		if !Equal(g, h) || Print(h) != text {
			t.Fatalf("not the same after\n%s", text)
		}
		if err := Check(h); err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		h.Cost()
	})
}

// randomGraph stacks unary operations, matmuls, convolutions and sums on an
// input, in and out of blocks.
func randomGraph(t *rapid.T) *Graph {
	b := New(rapid.String().Draw(t, "name"))
	field := genField(t, "a")
	x := b.Input("x", TypeOf(F32, Symbol(Tokens), Pack(field, genField(t, "b"))))
	seg := b.Input("seg", TypeOf(I32, Symbol(Seqs), Size(3)))
	for i := range rapid.IntRange(0, 12).Draw(t, "nodes") {
		s := b
		if n := rapid.IntRange(-1, 2).Draw(t, "block"); n >= 0 {
			s = b.In("layers", n)
		}
		name := fmt.Sprint("v", i)
		switch rapid.IntRange(0, 5).Draw(t, "kind") {
		case 0:
			x = s.Map(name, rapid.SampledFrom([]string{"silu", "gelu", "softplus"}).Draw(t, "function"), x)
		case 1:
			out := Pack(genField(t, "a"), genField(t, "b"))
			x = s.MatMul(name, x, s.Param(name+"_w", TypeOf(BF16, out, x.Type.Dims[1]), Stored(rapid.String().Draw(t, "tensor"))))
		case 2:
			x = s.Add(name, x, x)
		case 3:
			w := s.Param(name+"_w", TypeOf(F32, x.Type.Dims[1], Size(4)), nil)
			x = s.Conv1D(name, x, w, s.State(name+"_s", TypeOf(F32, Symbol(Seqs), x.Type.Dims[1], Size(3))), seg)
		case 4:
			x = s.Clamp(name, x, rapid.Float64().Draw(t, "min"), rapid.Float64().Draw(t, "max"))
		case 5:
			x = s.RMSNorm(name, x, nil, rapid.Float64Min(0).Draw(t, "eps"))
		}
	}
	b.Output("y", x)
	g, err := b.Graph()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func FuzzParse(f *testing.F) {
	f.Add(sample)
	for _, kind := range CodecKinds() {
		f.Add(exchanged(Codec{kind, DefaultBlock}.String(), "f32"))
	}
	f.Add(exchanged("int8/32", "f16"))
	f.Add(strings.Replace(exchanged("int4/16", "f32"), "ranks=2", "ranks=1", 1))
	f.Add("graph \"g\" stage=model ranks=1\ninput %x : f32[t 4]\n%y = silu %x\noutput y = %y\n")
	for _, c := range deriveCases {
		f.Add("graph \"g\" stage=partitioned ranks=4\ninput %" + strings.ReplaceAll(c.leaves, " ", " : ") + "\n%y = " + c.node)
	}
	f.Fuzz(func(t *testing.T, text string) {
		g, err := Parse(text)
		if err != nil {
			return
		}
		again, err := Parse(Print(g))
		if err != nil {
			t.Fatalf("%v in\n%s", err, Print(g))
		}
		if !Equal(g, again) {
			t.Fatalf("not the same:\n%s\n%s", Print(g), Print(again))
		}
		if Check(g) == nil {
			g.Cost()
		}
	})
}

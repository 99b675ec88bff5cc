package visualize

import (
	"strings"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
)

// blocks is a graph of a block per letter: s with a silu, r with a relu, p with a
// relu and the parameter of the first p.
func blocks(t *testing.T, letters string) *graph.Graph {
	t.Helper()
	b := graph.New("g")
	x := b.Input("x", graph.TypeOf(graph.F32, graph.Symbol(graph.Tokens), graph.Size(4)))
	var shared *graph.Value
	for i, letter := range letters {
		l := b.In("layers", i)
		w := shared
		if letter != 'p' || shared == nil {
			w = l.Param("w", graph.TypeOf(graph.F32, graph.Size(4), graph.Size(4)), nil)
		}
		if letter == 'p' {
			shared = w
		}
		function := map[rune]string{'s': "silu", 'r': "relu", 'p': "gelu"}[letter]
		x = l.Add("h", x, l.Map("act", function, l.MatMul("y", x, w)))
	}
	b.Output("out", x)
	g, err := b.Graph()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestFold(t *testing.T) {
	for _, c := range []struct {
		name, letters string
		o             Options
		matmuls       int
		texts         []string
	}{
		{"folded", "ssss", Options{}, 1, []string{"layers.0 and 3 more like it", "4 layers", "× 4", "h of the layer before"}},
		{"a block that differs", "sssr", Options{}, 2, []string{"layers.0 and 2 more like it", "<b>B2</b>", ">layers.3<", "unlike B1: with relu; without silu"}},
		{"not neighbours", "srsrsr", Options{}, 2, []string{"layers.0 and 2 more like it", "layers.1 and 2 more like it", "× 3"}},
		{"a shared parameter", "spsp", Options{}, 2, []string{"layers.1 and 1 more like it", "shared\u00a0@w"}},
		{"unfolded", "ssss", Options{Unfolded: true}, 4, []string{"layers.2"}},
		{"one block", "ssss", Options{Block: "layers.1"}, 1, []string{"layers.0.h", "to layers.2.y"}},
		{"parts", "ssss", Options{Detail: Blocks}, 1, nil},
		{"the model", "ssrs", Options{Detail: Model}, 0, []string{"layers.0 and 2 more like it", "matmul, silu, add", "weights 64 bytes"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := drawGraph(t, blocks(t, c.letters), c.o)
			if n := strings.Count(text, "<b>matmul</b>"); n != c.matmuls {
				t.Errorf("%d matmuls drawn, want %d in\n%s", n, c.matmuls, text)
			}
			for _, l := range c.texts {
				if !strings.Contains(text, l) {
					t.Errorf("no %s in\n%s", l, text)
				}
			}
			for range 20 {
				if drawGraph(t, blocks(t, c.letters), c.o) != text {
					t.Fatal("two drawings of one graph differ")
				}
			}
		})
	}
}

// Every value's type is in the picture once.
func TestTypesOnce(t *testing.T) {
	b := graph.New("g")
	tokens := graph.Symbol(graph.Tokens)
	x := b.Input("x", graph.TypeOf(graph.F32, tokens, graph.Size(3)))
	l := b.In("layers", 0)
	w := l.Param("w", graph.TypeOf(graph.F32, graph.Size(5), graph.Size(3)), nil)
	a := l.MatMul("a", x, w)
	y := l.Add("y", l.Map("c", "silu", a), a)
	b.Output("first", l.MatMul("z", y, l.Param("v", graph.TypeOf(graph.F32, graph.Size(7), graph.Size(5)), nil)))
	b.Output("second", l.MatMul("again", x, w))
	g, err := b.Graph()
	if err != nil {
		t.Fatal(err)
	}
	text := drawGraph(t, g, Options{})
	for typ, want := range map[string]int{"[5 3]": 1, "[t 5]": 4, "[7 5]": 1, "[t 7]": 1, "[t 3]": 2} { // x enters the model and the block
		if n := strings.Count(text, "f32"+typ); n != want {
			t.Errorf("f32%s is there %d times, want %d, in\n%s", typ, n, want, text)
		}
	}
}

// A box of parts must not need what comes of it: there is no cycle between boxes.
func TestParts(t *testing.T) {
	b := graph.New("g")
	x := b.Input("x", graph.TypeOf(graph.F32, graph.Symbol(graph.Tokens), graph.Size(4)))
	l := b.In("layers", 0)
	m := l.In("mixer")
	u := m.Map("u", "silu", x)
	n := l.Map("n", "silu", u)
	b.Output("out", m.Add("v", n, u))
	g, err := b.Graph()
	if err != nil {
		t.Fatal(err)
	}
	text := drawGraph(t, g, Options{Detail: Blocks})
	if n := strings.Count(text, "<b>mixer</b>"); n != 2 {
		t.Errorf("mixer is %d boxes, want 2: n lies between, in\n%s", n, text)
	}
}

// Little is enough: no operation, a block without any.
func TestLittle(t *testing.T) {
	b := graph.New("g")
	x := b.Input("x", graph.TypeOf(graph.F32, graph.Size(4)))
	b.In("layers", 0).Param("w", graph.TypeOf(graph.F32, graph.Size(4)), nil)
	b.Output("out", x)
	g, err := b.Graph()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []Detail{Ops, Blocks, Model} {
		for _, o := range []Options{{Detail: d}, {Detail: d, Unfolded: true}} {
			if text := drawGraph(t, g, o); strings.Count(text, "->") != 1 || !strings.Contains(text, "output out") {
				t.Errorf("%+v: no arrow from x to out in\n%s", o, text)
			}
		}
		drawGraph(t, g, Options{Detail: d, Block: "layers.0"})
		drawSchedule(&lowering.Schedule{Name: "nothing"}, Options{Detail: d})
	}
}

// A layer of a schedule is two streams that wait for each other around every collective.
func TestSchedule(t *testing.T) {
	s := modelsOf(t, "mamba-130m")[1].schedule
	for _, c := range []struct {
		o                     Options
		boxes, arrows, dashed int
		texts                 []string
	}{
		// layer 1 has 11 kernels and 2 collectives; a chain per stream, and two waits each
		{Options{Block: "layers.1"}, 13, 10 + 1 + 4, 4, []string{"320·t bytes", "here f32[t 192/1]"}},
		{Options{Block: "layers.1", Detail: Blocks}, 5, 2 + 1 + 4, 4, []string{"4 kernels", "6 kernels", "mixer.x to mixer.x_proj"}},
		{Options{}, 0, 0, 0, []string{"layers.1 and 21 more like it", "24 layers", "× 22"}},
		{Options{Detail: Model}, 0, 0, 0, []string{"11 kernels", "all_reduce mixer.x_proj_sum: 320·t bytes"}},
	} {
		text := drawSchedule(s, c.o)
		boxes := strings.Count(text, `fontsize="11"`)
		arrows, dashed := strings.Count(text, "->"), strings.Count(text, `style="dashed"]`)
		if c.boxes > 0 && (boxes != c.boxes || arrows != c.arrows || dashed != c.dashed) {
			t.Errorf("%+v: %d boxes, %d arrows, %d of them dashed; want %d, %d, %d, in\n%s", c.o, boxes, arrows, dashed, c.boxes, c.arrows, c.dashed, text)
		}
		for _, want := range c.texts {
			if !strings.Contains(text, want) {
				t.Errorf("%+v: no %s in\n%s", c.o, want, text)
			}
		}
	}
}

package graph_test

import (
	"fmt"
	"log"
	"strings"
	"sync"

	"github.com/krait-ml/krait/graph"
)

// A graph is built from operations, by name; a wrong shape is an error of Graph.
func Example() {
	b := graph.New("gate")
	tokens, width, hidden := graph.Symbol(graph.Tokens), graph.Size(4), graph.Units(6, 2) // ranks own units of 2
	x := b.Input("x", graph.TypeOf(graph.F32, tokens, width))
	w := b.Param("w", graph.TypeOf(graph.BF16, hidden, width), nil)
	h := b.MatMul("h", x, w)
	b.Output("y", b.Mul("y", h, b.Map("g", "sigmoid", h)))
	g, err := b.Graph()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(graph.Print(g))
	cost := g.Cost()
	fmt.Println("operations:", cost.FLOPs, "for 10 tokens:", cost.FLOPs.At(graph.Sizes{Tokens: 10}))
	// Output:
	// graph "gate" stage=model ranks=1
	// input %x : f32[t 4]
	// param @w : bf16[6/2 4]
	// %h = matmul %x @w : f32[t 6/2]
	// %g = sigmoid %h : f32[t 6/2]
	// %y = mul %h %g : f32[t 6/2]
	// output y = %y
	// operations: 72·t for 10 tokens: 720
}

// An error names what exists.
func ExampleParse() {
	_, err := graph.Parse("graph \"g\" stage=model ranks=1\ninput %x : f32[t 4]\n%y = sillu %x\noutput y = %y\n")
	said, _, _ := strings.Cut(err.Error(), ",") // and four more
	fmt.Println(said)
	_, err = graph.ParseRule("t k, n k -> t m")
	fmt.Println(err)
	// Output:
	// line 3: no operation is called "sillu"; the nearest are silu
	// rule "t k, n k -> t m": result letter m is in no operand
}

// register is called from an init function as a rule, once.
var register = sync.OnceFunc(func() {
	graph.RegisterOp(graph.Op{
		Name: "acme_softsign", Doc: "x / (1 + |x|)",
		Rule:     graph.MustParseRule("* -> *"), // any shape, the same; it may be split anywhere
		Operands: "a", InPlace: []int{0}, Work: []string{"3"},
	})
})

// A row says what an operation is: shapes, shards and costs follow.
func ExampleRegisterOp() {
	register()
	b := graph.New("g")
	x := b.Input("x", graph.TypeOf(graph.F32, graph.Symbol(graph.Tokens), graph.Units(8, 1)))
	b.Output("y", b.Map("y", "acme_softsign", x))
	g, err := b.Graph()
	fmt.Println(g.Cost().FLOPs, err)
	// Output: 24·t <nil>
}

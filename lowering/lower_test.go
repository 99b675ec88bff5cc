package lowering

import (
	"fmt"
	"strings"
	"testing"

	"github.com/krait-ml/krait/graph"
	"pgregory.net/rapid"
)

const text = `graph "g" stage=model ranks=1
input %x : f32[t a:4|b:4]
input %rows : i32[o]
param @w : f32[6 4]
param @A_log : f32[6 2]
%A = neg_exp @A_log
%b = field %x {name=b}
%y = matmul %b @w
%z = silu %y
%u = add %z %y
%v = silu %u
%last = select_rows %v %rows
output last = %last
output A = %A
`

// TestSchedule: views make no step, constants are computed once, and y's memory
// is used again when u has been computed.
func TestSchedule(t *testing.T) {
	g, err := graph.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	const want = `schedule "g" rank=0 ranks=1
region param 144 bytes
region input 36 bytes
region constant 64 bytes
region token 192 bytes
region row 64 bytes
buffer x input+0 32 bytes : f32[t a:4|b:4]
buffer rows input+32 4 bytes : i32[o]
buffer w param+0 96 bytes : f32[6 4]
buffer A_log param+96 48 bytes : f32[6 2]
buffer A constant+0 48 bytes : f32[6 2]
buffer y token+0 24 bytes : f32[t 6]
buffer z token+64 24 bytes : f32[t 6]
buffer u token+128 24 bytes : f32[t 6]
buffer v token+0 24 bytes : f32[t 6]
buffer last row+0 24 bytes : f32[o 6]
init A = neg_exp A_log
step y = matmul x[4:8], w
step z = silu y
step u = add z, y
step v = silu u
step last = select_rows v, rows
output last = last
output A = A
`
	if got := s.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestLowerRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"graph \"g\" stage=partitioned ranks=2\ninput %x : f32[t 4]\n%y = silu %x":             "the graph is for 2 ranks; schedules are made for one rank",
		"graph \"g\" stage=model ranks=1\ninput %x : f32[4 t]\n%y = silu %x":                   "only the first axis of a result may be a symbol",
		"graph \"g\" stage=model ranks=1\ninput %x : f32[c 4]\n%y = silu %x":                   "a result cannot be as long as c",
		"graph \"g\" stage=model ranks=1\ninput %x : f32[t 4]\n%y = silu %x : f32[t 5]":        "y is written as f32[t 5]",
		"graph \"g\" stage=model ranks=1\ninput %x : f32[t a:2|b:2 3]\n%y = field %x {name=b}": "only the first axis, or the second of two, can be viewed",
	} {
		g, err := graph.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Lower(g); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want an error with %q", text, err, want)
		}
	}
}

// TestMemory: in schedules of random graphs, no step writes over a value that a
// later step or the caller reads, and regions are as large as their buffers need.
func TestMemory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := graph.New("g")
		values := []*graph.Value{b.Input("x", graph.TypeOf(graph.F32, graph.Symbol(graph.Tokens), graph.Size(8)))}
		for i := range rapid.IntRange(1, 25).Draw(t, "nodes") {
			x := rapid.SampledFrom(values).Draw(t, "x")
			name := fmt.Sprint("v", i)
			if rapid.Bool().Draw(t, "matmul") {
				n := rapid.IntRange(1, 40).Draw(t, "width")
				x = b.MatMul(name, x, b.Param(name+"_w", graph.TypeOf(graph.F32, graph.Size(n), x.Type.Dims[1]), nil))
			} else {
				x = b.Add(name, x, x)
			}
			values = append(values, x)
		}
		for i := range rapid.IntRange(1, 3).Draw(t, "outputs") {
			b.Output(fmt.Sprint("o", i), rapid.SampledFrom(values).Draw(t, "output"))
		}
		g, err := b.Graph()
		if err != nil {
			t.Fatal(err)
		}
		s, err := Lower(g)
		if err != nil {
			t.Fatal(err)
		}
		checkMemory(t, s)
	})
}

// checkMemory replays the schedule: each 64-byte line of the token region
// remembers which buffer wrote it last.
func checkMemory(t *rapid.T, s *Schedule) {
	lines := map[int64]int{}
	read := func(r Ref, who string) {
		b := s.Buffers[r.Buffer]
		for at := b.Offset; b.Space == PerToken && at < b.Offset+b.Bytes; at += align {
			if lines[at] != r.Buffer {
				t.Fatalf("%s reads %s, which %s has overwritten\n%s", who, b.Value.Name, s.Buffers[lines[at]].Value.Name, s)
			}
		}
	}
	for _, st := range s.Steps {
		for _, r := range st.Args {
			read(r, st.Name)
		}
		for _, r := range st.Results {
			b := s.Buffers[r.Buffer]
			if b.Offset%align != 0 || b.Offset+b.Bytes > s.Bytes[PerToken] {
				t.Fatalf("%s is at %d+%d of %d", b.Value.Name, b.Offset, b.Bytes, s.Bytes[PerToken])
			}
			for at := b.Offset; at < b.Offset+b.Bytes; at += align {
				lines[at] = r.Buffer
			}
		}
		for _, r := range st.Args {
			read(r, st.Name+" (after it wrote)")
		}
	}
	for _, o := range s.Outputs {
		read(o.Ref, "the caller")
	}
}

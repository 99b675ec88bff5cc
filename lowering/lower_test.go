package lowering

import (
	"fmt"
	"strings"
	"testing"

	"github.com/krait-ml/krait/graph"
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

// TestSchedule: views make no step, constants are computed once, and u takes the
// memory of z, which no other step needs, as z does not that of y.
func TestSchedule(t *testing.T) {
	g, err := graph.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	if len(s) != 1 {
		t.Fatalf("%d schedules for one rank", len(s))
	}
	const want = `schedule "g" rank=0 ranks=1
region param 144 bytes
region input 36 bytes
region constant 64 bytes
region token 128 bytes
region row 64 bytes
buffer x input+0 32 bytes : f32[t a:4|b:4] for last
buffer rows input+32 4 bytes : i32[o] for last
buffer w param+0 96 bytes : f32[6 4]
buffer A_log param+96 48 bytes : f32[6 2]
buffer A constant+0 48 bytes : f32[6 2]
buffer y token+0 24 bytes : f32[t 6]
buffer z token+64 24 bytes : f32[t 6]
buffer last row+0 24 bytes : f32[o 6]
view b = x[4:8] : f32[t 4]
view u = z[0:6] : f32[t 6]
view v = z[0:6] : f32[t 6]
init A = neg_exp A_log
compute y = matmul b, w for last
compute z = silu y for last
compute u = add z, y for last
compute v = silu u for last
compute last = select_rows v, rows for last
output last = last
output A = A
`
	if got := s[0].String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestPackedWeights: fields of the second axis of a weight are views of it, in blocks as
// well, where they are whole lines.
func TestPackedWeights(t *testing.T) {
	text := func(format, in string) string {
		return fmt.Sprintf(`graph "g" stage=model ranks=1
input %%x : f32[t 5]
input %%p : f32[t 2]
param @w : %s[2 gate:3|up:3 %s] from "w"
param @d : f32[2 4 3] from "d"
%%g = field @w {axis=1 name=gate}
%%u = field @w {axis=1 name=up}
%%y = experts %%x %%p %%g %%u @d {top=1}
output y = %%y
`, format, in)
	}
	for _, format := range []string{"f32", "q8"} {
		g, err := graph.Parse(text(format, "5"))
		if err != nil {
			t.Fatal(err)
		}
		s, err := Lower(g)
		if err != nil {
			t.Fatal(err)
		}
		if err := s[0].Check(); err != nil {
			t.Error(err)
		}
		for _, want := range []string{"view g = w[0:30] : " + format + "[2 3 5]", "view u = w[15:30] : " + format + "[2 3 5]"} {
			if !strings.Contains(s[0].String(), want) {
				t.Errorf("no %q in\n%s", want, s[0])
			}
		}
		other, err := ParseSchedule(strings.Replace(s[0].String(), "[15:30]", "[14:30]", 1))
		if err != nil {
			t.Fatal(err)
		}
		if err := other.Check(); format == "q8" && (err == nil || !strings.Contains(err.Error(), "lines of blocks are seen whole")) {
			t.Errorf("a view that begins within a line of blocks: %v", err)
		}
	}
}

func TestLowerRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"graph \"g\" stage=model ranks=1\ninput %x : f32[4 t]\n%y = silu %x":                   "only the first axis may be a symbol",
		"graph \"g\" stage=model ranks=1\ninput %x : f32[c 4]\n%y = silu %x":                   "a result cannot be as long as c",
		"graph \"g\" stage=model ranks=1\ninput %x : f32[t 4]\n%y = silu %x : f32[t 5]":        "y is written as f32[t 5]",
		"graph \"g\" stage=model ranks=1\ninput %x : f32[t a:2|b:2 3]\n%y = field %x {name=b}": "only the first axis, or the second of two or of a parameter, can be viewed",
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

package graph

import (
	"strings"
	"testing"
)

// TestExtract: names, inputs, what stays a parameter, and what becomes an output.
func TestExtract(t *testing.T) {
	const text = `graph "g" stage=model ranks=1
input %x : f32[t 4]
input %seg : i32[s 3]
param @w : f32[4 4] from "tied"
%h = silu %x

block layers.0
  param @unused : f32[4]
  state %conv : f32[s 4 2]
  %h = matmul %/h @/w
  %y = silu %h

block layers.1
  param @taps : f32[4 3] from "t"
  param @of_others : f32[4 4]
  %c %c_state = conv1d %/layers.0.h @taps %/layers.0.conv %/seg
  %a = add %c %/layers.0.y
  %b = add %a %/h
  %h = matmul %b @/w
  %kept = silu %h

%end = add %layers.1.h %h
%other = matmul %end @layers.1.of_others
output end = %other
output kept = %layers.1.kept
`
	g, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	for block, want := range map[string]string{
		"layers.0": `graph "g layers.0" stage=model ranks=1
input %h : f32[t 4]
param @w : f32[4 4] from "tied"

block layers.0
  %h = matmul %/h @/w : f32[t 4]
  %y = silu %h : f32[t 4]

output layers.0.h = %layers.0.h
output layers.0.y = %layers.0.y
`,
		"layers.1": `graph "g layers.1" stage=model ranks=1
input %seg : i32[s 3]
input %h : f32[t 4]
input %layers_0_h : f32[t 4]
input %y : f32[t 4]
param @w : f32[4 4] from "tied"

block layers.0
  state %conv : f32[s 4 2]

block layers.1
  param @taps : f32[4 3] from "t"
  %c %c_state = conv1d %/layers_0_h @taps %/layers.0.conv %/seg : f32[t 4], f32[s 4 2]
  %a = add %c %/y : f32[t 4]
  %b = add %a %/h : f32[t 4]
  %h = matmul %b @/w : f32[t 4]
  %kept = silu %h : f32[t 4]

output layers.1.h = %layers.1.h
output layers.1.kept = %layers.1.kept
`,
	} {
		got, err := Extract(g, block)
		if err != nil {
			t.Fatal(err)
		}
		if Print(got) != want {
			t.Errorf("got\n%s\nwant\n%s", Print(got), want)
		}
	}
	if Print(g) != Print(parsed(t, text)) {
		t.Error("the graph that a block is of changed")
	}
}

func parsed(t *testing.T, text string) *Graph {
	t.Helper()
	g, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestExtractRefuses: what cannot be an input or an output, and blocks that are not there.
func TestExtractRefuses(t *testing.T) {
	g := parsed(t, `graph "g" stage=partitioned ranks=2
input %x : f32[t 4/1]
%p = term %x

block layers.0
  %h = all_reduce %/p

block layers.1
  %v = shard %/layers.0.h
  %p = term %/layers.0.h

block layers.2
  %v = all_gather %/layers.1.v
  %h = all_reduce %/layers.1.p
  %out = add %v %h

block layers.3
  %part = shard %/layers.2.out

block layers.4
  %whole = all_gather %/layers.3.part

output y = %layers.2.out
`)
	for block, want := range map[string]string{
		"layers.0": "layers.0 takes p from outside, which is a partial sum and cannot be an input",
		"layers.1": "layers.1.p leaves layers.1 as a partial sum, which cannot be an output",
		"layers.2": "layers.2 takes layers.1.p from outside",
		"layers.3": "output layers.3.part: layers.3.part is f32[t 4/1] shard(1: split); it must be whole on every rank",
		"layers.5": "the graph has no block layers.5",
		"":         "the graph has no block",
	} {
		_, err := Extract(g, block)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", block, err, want)
		}
	}
}

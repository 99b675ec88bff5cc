package tests

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/embedded"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/visualize"
)

// TestDump: a folder for dumps gets the graph after each pass that changed it, and
// nothing else changes.
func TestDump(t *testing.T) {
	g := embeddedModel(t).Graph()
	for ranks, want := range map[int]string{
		1: "08-fuse.dot 08-fuse.ir",
		4: "03-unpack.dot 03-unpack.ir 05-partition.dot 05-partition.ir 08-fuse.dot 08-fuse.ir",
	} {
		dir := filepath.Join(t.TempDir(), "steps")
		with := stepsOf(t, g, krait.Sharding{Ranks: ranks, Dump: visualize.DumpTo(dir)})
		if without := stepsOf(t, g, krait.Sharding{Ranks: ranks}); with != without || strings.Count(with, "\n") < 60 {
			t.Errorf("%d ranks: with a dump run\n%s\nwithout\n%s", ranks, with, without)
		}
		files, err := filepath.Glob(dir + "/*")
		if err != nil {
			t.Fatal(err)
		}
		for i, f := range files {
			files[i] = filepath.Base(f)
		}
		if got := strings.Join(files, " "); got != want {
			t.Errorf("%d ranks: %s, want %s", ranks, got, want)
		}
		last, err := os.ReadFile(filepath.Join(dir, "08-fuse.ir"))
		if compiled, e := compileFor(g, krait.Sharding{Ranks: ranks}); err != nil || e != nil || string(last) != graph.Print(compiled) {
			t.Errorf("%d ranks: the last graph is not what runs: %v, %v", ranks, err, e)
		}
	}
}

// stepsOf is what the ranks run.
func stepsOf(t *testing.T, g *graph.Graph, s krait.Sharding) string {
	t.Helper()
	compiled, err := compileFor(g, s)
	if err != nil {
		t.Fatal(err)
	}
	schedules, err := lowering.Lower(compiled)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, s := range schedules {
		b.WriteString(s.String())
	}
	return b.String()
}

// TestSharding: what a graph that is partitioned already has decided is not decided
// again, and options that would have no effect are errors.
func TestSharding(t *testing.T) {
	g := embeddedModel(t).Graph()
	for _, s := range []krait.Sharding{{Ranks: 1}, {Ranks: 4}} {
		compiled, err := compileFor(g, s)
		if err != nil {
			t.Fatal(err)
		}
		for _, again := range []krait.Sharding{{}, s} {
			if same, err := compileFor(compiled, again); err != nil || !graph.Equal(same, compiled) {
				t.Errorf("%+v: compiled again it is another graph: %v", s, err)
			}
		}
	}
	four, err := compileFor(g, krait.Sharding{Ranks: 4})
	if err != nil {
		t.Fatal(err)
	}
	for s, want := range map[*krait.Sharding]string{
		{Ranks: 2}:                      "the graph has stage=fused ranks=4 and cannot be sharded over 2 ranks",
		{Ranks: 1}:                      "the graph has stage=fused ranks=4 and cannot be sharded over 1 ranks",
		{Strategy: "naive"}:             "strategy naive has no effect on a graph that is fused already; leave it out, or give the graph from before it was partitioned",
		{Ranks: 4, Strategy: "channel"}: "strategy channel has no effect",
		{Payload: "fp16"}:               "payload fp16 has no effect on a graph that is fused already",
	} {
		if _, err := compileFor(four, *s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", s, err, want)
		}
	}
	one, err := compileFor(g, krait.Sharding{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := compileFor(one, krait.Sharding{Ranks: 4}); err == nil || err.Error() != "the graph has stage=fused ranks=1 and cannot be sharded over 4 ranks" {
		t.Error(err)
	}
	if _, err := compileFor(g, krait.Sharding{Payload: "fp16"}); err == nil || err.Error() != "payload fp16: one rank has no all_reduces; give more ranks" {
		t.Error(err)
	}
}

// TestBlockRuns: a block by itself, given what it takes in the model, gives what it
// gives there, on any ranks.
func TestBlockRuns(t *testing.T) {
	const in, out = "layers.1.h", "layers.2.h"
	c, err := checkpoint.FromMemory(embedded.Name, embedded.Config, embedded.Weights)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	tensors := krait.Weights(c.Tensor)
	for _, ranks := range []int{1, 3} {
		m := embeddedModel(t, krait.Options{Keep: []string{in, out}, Sharding: krait.Sharding{Ranks: ranks}})
		slot, err := m.Engine().Alloc()
		if err != nil {
			t.Fatal(err)
		}
		whole, err := m.Engine().Step(context.Background(), &exec.Batch{Sequences: []exec.Sequence{{Slot: slot, Tokens: []int{65, 66, 67}, Rows: []int{2}}}})
		if err != nil {
			t.Fatal(err)
		}
		h, want := rowsOf(t, whole, in), rowsOf(t, whole, out)

		block, err := graph.Extract(m.Graph(), "layers.2")
		if err != nil {
			t.Fatal(err)
		}
		e, err := krait.NewEngine(block, tensors, krait.Options{Sharding: krait.Sharding{Ranks: ranks}})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		if slot, err = e.Alloc(); err != nil {
			t.Fatal(err)
		}
		alone, err := e.Step(context.Background(), &exec.Batch{Sequences: []exec.Sequence{{Slot: slot, Len: 3}},
			Inputs: map[string]graph.Array{"h": graph.ArrayOf(h, 3, len(h)/3)}})
		if err != nil {
			t.Fatal(err)
		}
		if got := rowsOf(t, alone, out); !slices.Equal(got, want) {
			t.Errorf("%d ranks: the block alone gives other values than in the model", ranks)
		}
	}
}

func rowsOf(t *testing.T, results exec.Results, name string) []float32 {
	t.Helper()
	out, err := results.Output(name)
	if err != nil {
		t.Fatal(err)
	}
	var all []float32
	for i := range out.Rows() {
		all = append(all, out.Row(i)...)
	}
	return all
}

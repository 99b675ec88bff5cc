package prove

import (
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/krait-ml/krait/graph"
)

// brokenRows are ways to break a graph whose tokens are split between blocks, as edits of
// its text, and the error that each must give.
var brokenRows = []struct {
	name  string
	edits []string
	want  string
}{
	{"a share of the tokens is used as if whole", []string{"matmul %norm_all", "matmul %norm", "  %norm_all = all_gather %norm : f32[t 6]  # norm is split over ranks; up_proj needs it whole\n", ""},
		"layers.1.up_proj: matmul: operand 1 is split on n and another operand on t: only one may be: the 3 ranks would have 3 of the 9 blocks of the product; all_gather the rows first"},
	{"a share of the tokens is declared whole", []string{gathered, "", "%/layers.0.h @norm.weight {eps=1e-05} : f32[t 6] shard(0: even)", "%/layers.0.h @norm.weight {eps=1e-05} : f32[t 6]", "%norm_all", "%norm"},
		"layers.1.norm: rmsnorm: layers.1.norm is written as f32[t 6]; the operation gives f32[t 6] shard(0: even)"},
	{"the norm comes before the sum", []string{"  %norm = rmsnorm %/layers.0.h @norm", "  %norm = rmsnorm %/layers.0.down_proj @norm"},
		"layers.1.norm: rmsnorm: operand 0 is a partial sum; all_reduce it first"},
	{"a sum is scattered in another placement", []string{second, strings.ReplaceAll(second, "even", "sequence")},
		"layers.1.h: add: operands 0 and 1 are split differently on a: even and sequence"},
	{"two placements of the tokens are mixed", []string{"%h_part = shard %/h {axis=0 place=even} : f32[t 6] shard(0: even)", "%h_part = shard %/h {axis=0 place=sequence} : f32[t 6] shard(0: sequence)"},
		"layers.0.h: add: operands 0 and 1 are split differently on a: sequence and even"},
	{"what is gathered is said to be of another placement", []string{"%/layers.0.h @norm.weight {eps=1e-05} : f32[t 6] shard(0: even)", "%/layers.0.h @norm.weight {eps=1e-05} : f32[t 6] shard(0: sequence)"},
		"layers.1.norm: rmsnorm: layers.1.norm is written as f32[t 6] shard(0: sequence); the operation gives f32[t 6] shard(0: even)"},
	{"a sum is brought to all ranks beside shares", []string{second, "  %down_proj_part = all_reduce %down_proj : f32[t 6]\n"},
		"layers.1.h: add: operand 1 is whole on a where another operand is split: shard it first"},
	{"a sum is not finished", []string{second, "", "add %/layers.0.h %down_proj_part", "add %/layers.0.h %down_proj"},
		"layers.1.h: add: operand 1 is a partial sum and operand 0 is not; all_reduce the first, or make a term of the second"},
	{"a sum is finished twice", []string{second, second + "  %again = all_reduce %down_proj : f32[t 6]\n"},
		"layers.1.again: all_reduce: layers.1.down_proj is reduced already, by layers.1.down_proj_part; use its result"},
	{"a sum is split along channels", []string{second, "  %down_proj_part = reduce_scatter %down_proj : f32[t 6] shard(1: split)\n"},
		"layers.1.h: add: operand 1 is split on b and another operand on a: only one may be: the 3 ranks would have 3 of the 9 blocks of the product; all_gather the rows first"},
	{"rows are chosen of a share", []string{"select_rows %h_all", "select_rows %layers.1.h"},
		"wanted: select_rows: operand 0 is split on t!, which this operation cannot split"},
	{"an output is a share", []string{"output y = %wanted", "output y = %wanted\noutput z = %layers.1.norm"},
		"output z: layers.1.norm is f32[t 6] shard(0: even); it must be whole on every rank"},
	{"a row is computed by its rank, and by all", []string{gathered, gathered + "  %h_all = all_gather %/layers.0.h : f32[t 6]\n  %norm2 = rmsnorm %h_all @norm.weight {eps=1e-05} : f32[t 6]\n", "matmul %norm_all", "matmul %norm2"},
		"layers.1.norm2: computes layers.1.norm of the source a second time, after layers.1.norm; use the first"},
	{"what all have is gathered", []string{"%norm_all = all_gather %norm", "%norm_all = all_gather %/h"},
		"layers.1.norm_all: all_gather: operand 0 is not sharded: there is nothing to gather"},
	{"an input is declared a share", []string{"input %h : f32[t 6]", "input %h : f32[t 6] shard(0: even)", "  %h_part = shard %/h {axis=0 place=even} : f32[t 6] shard(0: even)\n", "", "%h_part", "%/h"},
		"h: input: is f32[t 6] shard(0: even); which rank has which rows depends on the batch, so a value that exists before the batch cannot lie so"},
	{"the residual stream is of another block", []string{"add %/layers.0.h %down_proj_part", "add %/layers.0.down_proj_part %down_proj_part"},
		"layers.1.h: add: operand 0 is layers.0.down_proj_part; in the source it is layers.0.h"},
}

const (
	gathered = "  %norm_all = all_gather %norm : f32[t 6]  # norm is split over ranks; up_proj needs it whole\n"
	// The sum in the second block; in the first, the same line is before another.
	second = "  %down_proj_part = reduce_scatter %down_proj {axis=0 place=even} : f32[t 6] shard(0: even)\n"
)

// brokenTogether are the same of a graph in which a statistic and what it divides are
// scattered by one launch.
var brokenTogether = []struct {
	name  string
	edits []string
	want  string
}{
	{"the statistic is brought to all ranks", []string{together, "  %sumsq_part = all_reduce %sumsq : f32[t]\n  %down_raw_part = reduce_scatter %down_raw {axis=0 place=even} : f32[t 6] shard(0: even)\n"},
		"layers.0.down_proj: rms_rows: operand 1 is whole on t where another operand is split: shard it first"},
	{"the statistic is of other tokens", []string{together, "  %sumsq_part = reduce_scatter %sumsq {axis=0 place=sequence} : f32[t] shard(0: sequence)\n  %down_raw_part = reduce_scatter %down_raw {axis=0 place=even} : f32[t 6] shard(0: even)\n"},
		"layers.0.down_proj: rms_rows: operands 0 and 1 are split differently on t: even and sequence"},
	{"the statistic is not finished", []string{together, "  %down_raw_part = reduce_scatter %down_raw {axis=0 place=even} : f32[t 6] shard(0: even)\n", "%down_raw_part %sumsq_part {eps", "%down_raw_part %sumsq {eps"},
		"layers.0.down_proj: rms_rows: operand 1 is a partial sum; all_reduce it first"},
	{"they change places", []string{"rms_rows %down_raw_part %sumsq_part", "rms_rows %sumsq_part %down_raw_part"},
		"layers.0.down_proj: rms_rows: operand 0 has"},
	{"one launch is given a sum twice", []string{together, "  %sumsq_part %down_raw_part %again = reduce_scatter %sumsq %down_raw %down_raw {axis=0 place=even} : f32[t] shard(0: even), f32[t 6] shard(0: even), f32[t 6] shard(0: even)\n"},
		"layers.0.sumsq_part: reduce_scatter: layers.0.down_raw is reduced twice by the same launch; name it once"},
	{"two sums are scattered along channels", []string{together, "  %down_raw_part %sumsq_part = reduce_scatter %down_raw %down_raw {axis=1} : f32[t 6] shard(1: split), f32[t 6] shard(1: split)\n"},
		"layers.0.down_raw_part: reduce_scatter: operand 1, f32[t 6] partial, cannot share a launch with operand 0, f32[t 6] partial: operands of one launch must be split in the same rows of the batch; use one collective each"},
	{"what all have is scattered beside a sum", []string{"reduce_scatter %sumsq %down_raw", "reduce_scatter %norm %down_raw"},
		"layers.0.sumsq_part: reduce_scatter: operand 0 is not a partial sum: every rank would add what it already has whole"},
	{"parts of other tokens are gathered together", []string{"%h_all = all_gather %layers.0.h : f32[t 6]", "%other = shard %h {axis=0 place=sequence} : f32[t 6] shard(0: sequence)\n%h_all %other_all = all_gather %layers.0.h %other : f32[t 6], f32[t 6]"},
		"h_all: all_gather: operand 1, f32[t 6] shard(0: sequence), cannot share a launch with operand 0, f32[t 6] shard(0: even): operands of one launch must be split in the same rows of the batch; use one collective each"},
}

const together = "  %sumsq_part %down_raw_part = reduce_scatter %sumsq %down_raw {axis=0 place=even} : f32[t] shard(0: even), f32[t 6] shard(0: even)\n"

// TestRefuseTogether: a graph in which values are scattered together is proved, and
// refused once it is broken.
func TestRefuseTogether(t *testing.T) {
	a, err := txtar.ParseFile("testdata/prove/scattered_beside.txtar")
	if err != nil {
		t.Fatal(err)
	}
	source := parse(t, read(t, "hoisted.ir"))
	text := graph.Print(withoutNotes(parse(t, entry(a, "partitioned.ir"))))
	if _, err := Prove(source, parse(t, text), Options{}); err != nil {
		t.Fatal(err)
	}
	for _, c := range brokenTogether {
		t.Run(c.name, func(t *testing.T) {
			g, err := graph.Parse(edit(t, text, c.edits...))
			if err == nil {
				_, err = Prove(source, g, Options{})
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got\n%v\nwant\n%s", err, c.want)
			}
		})
	}
}

func withoutNotes(g *graph.Graph) *graph.Graph {
	for _, n := range g.Nodes {
		n.Note = ""
	}
	return g
}

// TestRefuseRows: a graph whose tokens are split is proved, and refused once it is broken.
func TestRefuseRows(t *testing.T) {
	a, err := txtar.ParseFile("testdata/prove/rows.txtar")
	if err != nil {
		t.Fatal(err)
	}
	source := parse(t, read(t, "rows.ir"))
	text := entry(a, "partitioned.ir")
	const note = "  # down_proj adds up what ranks own; h needs it split"
	at := strings.LastIndex(text, note)
	text = text[:at] + text[at+len(note):]
	if _, err := Prove(source, parse(t, text), Options{}); err != nil {
		t.Fatal(err)
	}
	for _, c := range brokenRows {
		t.Run(c.name, func(t *testing.T) {
			if _, err := Prove(source, parse(t, edit(t, text, c.edits...)), Options{}); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got\n%v\nwant\n%s", err, c.want)
			}
		})
	}
}

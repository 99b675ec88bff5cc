package prove

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/passes/class"
)

// TestMinimum: counts, kinds and bytes that are known.
func TestMinimum(t *testing.T) {
	const twoSums = "2 [all_reduce x_proj all_reduce out_proj]"
	// Norms on dt, B and C need their fields whole, which they are anyway.
	normed := []string{"%dt_proj = matmul %dt ", "%dt_n = unit_rmsnorm %dt {eps=1e-05} : f32[t 2]\n  %dt_proj = matmul %dt_n ",
		"%B %C %ssm", "%B_n %C %ssm", "  %C = field", "  %B_n = unit_rmsnorm %B {eps=1e-05} : f32[t 4]\n  %C = field"}
	// A second branch beside the first: their sums are added, and reduced as one.
	branch := []string{"  %h = add %/h %out_proj :", "  param @side.weight : f32[6 12/1]\n  %side = matmul %u @side.weight : f32[t 6]\n  %both = add %out_proj %side : f32[t 6]\n  %h = add %/h %both :"}
	// Reductions that do not need each other are one launch, even of squashed values.
	apart := []string{"  %h = add %/h %out_proj :", "  param @side.weight : f32[6 12/1]\n  %side = matmul %gate @side.weight : f32[t 6]\n  %act = silu %side : f32[t 6]\n" +
		"  %act2 = silu %out_proj : f32[t 6]\n  %both = add %act2 %act : f32[t 6]\n  %h = add %/h %both :"}
	// A reduction after the blocks needs that of the embedding, by way of the blocks.
	after := []string{"%logits = matmul %norm_f_out ", "param @up.weight : f32[12/1 6]\nparam @down.weight : f32[6 12/1]\n%up = matmul %norm_f_out @up.weight : f32[o 12/1]\n" +
		"%act = silu %up : f32[o 12/1]\n%down = matmul %act @down.weight : f32[o 6]\n%logits = matmul %down "}
	for _, c := range []struct {
		name, file, block, want string
		edits                   []string
		sent                    func(p int64) int64 // bytes for one token, times p
	}{
		{"block", "block.ir", "layers.0", twoSums, nil, func(p int64) int64 { return 2 * (p - 1) * 4 * (10 + 6) }},
		{"block with norms", "block.ir", "layers.0", twoSums, normed, func(p int64) int64 { return 2 * (p - 1) * 4 * (10 + 6) }},
		{"block with a bias", "biased.ir", "layers.0", "2 [all_reduce x_proj all_reduce out_b]", nil, func(p int64) int64 { return 2 * (p - 1) * 4 * (10 + 6) }},
		{"two branches", "block.ir", "layers.0", "2 [all_reduce x_proj all_reduce both]", branch, func(p int64) int64 { return 2 * (p - 1) * 4 * (10 + 6) }},
		{"merged launches", "block.ir", "layers.0", "2 [all_reduce x_proj, side all_reduce out_proj]", apart, func(p int64) int64 { return 2 * (p - 1) * 4 * (10 + 6 + 6) }},
		{"norm by statistic, groups covered", "groups.ir", "layers.0", "2 [all_reduce sumsq all_reduce out_proj]", nil, func(p int64) int64 { return 2 * (p - 1) * 4 * (1 + 6) }},
		{"embedding and tied head", "model.ir", "", "2 [all_reduce h all_gather logits]", nil, func(p int64) int64 { return (p - 1) * 4 * (2*6 + 10) }},
		{"sums before and after blocks", "model.ir", "", "3 [all_reduce h all_reduce down all_gather logits]", after, func(p int64) int64 { return (p - 1) * 4 * (2*6 + 2*6 + 10) }},
		{"norm over units", "norm.ir", "layers.0", "none: layers.0.gated_n: the class has no layout of its operands that rmsnorm accepts", nil, func(int64) int64 { return 0 }},
	} {
		for _, p := range []int{2, 3, 4, 8, 16} {
			t.Run(fmt.Sprint(c.name, " on ", p), func(t *testing.T) {
				m := minimum(parse(t, edit(t, read(t, c.file), c.edits...)), class.Options{Ranks: p, Border: graph.Whole}, Options{})[c.block]
				got := fmt.Sprint(m.Collectives, " ", m.Launches)
				if m.None != "" {
					got = "none: " + m.None
				}
				if want := c.sent(int64(p)); got != c.want || m.parts != want {
					t.Errorf("got %s, %d/%d bytes; want %s, %d/%d bytes", got, m.parts, p, c.want, want, p)
				}
			})
		}
	}
}

// edit replaces pairs of texts.
func edit(t testing.TB, text string, pairs ...string) string {
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(text, pairs[i]) {
			t.Fatalf("%q is not in the text", pairs[i])
		}
		text = strings.ReplaceAll(text, pairs[i], pairs[i+1])
	}
	return text
}

func TestOneRankNeedsNothing(t *testing.T) {
	source := parse(t, read(t, "model.ir"))
	g := parse(t, edit(t, read(t, "model.ir"), "stage=unpacked", "stage=partitioned"))
	c, err := Prove(source, g, Options{})
	if err != nil || c.Collectives != 0 || c.Minimum.Collectives != 0 || len(c.Outside) > 0 {
		t.Errorf("%v\n%v", err, c)
	}
}

// TestSharedParameter: a square matrix of two blocks has one placement, which
// is chosen for both together.
func TestSharedParameter(t *testing.T) {
	const head = `graph "shared" stage=unpacked ranks=1
input %h : f32[t 4]
param @w : f32[8/1 8/1]
`
	block := func(i int, in string) string {
		return fmt.Sprintf(`block layers.%d
  param @up : f32[8/1 4]
  param @down : f32[4 8/1]
  %%a = matmul %%/%s @up
  %%b = matmul %%a @/w
  %%o = matmul %%b @down
  %%h = add %%/%s %%o
`, i, in, in)
	}
	g := parse(t, head+block(0, "h")+block(1, "layers.0.h")+"output y = %layers.1.h\n")
	m := minimum(g, class.Options{Ranks: 2, Border: graph.Whole}, Options{})
	for _, b := range g.Blocks() {
		if m[b].Collectives != 2 || m[b].None != "" {
			t.Errorf("%s: %+v", b, m[b])
		}
	}
	if want := int64(8 * 8 * 4 / 2); m[""].WeightBytes != want {
		t.Errorf("the shared weight takes %d bytes, want %d", m[""].WeightBytes, want)
	}
}

// BenchmarkProve: 64 blocks of real width on 8 ranks.
func BenchmarkProve(b *testing.B) {
	for _, layers := range []int{16, 64} {
		source := deep(b, "stage=unpacked ranks=1", layers, strings.NewReplacer(" shard(0)", "", " shard(1)", "", "_sum", "", "\n  AR", "\n  #"))
		g := deep(b, "stage=partitioned ranks=8", layers, strings.NewReplacer("shard(0)", "shard(0: split)", "shard(1)", "shard(1: split)", "AR", ""))
		b.Run(fmt.Sprint(layers), func(b *testing.B) {
			for b.Loop() {
				if c, err := Prove(source, g, Options{}); err != nil || c.Collectives != 2*layers {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkSearch: a block of over 60 nodes: heads in groups, channels, heads in groups again.
func BenchmarkSearch(b *testing.B) {
	name := regexp.MustCompile(`([%@])([A-Za-z])`)
	text, out := edit(b, block(b, "groups.ir"), "%/h", "%/in"), "h"
	for i, file := range []string{"block.ir", "groups.ir"} {
		prefix := fmt.Sprint("${1}p", i, "_${2}")
		next := strings.ReplaceAll(name.ReplaceAllString(strings.ReplaceAll(block(b, file), "%/h", "%#"), prefix), "%#", "%"+out)
		text += next
		out = fmt.Sprintf("p%d_h", i)
	}
	g := parse(b, "graph \"long\" stage=unpacked ranks=1\ninput %in : f32[t 6]\ninput %seg : i32[s 3]\nblock layers.0\n"+text+"output y = %layers.0."+out+"\n")
	b.ReportMetric(float64(len(class.Sections(g, class.Options{Ranks: 4})[0].Nodes)), "nodes")
	for b.Loop() {
		if m := minimum(g, class.Options{Ranks: 4, Border: graph.Whole}, Options{})["layers.0"]; m.Collectives != 6 {
			b.Fatal(m)
		}
	}
}

// block is the inside of the block of a file.
func block(b *testing.B, file string) string {
	_, text, _ := strings.Cut(read(b, file), "block layers.0\n")
	text, _, _ = strings.Cut(text, "\noutput")
	return text + "\n"
}

// deep stacks blocks; lines that begin with AR are collectives.
func deep(b *testing.B, stage string, layers int, r *strings.Replacer) *graph.Graph {
	text := "graph \"deep\" " + stage + "\ninput %h : f32[t 2560]\ninput %seg : i32[s 3]\n"
	in := "h"
	for i := range layers {
		text += fmt.Sprintf("block layers.%d\n", i) + strings.ReplaceAll(`  param @norm : f32[2560]
  %n = rmsnorm %/IN @norm {eps=1e-05}
  param @x.weight : f32[5120/1 2560] shard(0)
  %x = matmul %n @x.weight
  param @z.weight : f32[5120/1 2560] shard(0)
  %z = matmul %n @z.weight
  param @conv.weight : f32[5120/1 4] shard(0)
  state %conv : f32[s 5120/1 3] shard(1)
  %c %c_state = conv1d %x @conv.weight %conv %/seg
  %u = silu %c
  param @x_proj.weight : f32[dt:160|B:16|C:16 5120/1] shard(1)
  %x_proj = matmul %u @x_proj.weight
  AR%x_proj_sum = all_reduce %x_proj
  %dt = field %x_proj_sum {name=dt}
  %B = field %x_proj_sum {name=B}
  %C = field %x_proj_sum {name=C}
  param @dt_proj.weight : f32[5120/1 160] shard(0)
  %dt_proj = matmul %dt @dt_proj.weight
  %delta = softplus %dt_proj
  param @A_log : f32[5120/1 16] shard(0)
  %A = neg_exp @A_log
  state %ssm : f32[s 5120/1 16] shard(1)
  %scan %scan_state = selective_scan %u %delta %A %B %C %ssm %/seg
  %gate = silu %z
  %gated = mul %scan %gate
  param @out_proj.weight : f32[2560 5120/1] shard(1)
  %out_proj = matmul %gated @out_proj.weight
  AR%out_proj_sum = all_reduce %out_proj
  %h = add %/IN %out_proj_sum
`, "IN", in)
		in = fmt.Sprintf("layers.%d.h", i)
	}
	g, err := graph.Parse(r.Replace(text + "output y = %" + in + "\n"))
	if err != nil {
		b.Fatal(err)
	}
	return g
}

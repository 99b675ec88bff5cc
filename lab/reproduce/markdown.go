package reproduce

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/krait-ml/krait/internal/files"
)

// sections are the sections of the report, by the first words of their claims.
var sections = []struct {
	title, begins, picture string
	log                    bool
}{
	{"Settings", "hardware models sequence batch", "", false},
	{"Collectives of a block", "collectives", "", false},
	{"The longest prompt at a batch of 256", "max_input", "longest", true},
	{"Throughput", "throughput Falcon-Mamba_vs_DP", "gains", false},
	{"Time to the first token", "ttft", "ttft", false},
	{"Time per token", "tpot", "", false},
	{"Sums in fp16", "quantized", "", false},
	{"Ablation: Mamba, 256 tokens and 256 of output, 4 GPUs", "ablation", "ablation", true},
	{"Use of GPUs and memory", "gpu_util memory_util", "", false},
	{"Headlines", "headline", "", false},
}

//go:embed intro.md
var intro string

//go:embed contradictions.md
var contradictions string

//go:embed explained.md
var explanation string

//go:embed replicas.md
var shared string

// Write writes README.md and its pictures into a folder, which it creates.
func (r *Report) Write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString(intro)
	fmt.Fprintf(&b, "\n%s\n", r.summary())
	for _, s := range sections {
		lines := r.section(s.begins)
		fmt.Fprintf(&b, "\n## %s\n\n", s.title)
		if s.picture != "" {
			fmt.Fprintf(&b, "![%s: published and simulated](%s.svg)\n\n", s.title, s.picture)
			if err := files.Write(filepath.Join(dir, s.picture+".svg"), chart(s.title, lines, s.log)); err != nil {
				return err
			}
		}
		table(&b, lines)
		if s.begins[:3] == "thr" {
			r.explain(&b)
			r.replicas(&b)
		}
	}
	r.krait(&b)
	b.WriteString(contradictions)
	if r.Sensitive != nil {
		if err := files.Write(filepath.Join(dir, "sensitivity.md"), []byte(sensitivities(r.Sensitive))); err != nil {
			return err
		}
	}
	return files.Write(filepath.Join(dir, "README.md"), []byte(b.String()))
}

// section returns the lines whose claims begin with one of some words.
func (r *Report) section(begins string) (list []*Line) {
	for i := range r.Lines {
		claim := strings.TrimPrefix(r.Lines[i].Claim, "+")
		if slices.ContainsFunc(strings.Fields(begins), func(w string) bool { return strings.HasPrefix(claim, w) }) {
			list = append(list, &r.Lines[i])
		}
	}
	return list
}

// summary counts the simulated figures that match. What belongs to a figure, as the part of one
// model, is none.
func (r *Report) summary() string {
	figures, inside, near := 0, 0, 0
	for i := range r.Lines {
		x := &r.Lines[i]
		if x.Difference == "" || x.claim.part() {
			continue
		}
		figures++
		switch d := x.simulated.outside(x.published); {
		case d == 0:
			inside++
		case x.claim.Unit == "%" && d >= -15 && d <= 15:
			near++
		}
	}
	return fmt.Sprintf("Of %d figures that are simulated, %d come out, and %d more within 15 points.", figures, inside, near)
}

// table writes lines with numbered reasons, which follow the table.
func table(b *strings.Builder, lines []*Line) {
	b.WriteString("| claim | where | published | simulated | difference | reason |\n|---|---|---|---|---|---|\n")
	var reasons []string
	for _, x := range lines {
		n := slices.Index(reasons, x.Reason) + 1
		if n == 0 {
			reasons = append(reasons, x.Reason)
			n = len(reasons)
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %d |\n", x.Claim, x.Where, x.Published, strings.Join(append([]string{x.Simulated}, x.Beside...), "; "), x.Difference, n)
	}
	b.WriteString("\n")
	for i, text := range reasons {
		fmt.Fprintf(b, "%d. %s.\n", i+1, strings.ToUpper(text[:1])+text[1:])
	}
}

func (r *Report) replicas(b *strings.Builder) {
	b.WriteString("\n### What would explain the gains over replicas\n\nTP/1x divided by TP/DP is DP/1x. Which gains belong together is not published; with the ends paired in all ways:\n\n")
	b.WriteString("| machine | GPUs | published TP/1x | published TP/DP | simulated TP/DP, ideal replicas | implied DP/1x | implied efficiency of replicas |\n|---|---|---|---|---|---|---|\n")
	for _, p := range r.DP {
		fmt.Fprintf(b, "| %s | %d | %s | %s | %s | %s | %s |\n", p.Machine, p.GPUs, p.OverOne, p.OverDP, p.Simulated, p.Replicas, p.Efficiency)
	}
	b.WriteString(shared)
}

func (r *Report) krait(b *strings.Builder) {
	b.WriteString("\n## What Krait does on the same hardware\n\nMamba on 4 GPUs, 256 sequences of 256 tokens, whole prompts at once, and 256 tokens of output each:\n\n")
	b.WriteString("| machine | how | TTFT | TPOT | tokens/s | activations |\n|---|---|---|---|---|---|\n")
	for _, o := range r.Ours {
		fmt.Fprintf(b, "| %s | %s | %.2f s | %.1f ms | %.0f | %.2f GB |\n", o.Machine, o.How, o.TTFT, 1000*o.TPOT, o.Throughput, float64(o.Arena)/1e9)
	}
	b.WriteString("\nWith Krait's prefill in chunks of 512 tokens, activations of a recurrent model do not grow with the prompt, and any length fits.\n")
	b.WriteString("\n## Overlap\n\nA step of tokens of Mamba on 4 GPUs, as Krait runs it, without and with `--overlap`: the z half of in_proj runs while the sum of x_proj travels.\n\n")
	b.WriteString("| machine | batch | TPOT | with overlap | shorter by | activations of a prompt |\n|---|---|---|---|---|---|\n")
	for _, o := range r.Order {
		fmt.Fprintf(b, "| %s | %d | %.3f ms | %.3f ms | %.1f %% | %.0f MB, with overlap %.0f MB |\n", o.Machine, o.Batch, 1000*o.Before, 1000*o.After,
			100*(1-o.After/o.Before), float64(o.ArenaBefore)/1e6, float64(o.ArenaAfter)/1e6)
	}
}

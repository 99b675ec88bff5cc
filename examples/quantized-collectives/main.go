// Command quantized-collectives prints the tables of docs/benchmarks/payloads.md: the loss of each
// payload format at each site and of each state codec on trained models, in agreement and in bits,
// and the loss of payloads on a synthetic head of 50,000 tokens. The embedded model is always the
// first. In the root of the repository, this replaces the tables between their marks in the page:
//
//	go run ./examples/quantized-collectives -o docs/benchmarks/payloads.md ../shared/models/tiny-mamba2
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/kernels/codec"
	"github.com/krait-ml/krait/lab/agreement"
	"github.com/krait-ml/krait/passes"
)

// formats are the rows of each site.
var formats = []string{"fp16", "bf16", "scaled16", "int8", "e4m3", "e5m2", "int4", "int8/128", "int4/16"}

func main() {
	out := flag.String("o", "", "replace the tables in this page (default: print them)")
	text := flag.String("text", "testdata/val.txt", "text file to evaluate on")
	tokens := flag.Int("tokens", 2048, "tokens of the text to use")
	from := flag.Int("from", 32768, "byte of the text at which they begin")
	ranks := flag.Int("tp", 4, "ranks")
	head := flag.Int("head", 100, "vectors for the synthetic head")
	only := flag.String("only", "", "table (payloads) or states (default: both)")
	flag.Parse()
	if err := write(*out, *only, *text, *from, *tokens, *ranks, *head, append([]string{""}, flag.Args()...)); err != nil {
		fmt.Fprintln(os.Stderr, "quantized-collectives:", err)
		os.Exit(1)
	}
}

func write(out, only, text string, from, tokens, ranks, head int, dirs []string) error {
	var page []byte
	var err error
	if out != "" {
		if page, err = os.ReadFile(out); err != nil {
			return err
		}
	}
	data, err := os.ReadFile(text)
	if err != nil {
		return err
	}
	data = data[min(from, len(data)):]
	for _, part := range []struct {
		mark  string
		model func(b *strings.Builder, dir string, text []byte, tokens, ranks int) error
		after func(b *strings.Builder)
	}{
		{"table", model, func(b *strings.Builder) { synthetic(b, head, ranks) }},
		{"states", states, func(*strings.Builder) {}},
	} {
		if only != "" && only != part.mark {
			continue
		}
		var b strings.Builder
		for _, dir := range dirs {
			if err := part.model(&b, dir, data, tokens, ranks); err != nil {
				return err
			}
		}
		part.after(&b)
		if out == "" {
			if _, err := os.Stdout.WriteString(b.String()); err != nil {
				return err
			}
			continue
		}
		if page, err = between(page, part.mark, b.String()); err != nil {
			return fmt.Errorf("%s %w", out, err)
		}
	}
	if out == "" {
		return nil
	}
	return os.WriteFile(out, page, 0o644)
}

// between replaces what is between two marks.
func between(page []byte, mark, text string) ([]byte, error) {
	begin, end := "<!-- begin "+mark+" -->\n", "<!-- end "+mark+" -->\n"
	before, rest, ok := bytes.Cut(page, []byte(begin))
	_, after, closed := bytes.Cut(rest, []byte(end))
	if !ok || !closed {
		return nil, fmt.Errorf("has no marks %q and %q", begin, end)
	}
	return []byte(string(before) + begin + text + end + string(after)), nil
}

func open(dir string, ranks int, quantize string) (*krait.Model, error) {
	o := krait.Options{Slots: 1, Sharding: krait.Sharding{Ranks: ranks, Payload: quantize}}
	if dir == "" {
		return krait.Embedded(o)
	}
	return krait.Open(dir, o)
}

// model writes a model's table of payloads.
func model(b *strings.Builder, dir string, text []byte, tokens, ranks int) error {
	base, err := open(dir, ranks, "")
	if err != nil {
		return err
	}
	defer base.Close()
	ids, size, err := cut(base, text, tokens)
	if err != nil {
		return err
	}
	r := row{ids: ids, bytes: size, base: base, dir: dir, ranks: ranks}
	plain, err := r.bits(base)
	if err != nil {
		return err
	}
	fmt.Fprintf(b, "\n### %s, %d ranks, %d tokens\n\nWith exact payloads: %.6f bits per byte.\n\n", nameOf(dir), ranks, len(ids), plain)
	fmt.Fprintln(b, "| site | payload | top-1 % | top-5 unordered % | top-5 ordered % | bits per byte |\n|---|---|---:|---:|---:|---:|")
	sites := passes.Sites(base.Compiled())
	for _, f := range formats {
		if err := r.write(b, "all", f, f); err != nil {
			return err
		}
	}
	for _, s := range sites {
		for _, f := range formats[:7] {
			if err := r.write(b, s.Name, f, s.Name+"="+f); err != nil {
				return err
			}
		}
	}
	return nil
}

func nameOf(dir string) string {
	if dir == "" {
		return "tiny-mamba (embedded)"
	}
	return filepath.Base(dir)
}

// cut returns the first tokens of a text, and their size in bytes.
func cut(m *krait.Model, text []byte, tokens int) (ids []int, size int, err error) {
	t, err := m.Tokenizer()
	if err != nil {
		return nil, 0, err
	}
	if ids, err = t.Encode(string(text[:min(len(text), 8*tokens)]), false); err != nil {
		return nil, 0, err
	}
	ids = ids[:min(len(ids), tokens)]
	return ids, len(t.Decode(ids, false)), nil
}

// row measures one line of a model's table.
type row struct {
	ids   []int
	bytes int
	base  *krait.Model
	dir   string
	ranks int
}

var windows = krait.Evaluate{Window: 512}

func (r *row) bits(m *krait.Model) (float64, error) {
	e, err := m.Evaluate(context.Background(), r.ids, windows)
	if err != nil {
		return 0, err
	}
	return e.Bits / (float64(r.bytes) * float64(e.Scored) / float64(len(r.ids))), nil
}

func (r *row) write(b *strings.Builder, site, format, quantize string) error {
	m, err := open(r.dir, r.ranks, quantize)
	if err != nil {
		return fmt.Errorf("%s: %w", quantize, err)
	}
	defer m.Close()
	bits, err := r.bits(m)
	if err != nil {
		return fmt.Errorf("%s: %w", quantize, err)
	}
	a, err := agreement.Measure(context.Background(), m, r.base, r.ids, windows)
	if err != nil {
		return fmt.Errorf("%s: %w", quantize, err)
	}
	fmt.Fprintf(b, "| %s | %s | %.2f | %.2f | %.2f | %.6f |\n", site, format, 100*a.Top1, 100*a.Top5Unordered, 100*a.Top5Ordered, bits)
	return nil
}

// synthetic writes the table of a head of 50,000 tokens in groups of 5 with close logits: the rows
// of a group differ by a hundredth. Its input is the sum of the ranks' partial sums, rounded before
// and after the sum.
func synthetic(b *strings.Builder, vectors, ranks int) {
	const vocabulary, width, close = 50_000, 64, 0.01
	rng := rand.New(rand.NewPCG(50_000, 20))
	w := make([]float32, vocabulary*width)
	for i := range w {
		w[i] = float32(rng.NormFloat64())
		if token := i / width; token%5 > 0 {
			w[i] = w[(token-token%5)*width+i%width] + close*w[i]
		}
	}
	fmt.Fprintf(b, "\n### A head of 50,000 tokens with close logits, %d ranks, %d vectors\n\n", ranks, vectors)
	fmt.Fprintln(b, "| payload | top-1 % | top-5 unordered % | top-5 ordered % |\n|---|---:|---:|---:|")
	summands := make([][][]float32, vectors)
	want := make([][5]int, vectors)
	for i := range summands {
		sum := make([]float32, width)
		for range ranks {
			x := make([]float32, width)
			for j := range x {
				x[j] = float32(rng.NormFloat64())
				sum[j] += x[j]
			}
			summands[i] = append(summands[i], x)
		}
		want[i] = top(w, sum)
	}
	for _, f := range formats {
		got := make([][5]int, vectors)
		for i := range got {
			sum := make([]float32, width)
			for _, x := range summands[i] {
				for j, v := range rounded(f, x) {
					sum[j] += v
				}
			}
			got[i] = top(w, rounded(f, sum))
		}
		a := agreement.Of(got, want)
		fmt.Fprintf(b, "| %s | %.2f | %.2f | %.2f |\n", f, 100*a.Top1, 100*a.Top5Unordered, 100*a.Top5Ordered)
	}
}

// top returns the five tokens with the highest logits.
func top(w, x []float32) [5]int {
	logits := make([]float32, len(w)/len(x))
	for i := range logits {
		row := w[i*len(x):][:len(x)]
		for j, v := range x {
			logits[i] += v * row[j]
		}
	}
	return agreement.TopFive(logits)
}

// rounded returns a row after a collective in a format.
func rounded(format string, x []float32) []float32 {
	d, err := passes.ParseFormat(format)
	y := slices.Clone(x)
	if err == nil {
		err = codec.RoundTo(d, y)
	}
	if err != nil {
		panic(err)
	}
	return y
}

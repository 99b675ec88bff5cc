package passes

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/graph"
	"golang.org/x/tools/txtar"
)

var update = flag.Bool("update", false, "rewrite the wanted graphs of testdata/*.txtar")

// TestGolden runs the cases of testdata: one file per pass. A case NAME is the files NAME/in.ir,
// NAME/run (the passes, then ranks, strategy, payloads, states, watch=fp16 and target=bf16 or
// pieces, as key=value), and NAME/want.ir or NAME/want.err; without in.ir it continues with the
// in.ir before.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, p := range Table {
		want = append(want, filepath.Join("testdata", p.Name+".txtar"))
	}
	slices.Sort(want)
	if !slices.Equal(files, want) {
		t.Fatalf("there are %q, want %q: a file for each pass", files, want)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) { runGolden(t, file) })
	}
}

func runGolden(t *testing.T, file string) {
	a, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	in, run, runs, cases := "", "", 0, 0
	for i := range a.Files {
		f := &a.Files[i]
		name, what := filepath.Split(f.Name)
		switch what {
		case "in.ir":
			in = string(f.Data)
		case "run":
			run = string(f.Data)
			runs++
		case "want.ir", "want.err":
			cases++
			got, err := runCase(in, run)
			if (err != nil) != (what == "want.err") {
				t.Errorf("%s: %v\n%s", name, err, got)
				continue
			}
			if err != nil {
				got = err.Error() + "\n"
			}
			if got != string(f.Data) {
				t.Errorf("%s: got\n%s\nwant\n%s", name, got, f.Data)
			}
			if *update && err == nil {
				f.Data = []byte(got)
			}
		default:
			t.Errorf("%s is none of in.ir, run, want.ir and want.err", f.Name)
		}
	}
	if cases == 0 || cases != runs {
		t.Errorf("%d runs and %d results", runs, cases)
	}
	if *update {
		if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// standIn is a device whose norms take either format on both sides, whose products take bf16 and
// give what they take, and whose scans and convolutions take bf16 on both sides or neither, in
// prompts only. With pieces, its norms, and in prompts convolutions, give them to products.
type standIn struct{ pieces bool }

func (s standIn) Pieces() bool { return s.pieces }

func (s standIn) Accepts(n *graph.Node, _ int, narrow func(*graph.Value) bool, prompts bool) []bool {
	ok := make([]bool, len(n.Args)+len(n.Results))
	first, result := narrow(n.Args[0]), narrow(n.Results[0])
	if s.pieces {
		ok[0] = n.Op.Name == "matmul"
		ok[len(n.Args)] = n.Op.Name == "rmsnorm" || prompts && n.Op.Name == "unbiased_conv1d_silu"
		return ok
	}
	switch n.Op.Name {
	case "rmsnorm":
		ok[0], ok[len(n.Args)] = true, true
	case "add_rmsnorm":
		ok[len(n.Args)+1] = true
	case "matmul":
		ok[0], ok[len(n.Args)] = true, first
	case "silu":
		ok[0], ok[1] = first && result, first && result
	case "conv1d_silu", "unbiased_conv1d_silu":
		ok[0], ok[len(n.Args)] = first && result && prompts, first && result && prompts
	}
	return ok
}

// runCase runs "unpack partition ranks=2 strategy=naive quantize=fp16".
func runCase(in, run string) (string, error) {
	g, err := graph.Parse(in)
	if err != nil {
		return "", err
	}
	var o Options
	var names []string
	for _, w := range strings.Fields(run) {
		key, value, ok := strings.Cut(w, "=")
		switch {
		case !ok:
			names = append(names, w)
		case key == "ranks":
			fmt.Sscan(value, &o.Ranks)
		case key == "strategy":
			o.Strategy, err = FindStrategy(value)
		case key == "quantize":
			o.Quantize, err = ParseQuantize(value)
		case key == "states":
			o.States, err = ParseStates(value)
		case key == "target":
			o.Target = standIn{value == "pieces"}
		case key == "watch":
			o.Quantize.Watch = value == "fp16"
		}
		if err != nil {
			return "", err
		}
	}
	out, err := Run(g, names, o)
	if err != nil {
		return "", err
	}
	return graph.Print(out), nil
}

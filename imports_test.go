package krait_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var updateTable = flag.Bool("update", false, "write the table of storeys in docs/architecture.md")

const module = "github.com/krait-ml/krait"

// storeys are the folders of the repository from the ground up. A package imports packages of its
// own storey and of those below. The root package, the door, is "krait".
var storeys = []struct{ name, job string }{
	{"internal", "helpers without a subject of their own: files, web pages, aids for tests"},
	{"graph", "values, types, operation rows, shape and layout rules, cost, checks, text; the only offsets of shards"},
	{"kernels", "one kernel per operation: `cpu` fast, `reference` plain in float64, `cuda` for GPUs; `codec` for payloads"},
	{"passes", "one file per pass, `class` of placements, `prove`"},
	{"lowering", "a schedule per rank: steps on streams, memory offsets, memory plans, lists of what moves between rank counts"},
	{"cost", "hardware profiles, and the time of launches and collectives on them"},
	{"models", "families as graphs, one file per family, from `config.json`"},
	{"cuda", "the CUDA driver: `driver` the interface, `nvidia` the real one, `sim` a simulated one on `ptx`, an interpreter"},
	{"text", "`tokenizer`, `chat` templates, `sampling`, `constrain` (JSON schemas)"},
	{"checkpoint", "files to weights, tokenizer and template: `safetensors`, `gguf`, `torchfile`; writes them: `convert`, `quantize`, `synth`"},
	{"exec", "the engine; `state` of sequences, `group` of processes, `comm`, devices `cpu`, `cuda`, `virtual`"},
	{"session", "requests of many users on one engine: `schedule`, `cache`, `prefix`, `admit`, memory plan"},
	{"transfer", "moves states between machines: protocol, `transport`, `ucx`, and the `prefill` role"},
	{"visualize", "Graphviz, timelines, the explain page; reads, never changes"},
	{"krait", "the door: Open, New, Model, Generate, Stream, Sequence"},
	{"serving", "`openai` HTTP, `route`, `metrics`, `board`"},
	{"lab", "measures and checks: `bench`, `simulate`, `validate`, `calibration`, `load`, `check`, `reproduce`"},
	{"interop", "`gorgonia` tensors in and out, and Gorgonia as an oracle in tests"},
	{"cli", "commands: flags and printing; `Main` is public"},
	{"cmd", "`krait`, which calls `cli`"},
	{"examples", "programs that use Krait"},
	{"tests", "end-to-end tests by subject"},
}

// upward lists the imports that go up, each with its reason.
var upward = map[[2]string]string{
	{"internal/choices", "graph"}:   "cases of the operation choose, for tests of two storeys",
	{"internal/choices", "kernels"}: "cases of the operation choose, for tests of two storeys",
	{"internal/graphgen", "graph"}:  "random graphs, for tests of many storeys",
}

// onlyIn lists foreign modules that only some folders may import, so that a program which does not
// use the folder does not link them.
var onlyIn = map[string]string{
	"gorgonia.org/":           "interop/gorgonia examples/gorgonia cuda/gorgoniacu",
	"github.com/spf13/":       "cli",
	"github.com/emicklei/dot": "visualize",
	"github.com/ebitengine/":  "cuda/nvidia exec/comm/mpi transfer/ucx",
	"github.com/ulikunitz/":   "kernels/cuda",
}

// storey is the index of a package's storey; -1 without one.
func storey(dir string) int {
	name, _, _ := strings.Cut(dir, "/")
	if dir == "" || dir == "." {
		name = "krait"
	}
	return slices.IndexFunc(storeys, func(s struct{ name, job string }) bool { return s.name == name })
}

// anImport is one of a file that no test is.
type anImport struct{ file, dir, path string }

// imports lists those of all files of the module but tests.
func imports(t *testing.T) (list []anImport) {
	t.Helper()
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && file != "." && isModule(file):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go"):
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range f.Imports {
			imported, _ := strconv.Unquote(spec.Path.Value)
			list = append(list, anImport{file, filepath.ToSlash(filepath.Dir(file)), imported})
		}
		return nil
	})
	if err != nil || len(list) < 50 {
		t.Fatalf("%d imports: %v", len(list), err)
	}
	return list
}

// isModule reports whether a folder is a module of its own.
func isModule(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

// TestStoreys: no import goes up but those that are listed, and only some folders import foreign
// modules that are large.
func TestStoreys(t *testing.T) {
	used := map[[2]string]bool{}
	for _, i := range imports(t) {
		if i.path == "C" {
			t.Errorf("%s imports C; the program must build without cgo", i.file)
		}
		for prefix, folders := range onlyIn {
			if strings.HasPrefix(i.path, prefix) && !under(i.dir, strings.Fields(folders)) {
				t.Errorf("%s imports %s, which only %s may", i.file, i.path, folders)
			}
		}
		ours, ok := strings.CutPrefix(i.path, module)
		if !ok {
			continue
		}
		ours = strings.TrimPrefix(ours, "/")
		edge := [2]string{i.dir, ours}
		switch why := upward[edge]; {
		case storey(i.dir) < 0 || storey(ours) < 0:
			t.Errorf("%s imports %s: a folder without a storey; add it to storeys", i.file, i.path)
		case goesUp(i.dir, ours) && why == "":
			t.Errorf("%s imports %s, which is in a storey above", i.file, i.path)
		case goesUp(i.dir, ours):
			used[edge] = true
		}
	}
	for edge := range upward {
		if !used[edge] {
			t.Errorf("%s does not import %s any more; delete the exception", edge[0], edge[1])
		}
	}
}

// goesUp reports whether an import goes to a storey above.
func goesUp(from, to string) bool { return storey(to) > storey(from) }

// TestStoreysRefuse: imports that have closed a circle before go up.
func TestStoreysRefuse(t *testing.T) {
	for _, bad := range [][2]string{{"graph", "models"}, {"models", "passes/../checkpoint"}, {"models", "checkpoint/gguf"}, {"lowering", "exec"}, {"passes", "lowering"},
		{"exec", "session/schedule"}, {"session/schedule", ""}, {"session/cache", "transfer"}, {"", "serving/openai"}, {"", "lab/simulate"}, {"visualize", ""},
		{"kernels/cpu", "exec"}, {"text/tokenizer", "checkpoint"}, {"transfer", "visualize"}, {"cost", "exec/virtual"}, {"serving/openai", "lab/load"}, {"lab/bench", "cli"}} {
		if bad[1] = path.Clean("/" + bad[1])[1:]; !goesUp(bad[0], bad[1]) {
			t.Errorf("%s may import %q", bad[0], bad[1])
		}
	}
}

// TestTable: docs/architecture.md has the table of storeys as they are.
func TestTable(t *testing.T) {
	const page, begin, end = "docs/architecture.md", "<!-- storeys: go test -run TestTable -update . -->\n", "<!-- end of storeys -->"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no lines %q and %q", page, begin, end)
	}
	want := before + begin + table(imports(t)) + end + after
	if want == string(text) {
		return
	}
	if !*updateTable {
		t.Fatalf("the table of %s is not that of the tree; go test -run TestTable -update . writes it", page)
	}
	if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

// table has a row per storey, from the top down: its job, and the storeys that it imports.
func table(list []anImport) string {
	var b strings.Builder
	b.WriteString("| storey | job | imports of ours |\n|---|---|---|\n")
	for i := len(storeys) - 1; i >= 0; i-- {
		var below []string
		for k, s := range storeys {
			if k != i && slices.ContainsFunc(list, func(x anImport) bool {
				ours, ok := strings.CutPrefix(x.path, module)
				return ok && storey(x.dir) == i && storey(strings.TrimPrefix(ours, "/")) == k
			}) {
				below = append(below, s.name)
			}
		}
		folder := "`" + storeys[i].name + "/`"
		if storeys[i].name == "krait" {
			folder = "`krait.go` …"
		}
		imports := strings.Join(below, ", ")
		if imports == "" {
			imports = "nothing"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", folder, storeys[i].job, imports)
	}
	return b.String()
}

func under(dir string, folders []string) bool {
	return slices.ContainsFunc(folders, func(f string) bool { return dir == f || strings.HasPrefix(dir, f+"/") })
}

// TestNoFamilyNames: only models and the storeys above it know families; citations of papers in
// comments, and file names in them, are fine.
func TestNoFamilyNames(t *testing.T) {
	names := []string{"mamba", "falcon", "zamba", "jamba", "bamba", "granite", "nemotron"}
	for _, dir := range []string{"graph", "passes", "lowering", "exec", "session", "kernels", "lab/validate"} {
		err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
				return err
			}
			set := token.NewFileSet()
			f, err := parser.ParseFile(set, file, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(f, func(n ast.Node) bool {
				text := ""
				switch n := n.(type) {
				case *ast.Ident:
					text = n.Name
				case *ast.BasicLit:
					text = n.Value
				}
				for _, name := range names {
					if strings.Contains(strings.ToLower(text), name) {
						t.Errorf("%s: %s names a family", set.Position(n.Pos()), text)
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

package krait

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/krait-ml/krait"

// mayImport says which packages of ours a package may import, by the longest
// path that fits; "*" is any, and a path that ends in /... what is under it, too.
// Imports follow the data: models -> graph -> passes -> lowering -> exec. Tests may
// import anything.
var mayImport = map[string][]string{
	"graph":                  {},
	"models":                 {"graph", "checkpoint/gguf", "checkpoint/safetensors", "checkpoint/torchfile", "internal/files"},
	"passes":                 {"graph", "passes/class", "internal/files"},
	"passes/class":           {"graph"},
	"passes/prove":           {"graph", "passes/class", "kernels/codec"}, // for the bounds of blocks
	"lowering":               {"graph"},
	"cost":                   {"graph", "lowering", "internal/files"},
	"lab/simulate":           {"graph", "passes", "lowering", "cost", "exec", "exec/virtual"},
	"lab/validate":           {"graph", "kernels/..."},
	"visualize":              {"graph", "lowering", "session/prefix", "internal/fonts"},
	"visualize/explain":      {"graph", "lowering", "exec", "passes/prove", "visualize"},
	"visualize/timeline":     {"graph", "lowering", "exec", "visualize", "internal/fonts"},
	"kernels":                {"graph", "kernels", "kernels/codec"},
	"kernels/codec":          {"graph"},
	"cuda":                   {},
	"cuda/driver":            {"cuda/driver"}, // knows no graph, nor who implements it
	"cuda/nvidia":            {"cuda/driver"},
	"cuda/gorgoniacu":        {"cuda/driver"},
	"cuda/sim":               {"cuda/driver", "cuda/ptx"},
	"cuda/ptx":               {},
	"exec":                   {"graph", "lowering", "kernels", "kernels/codec", "exec/comm", "exec/internal/operand", "internal/files"}, // the engine knows no device
	"exec/comm":              {"graph", "lowering", "kernels", "exec/internal/operand", "internal/spin"},
	"exec/comm/mpi":          {"exec/comm"},
	"exec/comm/tcp":          {"exec/comm", "internal/files", "internal/lobby"},
	"exec/saved":             {"exec"},
	"exec/internal/operand":  {"graph", "lowering", "kernels"},
	"exec/cpu":               {"graph", "lowering", "kernels", "kernels/cpu", "exec", "exec/comm", "exec/internal/operand", "internal/files", "internal/memory", "internal/spin"},
	"exec/cuda":              {"graph", "lowering", "passes", "kernels", "kernels/cuda", "cuda/driver", "exec", "exec/comm", "exec/internal/operand", "internal/files"},
	"exec/virtual":           {"graph", "lowering", "cost", "kernels", "exec", "exec/comm", "exec/internal/operand"},
	"exec/devices":           {"kernels/cuda", "cuda/...", "exec/..."},
	"internal":               {"internal/files"},
	"internal/goldens":       {},
	"internal/prop":          {"internal/goldens"},
	"internal/fonts":         {},
	"internal/lobby":         {},
	"internal/memory":        {},
	"internal/spin":          {},
	"internal/graphgen":      {"graph"},
	"internal/chromium":      {},
	"internal/choices":       {"graph", "kernels"},
	"text/chat":              {"internal/files", "internal/jinja", "text/tokenizer"},
	"text/sampling":          {"graph", "kernels", "kernels/cpu"},
	"text/tokenizer":         {"internal/files"},
	"checkpoint/safetensors": {"internal/files"},
	"checkpoint/gguf":        {"internal/files"},
	"checkpoint/torchfile":   {"internal/files"},
	"internal/torchsave":     {},
	"session/prefix":         {},
	"session/cache":          {"exec", "exec/saved", "session/prefix", "internal/files"},
	"session/schedule":       {"kernels", "exec", "internal/maxmin"},
	"text/constrain":         {},
	"serving/openai":         {"", "text/chat", "text/tokenizer", "text/constrain", "internal/lobby", "serving/board", "serving/internal/api", "serving/internal/budget", "internal/maxmin", "serving/metrics"},
	"serving/metrics":        {"exec", "lowering"},
	"serving/board":          {"exec", "lowering"},
	"lab/workload":           {"session/prefix"},
	"serving/internal":       {},
	"lab/load":               {"session/prefix", "internal/fonts"}, // like route it knows of servers only what the API says
	"serving/route":          {"internal/lobby", "serving/internal/api", "serving/internal/budget", "transfer/ping"},
	"transfer/internal":      {},
	"transfer/ping":          {"transfer/internal/wire"},
	"transfer/transport":     {"transfer/internal/wire"},
	"transfer/ucx":           {"transfer/transport"},
	"transfer":               {"exec", "lowering", "internal/lobby", "transfer/ping", "transfer/transport", "transfer/internal/wire"}, // and not who calls foreign libraries
	"interop":                {"*"},
	"lab/optest":             {"*"}, // as tests may
	"examples":               {"*"},
	"cmd":                    {"*"},
	"cli":                    {"*"},
	"lab/bench":              {"*"},
	"lab/calibrate":          {"*"},
	"lab/check":              {"*"},
	"lab/reproduce":          {"*"},
	"checkpoint":             {"*"},
	".":                      {"*"},
}

// onlyIn lists foreign modules that only one folder may import, so that who
// does not use the folder does not link them.
var onlyIn = map[string]string{
	"gorgonia.org/":           "interop/gorgonia examples/gorgonia cuda/gorgoniacu",
	"github.com/spf13/":       "cli",
	"github.com/emicklei/dot": "visualize",
	"github.com/ebitengine/":  "cuda/nvidia exec/comm/mpi transfer/ucx",
	"github.com/ulikunitz/":   "kernels/cuda",
}

func TestImports(t *testing.T) {
	seen := 0
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		dir := filepath.ToSlash(filepath.Dir(file))
		for _, spec := range f.Imports {
			imported, _ := strconv.Unquote(spec.Path.Value)
			seen++
			if imported == "C" {
				t.Errorf("%s imports C; the program must build without cgo", file)
			}
			for prefix, folders := range onlyIn {
				if strings.HasPrefix(imported, prefix) && !under(dir, strings.Fields(folders)) {
					t.Errorf("%s imports %s, which only %s may", file, imported, folders)
				}
			}
			if ours, ok := strings.CutPrefix(imported, module); ok && !allowed(dir, strings.TrimPrefix(ours, "/")) {
				t.Errorf("%s imports %s: %s may import only %v of ours", file, imported, dir, rule(dir))
			}
		}
		return nil
	})
	if err != nil || seen < 50 {
		t.Errorf("%d imports seen: %v", seen, err)
	}
}

// rule is the entry of the longest path that dir is under.
func rule(dir string) []string {
	for d := dir; ; d = path.Dir(d) {
		if r, ok := mayImport[d]; ok {
			return r
		}
	}
}

func allowed(dir, imported string) bool {
	for _, r := range rule(dir) {
		tree, whole := strings.CutSuffix(r, "/...")
		if r == "*" || imported == r || whole && under(imported, []string{tree}) {
			return true
		}
	}
	return imported == dir
}

func under(dir string, folders []string) bool {
	for _, f := range folders {
		if dir == f || strings.HasPrefix(dir, f+"/") {
			return true
		}
	}
	return false
}

// TestImportRules: the rules refuse what they should.
func TestImportRules(t *testing.T) {
	for _, bad := range [][2]string{{"graph", "models"}, {"models", "passes"}, {"lowering", "exec"}, {"exec", "models"}, {"kernels/cpu", "exec"}, {"session/prefix", "graph"}, {"session/prefix", "lab/workload"}, {"session/schedule", "exec/cpu"}, {"session/schedule", ""}, {"exec", "session/schedule"},
		{"visualize", "exec"}, {"text/tokenizer", "graph"}, {"exec", "exec/cpu"}, {"exec", "cuda/driver"}, {"exec/cpu", "exec/cuda"}, {"exec", "exec/comm/tcp"}, {"exec/comm", "exec/comm/mpi"}, {"exec/comm/mpi", "exec"}, {"exec/cuda", "cuda/sim"}, {"cuda/sim", "graph"}, {"passes", "lowering"}, {"models", ""},
		{"lab/validate", "passes"}, {"lab/validate", "exec"}, {"transfer", "transfer/ucx"}, {"transfer/transport", "exec"}, {"serving/openai", "exec"}, {"session/schedule", "serving/openai"}, {"exec", "transfer"},
		{"cuda/driver", "cuda/sim"}, {"cuda/ptx", "cuda/driver"}, {"cuda/nvidia", "cuda/ptx"}, {"cuda/sim", "kernels"}} {
		if allowed(bad[0], bad[1]) {
			t.Errorf("%s may import %q", bad[0], bad[1])
		}
	}
}

// TestNoFamilyNames: only models and what is above it know families; citations of
// papers in comments, and file names in them, are fine.
func TestNoFamilyNames(t *testing.T) {
	names := []string{"mamba", "falcon", "zamba", "jamba", "bamba", "granite", "nemotron"}
	for _, dir := range []string{"graph", "passes", "lowering", "exec", "kernels", "lab/validate"} {
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

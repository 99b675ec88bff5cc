package krait

import (
	"flag"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var updateTable = flag.Bool("update", false, "rewrite the table of docs/packages.md")

const module = "github.com/krait-ml/krait"

// storeys lists the folders bottom up. A package belongs to the storey with the longest matching
// path ("." is the root package). It may import packages of lower storeys, and of its own storey
// as long as folders do not form a circle. Tests may import anything.
var storeys = []struct{ name, folders string }{
	{"internal", "internal"},
	{"graph", "graph"},
	{"kernels", "kernels"},
	{"passes", "passes"},
	{"lowering", "lowering"},
	{"cost", "cost"},
	{"models", "models"},
	{"cuda", "cuda"},
	{"text", "text"},
	{"checkpoint", "checkpoint"},
	{"exec", "exec"},
	{"session", "session"},
	{"transfer", "transfer"},
	{"visualize", "visualize"},
	{"krait", "."},
	{"serving", "serving"},
	{"lab", "lab"},
	{"interop", "interop"},
	{"cli", "cli"},
	{"programs", "cmd examples tests"},
}

// upward lists the imports that run up, "importer > imported", each with its reason.
var upward = map[string]string{
	"internal/choices > graph":   "cases of the operation choose, for tests of two storeys",
	"internal/choices > kernels": "cases of the operation choose, for tests of two storeys",
	"internal/graphgen > graph":  "random graphs, for tests of many storeys",
}

// isolated lists packages that may import less than their storey allows, by what they may import.
var isolated = map[string]string{
	"cuda/driver":      "cuda/driver", // knows no graph and no implementation
	"cuda/ptx":         "",
	"cuda/sim":         "cuda/driver cuda/ptx",
	"models":           "graph internal",                                               // a family knows no pass and no file format
	"passes/prove":     "graph passes/class kernels/codec internal",                    // the proof shares no code with partition
	"lab/validate":     "graph kernels internal",                                       // nor does execution with the proof
	"session/prefix":   "internal",                                                     // a pure data structure
	"session/schedule": "exec exec/state kernels internal session/admit session/draft", // any engine that can Alloc, Free and Step
	"serving/route":    "serving/internal serving/route transfer/ping internal",        // knows of servers only what the API says
	"visualize":        "graph lowering exec passes/prove session/prefix visualize internal",
}

// onlyIn lists foreign modules that only some folders may import, so that programs that do not
// use the folder do not link the module.
var onlyIn = map[string]string{
	"gorgonia.org/":           "interop/gorgonia examples/gorgonia cuda/gorgoniacu",
	"github.com/spf13/":       "cli",
	"github.com/emicklei/dot": "visualize",
	"github.com/ebitengine/":  "cuda/nvidia exec/comm/mpi transfer/ucx",
	"github.com/ulikunitz/":   "kernels/cuda",
}

// notLinked lists packages of ours that a program that imports only the door must not link.
var notLinked = []string{"visualize", "lab", "cost", "exec/virtual", "serving", "cli"}

// house is the packages of the module: of each folder the first sentence of its doc and its
// imports of ours ("." is the root).
type house map[string]*room

type room struct {
	doc     string
	imports []string
}

// TestStoreys checks the direction of imports, and the table in docs/packages.md, which
// go test -run TestStoreys . -update rewrites.
func TestStoreys(t *testing.T) {
	h := readHouse(t)
	for _, fault := range h.faults() {
		t.Error(fault)
	}
	if len(upward) > 15 {
		t.Errorf("%d imports run up; at most 15 may", len(upward))
	}
	const page, begin, end = "docs/packages.md", "<!-- packages: go test -run TestStoreys . -update -->\n", "<!-- end of packages -->\n"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	old, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no %s…%s", page, begin, end)
	}
	table := h.table()
	if *updateTable {
		err = os.WriteFile(page, []byte(before+begin+table+end+after), 0o666)
	} else if old != table {
		t.Errorf("the table of %s is not up to date; run go test -run TestStoreys . -update", page)
	}
	if err != nil {
		t.Error(err)
	}
}

// TestStoreysRefuse checks that faults finds each kind of wrong import.
func TestStoreysRefuse(t *testing.T) {
	for _, bad := range []struct{ importer, imported, want string }{
		{"graph", "models", "runs up"},
		{"passes", "lowering", "runs up"},
		{"exec", ".", "runs up"},
		{"exec/cpu", "session/schedule", "runs up"},
		{"session/schedule", "serving/openai", "runs up"},
		{".", "serving/route", "runs up"},
		{"kernels/cpu", "exec", "runs up"},
		{"models", "passes", "may import only"},
		{"passes/prove", "passes", "may import only"},
		{"session/prefix", "graph", "may import only"},
		{"cuda/ptx", "cuda/driver", "may import only"},
		{"lab/validate", "passes", "may import only"},
		{".", "cost", "must not link"},
		{"exec", "exec/cpu", "circle"},
		{"exec/comm", "exec/comm/mpi", "circle"},
		{"exec/cpu", "exec/devices", "circle"},
		{"text/tokenizer", "text/chat", "circle"},
		{"nowhere", "graph", "no storey"},
	} {
		h := readHouse(t)
		r := h[bad.importer]
		if r == nil {
			r = &room{}
			h[bad.importer] = r
		}
		if h[bad.imported] == nil {
			t.Errorf("there is no %s", bad.imported)
		}
		r.imports = append(r.imports, bad.imported)
		if all := strings.Join(h.faults(), "\n"); !strings.Contains(all, bad.want) {
			t.Errorf("%s may import %s: %q", bad.importer, bad.imported, all)
		}
	}
}

// TestForeignImports checks that no file imports C, and that folders import foreign modules as
// onlyIn says.
func TestForeignImports(t *testing.T) {
	seen := 0
	walkImports(t, func(file, dir, imported string) {
		seen++
		if imported == "C" {
			t.Errorf("%s imports C; the program must build without cgo", file)
		}
		for prefix, folders := range onlyIn {
			if strings.HasPrefix(imported, prefix) && !under(dir, folders) {
				t.Errorf("%s imports %s, which only %s may", file, imported, folders)
			}
		}
	})
	if seen < 50 {
		t.Errorf("%d imports seen", seen)
	}
}

// TestMeasureHouse prints the figures of the table "before and after" in docs/architecture.md.
// scripts/measure-house runs it.
func TestMeasureHouse(t *testing.T) {
	if os.Getenv("KRAIT_MEASURE_HOUSE") == "" {
		t.Skip("set KRAIT_MEASURE_HOUSE=1 to print the figures")
	}
	h := readHouse(t)
	edges, up := 0, 0
	for dir, r := range h {
		for _, i := range r.imports {
			edges++
			if storeyOf(i) > storeyOf(dir) {
				up++
			}
		}
	}
	names, lines := door(t)
	fmt.Printf("packages %d\nimports of ours %d\nimports that run up %d\nexported names of the root %d\nlines of the root %d\n", len(h), edges, up, len(names), lines)
}

func door(t *testing.T) (names []string, lines int) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	var parsed []*ast.File
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		lines += strings.Count(string(text), "\n")
		f, err := parser.ParseFile(set, name, text, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, f)
	}
	p, err := doc.NewFromFiles(set, parsed, module)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range p.Funcs {
		names = append(names, f.Name)
	}
	for _, v := range slices.Concat(p.Consts, p.Vars) {
		names = append(names, v.Names...)
	}
	for _, typ := range p.Types {
		names = append(names, typ.Name)
		for _, f := range typ.Funcs {
			names = append(names, f.Name)
		}
		for _, v := range slices.Concat(typ.Consts, typ.Vars) {
			names = append(names, v.Names...)
		}
	}
	names = slices.DeleteFunc(names, func(s string) bool { return !token.IsExported(s) })
	slices.Sort(names)
	return names, lines
}

func walkImports(t *testing.T, f func(file, dir, imported string)) {
	t.Helper()
	walkGo(t, func(file string, parsed *ast.File) {
		for _, spec := range parsed.Imports {
			imported, _ := strconv.Unquote(spec.Path.Value)
			f(file, filepath.ToSlash(filepath.Dir(file)), imported)
		}
	})
}

// walkGo parses the imports and package docs of all files of the module but tests. Modules of
// their own (examples/ownmodule, kernels/cpu/gen) and testdata are left out.
func walkGo(t *testing.T, f func(file string, parsed *ast.File)) {
	t.Helper()
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			_, mod := os.Stat(filepath.Join(file, "go.mod"))
			if name := d.Name(); file != "." && (mod == nil || name == "testdata" || strings.HasPrefix(name, ".")) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly|parser.ParseComments)
		if err == nil {
			f(file, parsed)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func readHouse(t *testing.T) house {
	t.Helper()
	h := house{}
	walkGo(t, func(file string, parsed *ast.File) {
		dir := filepath.ToSlash(filepath.Dir(file))
		r := h[dir]
		if r == nil {
			r = &room{}
			h[dir] = r
		}
		if parsed.Doc != nil && r.doc == "" {
			r.doc = new(doc.Package).Synopsis(parsed.Doc.Text())
		}
		for _, spec := range parsed.Imports {
			imported, _ := strconv.Unquote(spec.Path.Value)
			ours, ok := strings.CutPrefix(imported, module)
			if !ok {
				continue
			}
			if ours = strings.TrimPrefix(ours, "/"); ours == "" {
				ours = "."
			}
			if !slices.Contains(r.imports, ours) {
				r.imports = append(r.imports, ours)
			}
		}
	})
	for _, r := range h {
		slices.Sort(r.imports)
	}
	if len(h) < 50 {
		t.Fatalf("%d packages seen", len(h))
	}
	return h
}

// storeyOf returns the index of dir's storey, or -1.
func storeyOf(dir string) int {
	best, index := -1, -1
	for i, s := range storeys {
		for _, f := range strings.Fields(s.folders) {
			if (dir == f || strings.HasPrefix(dir, f+"/")) && len(f) > best {
				best, index = len(f), i
			}
		}
	}
	return index
}

func under(dir, folders string) bool {
	return slices.ContainsFunc(strings.Fields(folders), func(f string) bool { return dir == f || strings.HasPrefix(dir, f+"/") })
}

// faults lists the imports that break a rule.
func (h house) faults() []string {
	var out []string
	used := map[string]bool{}
	for _, dir := range h.dirs() {
		level := storeyOf(dir)
		if level < 0 {
			out = append(out, dir+" is in no storey; add its folder to storeys in imports_test.go")
		}
		for _, i := range h[dir].imports {
			edge := dir + " > " + i
			if storeyOf(i) > level {
				used[edge] = true
				if upward[edge] == "" {
					out = append(out, edge+" runs up")
				}
			}
		}
		for folder, only := range isolated {
			if dir != folder && !strings.HasPrefix(dir, folder+"/") || longer(dir, folder) {
				continue
			}
			for _, i := range h[dir].imports {
				if upward[dir+" > "+i] == "" && i != folder && !under(i, only) {
					out = append(out, fmt.Sprintf("%s imports %s; it may import only %q", dir, i, only))
				}
			}
		}
	}
	for edge := range upward {
		if !used[edge] {
			out = append(out, edge+" is listed in upward and does not exist: remove it")
		}
	}
	linked := map[string]bool{}
	var link func(string)
	link = func(dir string) {
		if h[dir] == nil || linked[dir] {
			return
		}
		linked[dir] = true
		for _, i := range h[dir].imports {
			link(i)
		}
	}
	link(".")
	for _, dir := range h.dirs() {
		if linked[dir] && under(dir, strings.Join(notLinked, " ")) {
			out = append(out, "the root package must not link "+dir)
		}
	}
	return append(out, h.circles()...)
}

// longer reports whether isolated has a longer path for dir than folder.
func longer(dir, folder string) bool {
	for other := range isolated {
		if len(other) > len(folder) && (dir == other || strings.HasPrefix(dir, other+"/")) {
			return true
		}
	}
	return false
}

func (h house) dirs() []string {
	var dirs []string
	for d := range h {
		dirs = append(dirs, d)
	}
	slices.Sort(dirs)
	return dirs
}

// circles lists circles between the children of a folder, taken as wholes. The folder's own
// package is a child too. The top is left out, since storeys order it.
func (h house) circles() []string {
	folders := map[string]bool{}
	for dir := range h {
		for p := dir; p != "."; p = filepath.ToSlash(filepath.Dir(p)) {
			folders[p] = true
		}
	}
	var out []string
	for folder := range folders {
		child := func(dir string) (string, bool) {
			if dir == folder {
				return folder, true
			}
			rest, ok := strings.CutPrefix(dir, folder+"/")
			first, _, _ := strings.Cut(rest, "/")
			return folder + "/" + first, ok
		}
		edges := map[string][]string{}
		for _, dir := range h.dirs() {
			from, ok := child(dir)
			if !ok {
				continue
			}
			for _, i := range h[dir].imports {
				if to, ok := child(i); ok && to != from {
					edges[from] = append(edges[from], to)
				}
			}
		}
		state := map[string]int{} // 1 on the path, 2 done
		var visit func(string) string
		visit = func(n string) string {
			state[n] = 1
			for _, m := range edges[n] {
				if state[m] == 1 {
					return m + " > … > " + n + " > " + m
				}
				if state[m] == 0 {
					if c := visit(m); c != "" {
						return c
					}
				}
			}
			state[n] = 2
			return ""
		}
		for n := range edges {
			if state[n] == 0 {
				if c := visit(n); c != "" {
					out = append(out, "circle between folders: "+c)
					break
				}
			}
		}
	}
	slices.Sort(out)
	return out
}

// table returns the rows of docs/packages.md, top down. Programs are left out.
func (h house) table() string {
	var b strings.Builder
	b.WriteString("| storey | folder | job | imports of ours |\n|---|---|---|---|\n")
	for level := len(storeys) - 2; level >= 0; level-- {
		name := storeys[level].name
		for _, dir := range h.dirs() {
			if storeyOf(dir) != level {
				continue
			}
			imports := map[string]bool{}
			for _, i := range h[dir].imports {
				if i == "." {
					i = "krait"
				}
				if strings.HasPrefix(i, "internal/") {
					i = "internal"
				}
				imports[i] = true
			}
			var list []string
			for i := range imports {
				list = append(list, i)
			}
			slices.Sort(list)
			text := strings.Join(list, ", ")
			if level >= storeyOf("lab") {
				text = "any lower"
			}
			job := h[dir].doc
			for _, prefix := range []string{"Package " + filepath.Base(dir) + " ", "Package krait "} {
				job = strings.TrimPrefix(job, prefix)
			}
			job = strings.ReplaceAll(strings.TrimSuffix(job, "."), "|", "\\|")
			if dir == "." {
				dir = "krait"
			}
			fmt.Fprintf(&b, "| %s | `%s` | %s | %s |\n", name, dir, job, text)
			name = ""
		}
	}
	return b.String()
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

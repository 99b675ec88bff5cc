package krait_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestDoor checks the bounds of this package: its lines, its exported names, and the packages that
// a program links which imports it.
func TestDoor(t *testing.T) {
	list, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	lines, names := 0, []string{}
	for _, file := range list {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lines += bytes.Count(text, []byte("\n"))
		f, err := parser.ParseFile(token.NewFileSet(), file, text, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			names = append(names, exported(d)...)
		}
	}
	if lines > 2000 || len(names) > 30 {
		t.Errorf("%d lines and %d names; at most 2000 and 30 are agreed on: %s", lines, len(names), strings.Join(names, " "))
	}
	deps, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range strings.Fields(string(deps)) {
		inside, _ := strings.CutPrefix(p, "github.com/krait-ml/krait/")
		first, _, _ := strings.Cut(inside, "/")
		if slices.Contains([]string{"lab", "visualize", "transfer", "serving", "cli"}, first) || p == "crypto/tls" || p == "net/http" || strings.HasPrefix(p, "github.com/emicklei/") {
			t.Errorf("a program that imports only package krait links %s", p)
		}
	}
}

// exported lists the exported names of a declaration, without methods.
func exported(d ast.Decl) (names []string) {
	add := func(id *ast.Ident) {
		if id.IsExported() {
			names = append(names, id.Name)
		}
	}
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			add(d.Name)
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				add(s.Name)
			case *ast.ValueSpec:
				for _, id := range s.Names {
					add(id)
				}
			}
		}
	}
	return names
}

package krait

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const noticesBegin = `Third-party notices

Binaries of Krait contain the modules below, and Go's library. gorgonia.org/cu, github.com/google/uuid
and github.com/pkg/errors are in those that are built with the tag gorgonia_cu only.

go test -run TestNotices . -update writes this file from go.mod and the module cache.
`

// TestNotices: THIRD_PARTY.txt has the licence, and the notices, of each module that the program
// links on some system.
func TestNotices(t *testing.T) {
	texts := map[string][]string{} // modules by the text of a licence or notice
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	license, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(root)), "LICENSE"))
	if err != nil { // some distributions leave it out: then it is the one that was written
		license = []byte(goLicence(t))
	}
	texts[trimmed(license)] = []string{"Go's library"}
	for _, m := range linked(t) {
		path, rest, _ := strings.Cut(m, " ")
		version, dir, _ := strings.Cut(rest, " ")
		found := false
		for _, file := range licences(t, dir) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			base := strings.ToLower(filepath.Base(file))
			found = found || strings.HasPrefix(base, "licen") || strings.HasPrefix(base, "copying")
			texts[trimmed(text)] = append(texts[trimmed(text)], path+" "+version)
		}
		if !found {
			t.Errorf("%s has no licence in %s", path, dir)
		}
	}
	want := noticesBegin + printed(texts)
	if *updateTable {
		if err := os.WriteFile("THIRD_PARTY.txt", []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if have, _ := os.ReadFile("THIRD_PARTY.txt"); string(have) != want {
		t.Errorf("THIRD_PARTY.txt is not that of go.mod; run go test -run TestNotices . -update")
	}
}

// goLicence is the licence of Go's library that THIRD_PARTY.txt has.
func goLicence(t *testing.T) string {
	t.Helper()
	have, err := os.ReadFile("THIRD_PARTY.txt")
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(have), "\nGo's library\n")
	if !ok {
		t.Fatal("THIRD_PARTY.txt has no licence of Go's library")
	}
	_, text, _ = strings.Cut(text, "\n\n") // behind modules of the same licence
	text, _, _ = strings.Cut(text, "\n\n"+strings.Repeat("=", 80))
	return text
}

// linked returns the path, version and folder of each module that krait links on some system.
func linked(t *testing.T) (modules []string) {
	t.Helper()
	for _, system := range []string{"linux", "darwin", "windows"} {
		c := exec.Command("go", "list", "-e", "-deps", "-tags", "gorgonia_cu", "-f", "{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}", "./cmd/krait")
		c.Env = append(os.Environ(), "GOOS="+system, "CGO_ENABLED=1", "GOFLAGS=")
		out, err := c.Output()
		if err != nil {
			t.Fatal(err)
		}
		modules = append(modules, strings.Split(strings.TrimSpace(string(out)), "\n")...)
	}
	slices.Sort(modules)
	return slices.DeleteFunc(slices.Compact(modules), func(m string) bool { return m == "" })
}

// licenceName matches the files of a module that a copy of it must come with.
var licenceName = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)(\.txt|\.md)?$`)

func licences(t *testing.T, dir string) (files []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err, "; go mod download fills the module cache")
	}
	for _, e := range entries {
		if licenceName.MatchString(e.Name()) {
			files = append(files, filepath.Join(dir, e.Name()))
		}
	}
	return files
}

// trimmed is a text without what only files differ in.
func trimmed(text []byte) string {
	return strings.ReplaceAll(strings.Trim(string(text), "\r\n"), "\r", "")
}

// printed prints each text once, below the modules that it is of.
func printed(texts map[string][]string) string {
	var parts []string
	for text, of := range texts {
		parts = append(parts, fmt.Sprintf("\n%s\n%s\n\n%s\n", strings.Repeat("=", 80), strings.Join(of, "\n"), text))
	}
	slices.Sort(parts)
	return strings.Join(parts, "")
}

package prove

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/krait-ml/krait/graph"
)

var update = flag.Bool("update", false, "rewrite the certificates in testdata/prove; wanted errors are never rewritten")

// TestProve: graphs that are right get the certificate that is written down.
func TestProve(t *testing.T) {
	forEach(t, "testdata/prove", func(t *testing.T, file string, a *txtar.Archive) {
		source, g := graphs(t, a)
		c, err := Prove(source, g, Options{})
		if err != nil {
			t.Fatal(err)
		}
		for i, f := range a.Files {
			got := c.String()
			switch f.Name {
			case "certificate.json":
				json, err := c.JSON()
				if err != nil {
					t.Fatal(err)
				}
				got = string(json)
			case "certificate.txt":
			default:
				continue
			}
			if a.Files[i].Data = []byte(got); !*update && got != string(f.Data) {
				t.Errorf("%s is\n%s\nwant\n%s", f.Name, got, f.Data)
			}
		}
		if *update {
			if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestRefuse: graphs that are broken by hand get the error that is written down.
func TestRefuse(t *testing.T) {
	forEach(t, "testdata/refuse", func(t *testing.T, _ string, a *txtar.Archive) {
		source, g := graphs(t, a)
		c, err := Prove(source, g, Options{})
		if err == nil {
			t.Fatalf("proved:\n%s", c)
		}
		if want := entry(a, "error"); err.Error() != want {
			t.Errorf("got\n%s\nwant\n%s", err, want)
		}
	})
}

func forEach(t *testing.T, dir string, test func(t *testing.T, file string, a *txtar.Archive)) {
	files, err := filepath.Glob(dir + "/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no cases in", dir, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			test(t, file, a)
		})
	}
}

// entry is a file of an archive, without space around it.
func entry(a *txtar.Archive, name string) string {
	for _, f := range a.Files {
		if f.Name == name {
			return strings.TrimSpace(string(f.Data))
		}
	}
	return ""
}

// graphs reads the partitioned graph of a case and the source that it names.
func graphs(t *testing.T, a *txtar.Archive) (source, g *graph.Graph) {
	t.Helper()
	g = parse(t, entry(a, "partitioned.ir"))
	return parse(t, read(t, entry(a, "source"))), g
}

func read(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func parse(t testing.TB, text string) *graph.Graph {
	t.Helper()
	g, err := graph.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

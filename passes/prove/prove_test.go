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

// TestRefuseExchanges: what the rules of single operations allow, and a whole graph may not do.
func TestRefuseExchanges(t *testing.T) {
	source := parse(t, `graph "s" stage=unpacked ranks=1
input %x : f32[t 8/1]
param @w : f32[6/1 8/1]
%y = matmul %x @w
output y = %y
output z = %y
`)
	const head = "graph \"s\" stage=partitioned ranks=2\ninput %x : f32[t 8/1]\n"
	for text, want := range map[string]string{
		"param @w : f32[6/1 8/1]\n%part = shard @w {axis=0}\n%y = matmul %x %part\n%a = all_gather %y\noutput y = %a\noutput z = %a\n":                                                    "part: shard gives w a second placement",
		"param @w : f32[6/1 8/1] shard(1: split)\n%part = shard %x\n%y = matmul %part @w\n%a = all_reduce %y\n%b = reduce_scatter %y\n%c = all_gather %b\noutput y = %a\noutput z = %c\n": "b: reduce_scatter: y is reduced already, by a",
	} {
		if _, err := Prove(source, parse(t, head+text), Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
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

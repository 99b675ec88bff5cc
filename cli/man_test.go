package cli

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/krait-ml/krait/internal/goldens"
)

// TestMan: there is a page for each command, with each of its flags; what begins a line is a
// request of roff or text, and groff, where it is installed, warns of nothing and shows all flags.
func TestMan(t *testing.T) {
	root := newRoot()
	dir := t.TempDir()
	if err := writeManuals(root, dir); err != nil {
		t.Fatal(err)
	}
	groff := ""
	if !goldens.Few(t) { // it takes seconds for all pages
		groff, _ = exec.LookPath("groff")
	}
	if groff == "" {
		t.Log("no groff: the pages are not set")
	}
	eachCommand(root, func(c *cobra.Command) {
		if c.HasParent() && !c.IsAvailableCommand() {
			return
		}
		file := filepath.Join(dir, pageOf(c)+".1")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
			return
		}
		for _, line := range strings.Split(string(text), "\n") {
			if request, ok := strings.CutPrefix(line, "."); ok && !strings.Contains(" TH SH PP TP B BR nf fi br ", " "+strings.SplitN(request, " ", 2)[0]+" ") {
				t.Errorf("%s: %s is no request of the page", c.CommandPath(), line)
			}
		}
		shows := string(text)
		if groff != "" {
			shows = typeset(t, groff, file)
		} else {
			shows = strings.ReplaceAll(shows, `\-`, "-")
		}
		for _, want := range []string{"NAME", c.CommandPath(), strings.Fields(c.Short)[0]} {
			if !strings.Contains(shows, want) {
				t.Errorf("%s: no %s in\n%s", c.CommandPath(), want, shows)
			}
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			listed := strings.Contains(string(text), `\fB`+escaped("--"+f.Name)+`\fR`)
			if listed == f.Hidden || listed && !strings.Contains(shows, "--"+f.Name) {
				t.Errorf("%s: --%s, hidden: %v", c.CommandPath(), f.Name, f.Hidden)
			}
		})
	})
}

// typeset returns a page as a terminal shows it, without bold and underlined characters.
func typeset(t *testing.T, groff, file string) string {
	t.Helper()
	c := exec.Command(groff, "-man", "-ww", "-Tutf8", "-P-cbou", file)
	var warnings bytes.Buffer
	c.Stderr = &warnings
	out, err := c.Output()
	if err != nil || warnings.Len() > 0 {
		t.Errorf("%v\n%s", err, warnings.Bytes())
	}
	return string(out)
}

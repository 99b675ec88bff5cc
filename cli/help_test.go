package cli

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// eachCommand calls f for every command of krait, by its path.
func eachCommand(c *cobra.Command, f func(*cobra.Command)) {
	f(c)
	for _, sub := range c.Commands() {
		eachCommand(sub, f)
	}
}

// TestHelp: every command says what it does, with an example; --help shows at most 25 flags, and
// each flag has one line of at most 80 characters.
func TestHelp(t *testing.T) {
	eachCommand(newRoot(), func(c *cobra.Command) {
		if !strings.Contains(c.CommandPath(), "completion") && c.Name() != "help" && c.HasParent() {
			if c.Short == "" || c.Long == "" || c.Example == "" || c.Args == nil {
				t.Errorf("%s has no complete help", c.CommandPath())
			}
			if strings.HasSuffix(c.Short, ".") || utf8.RuneCountInString(c.Short) > 66 {
				t.Errorf("%s: %q is no short description", c.CommandPath(), c.Short)
			}
			for _, line := range strings.Split(c.Long, "\n") {
				if utf8.RuneCountInString(line) > 100 {
					t.Errorf("%s: the line %q has more than 100 characters", c.CommandPath(), line)
				}
			}
		}
		if strings.Contains(c.CommandPath(), "completion") { // cobra's own
			return
		}
		c.InitDefaultHelpFlag()
		shown, experts := flagLists(c)
		n := 0
		shown.VisitAll(func(*pflag.Flag) { n++ })
		if n > mostFlags {
			t.Errorf("%s --help shows %d flags; mark some as expert flags", c.CommandPath(), n)
		}
		check := func(f *pflag.Flag) {
			if _, text := pflag.UnquoteUsage(f); text == "" || strings.Contains(text, "\n") || utf8.RuneCountInString(text) > 80 {
				t.Errorf("%s --%s: the help is not one line of at most 80 characters (%d): %s", c.CommandPath(), f.Name, utf8.RuneCountInString(text), text)
			}
		}
		for line := range strings.Lines(shown.FlagUsages() + experts.FlagUsages()) {
			if strings.Contains(line, "64Slice") || strings.Contains(line, "(default )") || strings.Count(line, "(default") > 1 {
				t.Errorf("%s: the default or the type of a flag is not for readers: %s", c.CommandPath(), line)
			}
		}
		shown.VisitAll(check)
		experts.VisitAll(check)
	})
}

// TestScreen: krait --help fits a screen of 80 columns and 41 lines, and names every command.
func TestScreen(t *testing.T) {
	root := newRoot()
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetArgs([]string{"--help"})
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	if len(lines) > 42 {
		t.Errorf("krait --help has %d lines", len(lines)-1)
	}
	for _, line := range lines {
		if utf8.RuneCountInString(line) > 80 {
			t.Errorf("%q has more than 80 characters", line)
		}
	}
	for _, c := range root.Commands() {
		if c.GroupID == "" || !strings.Contains(out.String(), "\n  "+c.Name()+" ") {
			t.Errorf("krait --help does not list %s", c.Name())
		}
	}
}

// TestRenamed: names of the previous release stand for present ones, and a note says so unless
// --quiet.
func TestRenamed(t *testing.T) {
	for _, x := range []struct{ old, want, notes string }{
		{"opt --tp 4 -", "graph opt --tp 4 -", "opt is now graph opt"},
		{"schedule -q", "graph schedule -q", ""},
		{"help cache-sim", "help simulate cache", "cache-sim is now simulate cache"},
		{"__complete cache-sim x", "__complete simulate cache x", ""},
		{"trace chat", "simulate trace chat", "trace is now simulate trace"},
		{"transfer --quiet=true", "simulate transfer --quiet=true", ""},
		{"calibrate-quant --tp 2", "calibrate payload --tp 2", "calibrate-quant is now calibrate payload"},
		{"quantize-weights A --to q8 -o B", "convert A --type q8 -o B", "quantize-weights is now convert; --to is now --type"},
		{"generate --quantize=int8 x", "generate --payload=int8 x", "--quantize is now --payload"},
		{"generate -- --quantize", "generate -- --quantize", ""},
		{"serve --role prefill --tp 2", "serve prefill --tp 2", "serve --role prefill is now serve prefill"},
		{"serve --tp 2 --role=decode x", "serve decode --tp 2 x", "serve --role decode is now serve decode"},
		{"serve --role both", "serve", "serve --role both is now serve"},
		{"bench --meter --like x", "bench meter --like x", "bench --meter is now bench meter"},
		{"bench --ops m", "bench ops m", "bench --ops is now bench ops"},
		{"bench --trace t.jsonl --speed 0 m", "bench trace --speed 0 m t.jsonl", "bench --trace is now bench trace"},
		{"bench --paired=peer --only x", "bench paired --only x peer", "bench --paired is now bench paired"},
		{"bench --json out.json m", "bench -o out.json m", "--json FILE is now -o FILE"},
		{"bench --json=out m", "bench -o out m", "--json FILE is now -o FILE"},
		{"bench --json -", "bench --json", ""},
		{"bench --json m", "bench --json m", ""},
		{"simulate --output 64", "simulate --tokens 64", "--output is now --tokens"},
		{"simulate --output sim.json", "simulate --output sim.json", ""},
		{"plan --help-all", "plan --help --help-all", ""},
		{"", "", ""},
	} {
		got, notes := renamed(strings.Fields(x.old))
		if strings.Join(got, " ") != x.want || strings.Join(notes, "; ") != x.notes {
			t.Errorf("%s: %s (%s); want %s (%s)", x.old, strings.Join(got, " "), strings.Join(notes, "; "), x.want, x.notes)
		}
	}
}

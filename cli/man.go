package cli

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/krait-ml/krait/internal/files"
	"github.com/krait-ml/krait/internal/program"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func newMan() *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use:   "man [COMMAND...]",
		Short: "Print the manual page of a command, or write all of them",
		Long: `Man prints the manual page of krait or of a command, made of the flags that its help shows.
--dir writes a page for each command, krait.1, krait-serve.1, krait-serve-prefill.1 and so on.`,
		Example: `  krait man serve | man -l -
  krait man --dir ~/.local/share/man/man1`,
		RunE: func(c *cobra.Command, args []string) error {
			if dir == "" {
				of, rest, _ := c.Root().Find(args)
				if len(rest) > 0 {
					return unknownCommand(of, rest[0])
				}
				return write(c, "", manual(of))
			}
			if len(args) > 0 {
				return errors.New("--dir writes the pages of all commands; leave out the command")
			}
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
			return writeManuals(c.Root(), dir)
		},
		Args: cobra.ArbitraryArgs,
		ValidArgsFunction: func(c *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
			if of, rest, _ := c.Root().Find(args); len(rest) == 0 {
				for _, sub := range of.Commands() {
					if sub.IsAvailableCommand() {
						names = append(names, cobra.CompletionWithDesc(sub.Name(), sub.Short))
					}
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
	c.Flags().StringVar(&dir, "dir", "", "folder to write the pages of all commands to")
	return c
}

// writeManuals writes the pages of a command and of all below it.
func writeManuals(c *cobra.Command, dir string) error {
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			if err := writeManuals(sub, dir); err != nil {
				return err
			}
		}
	}
	return files.Write(filepath.Join(dir, pageOf(c)+".1"), manual(c))
}

// pageOf is the name of a command's page.
func pageOf(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// manual returns the page of a command, in the man macros of roff.
func manual(c *cobra.Command) []byte {
	c.InitDefaultHelpFlag()
	p := &page{}
	p.line(".TH %s 1 \"\" %s %s", quoted(strings.ToUpper(pageOf(c))), quoted("krait "+program.Version()), quoted("Krait"))
	p.section("NAME")
	p.text(pageOf(c) + " - " + c.Short)
	p.section("SYNOPSIS")
	p.line(".B %s", quoted(escaped(c.UseLine())))
	p.section("DESCRIPTION")
	p.prose(c.Long)
	p.commands(c)
	shown, experts := flagLists(c)
	p.flags("OPTIONS", shown)
	p.flags("EXPERT OPTIONS", experts)
	if c.HasExample() {
		p.section("EXAMPLES")
		p.verbatim(c.Example)
	}
	if c.HasParent() {
		p.section("SEE ALSO")
		p.line(".BR %s (1)", escaped(pageOf(c.Parent())))
	}
	return p.Bytes()
}

// page is a manual page.
type page struct{ bytes.Buffer }

func (p *page) line(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

func (p *page) section(title string) { p.line(".SH %s", quoted(title)) }

// text adds a line that is no request of roff.
func (p *page) text(line string) {
	line = escaped(line)
	if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
		line = `\&` + line
	}
	p.line("%s", line)
}

// prose adds paragraphs. Lines that begin with blanks keep their breaks.
func (p *page) prose(text string) {
	for _, paragraph := range strings.Split(text, "\n\n") {
		if strings.HasPrefix(paragraph, "  ") || strings.Contains(paragraph, "\n  ") {
			p.verbatim(paragraph)
			continue
		}
		p.line(".PP")
		for _, line := range strings.Split(paragraph, "\n") {
			p.text(line)
		}
	}
}

// verbatim adds lines as they stand.
func (p *page) verbatim(text string) {
	p.line(".PP\n.nf")
	for _, line := range strings.Split(text, "\n") {
		p.text(line)
	}
	p.line(".fi")
}

// commands lists the commands below one.
func (p *page) commands(c *cobra.Command) {
	if !c.HasAvailableSubCommands() {
		return
	}
	p.section("COMMANDS")
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			p.line(".TP\n.BR %s (1)", escaped(pageOf(sub)))
			p.text(sub.Short)
		}
	}
}

// flags lists flags with their help and details.
func (p *page) flags(title string, list *pflag.FlagSet) {
	if !list.HasFlags() {
		return
	}
	p.section(title)
	list.VisitAll(func(f *pflag.Flag) {
		value, usage := pflag.UnquoteUsage(f)
		names := `\fB` + escaped("--"+f.Name) + `\fR`
		if f.Shorthand != "" {
			names = `\fB` + escaped("-"+f.Shorthand) + `\fR, ` + names
		}
		if value != "" {
			names += ` \fI` + escaped(value) + `\fR`
		}
		p.line(".TP\n%s", names)
		p.text(usage + defaultOf(f, usage))
		if text := f.Annotations[flagDetails]; len(text) > 0 {
			p.line(".br")
			p.text(text[0])
		}
	})
}

// defaultOf returns what the help says behind a flag's usage: its default, unless that is zero.
func defaultOf(f *pflag.Flag, usage string) string {
	alone := pflag.NewFlagSet("", pflag.ContinueOnError)
	alone.AddFlag(f)
	_, tail, _ := strings.Cut(alone.FlagUsages(), usage)
	return strings.TrimRight(tail, "\n")
}

// escaped spells what roff would take for more than text, and characters that it reads as bytes.
func escaped(text string) string {
	var b strings.Builder
	for _, r := range strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n", " ").Replace(text) {
		if r > unicode.MaxASCII {
			fmt.Fprintf(&b, `\[u%04X]`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// quoted is an argument of a request.
func quoted(text string) string { return `"` + strings.ReplaceAll(text, `"`, `\(dq`) + `"` }

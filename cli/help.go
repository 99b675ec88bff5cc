package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// mostFlags is how many flags the help of a command shows, its own --help among them.
const mostFlags = 25

// expertFlag annotates flags that --help leaves out and --help-all shows.
const expertFlag = "expert"

// expert leaves flags of a command out of its --help.
func expert(c *cobra.Command, names ...string) {
	for _, name := range names {
		if err := c.Flags().SetAnnotation(name, expertFlag, nil); err != nil {
			panic("BUG: " + err.Error()) // the flag exists
		}
	}
}

// hide leaves flags that a command rejects, or that change nothing, out of all help.
func hide(c *cobra.Command, names ...string) {
	for _, name := range names {
		c.Flags().Lookup(name).Hidden = true
	}
}

// flagDetails annotates flags whose help line is not enough: --help-all prints the rest.
const flagDetails = "details"

// detail says more about a flag than its line does.
func detail(c *cobra.Command, name, text string) {
	if err := c.Flags().SetAnnotation(name, flagDetails, []string{text}); err != nil {
		panic("BUG: " + err.Error()) // the flag exists
	}
}

// basic shows flags in --help again that shared code marks as expert flags.
func basic(c *cobra.Command, names ...string) {
	for _, name := range names {
		delete(c.Flags().Lookup(name).Annotations, expertFlag)
	}
}

// flagLists returns the flags that --help shows, and the expert flags.
func flagLists(c *cobra.Command) (shown, experts *pflag.FlagSet) {
	shown, experts = pflag.NewFlagSet("", pflag.ContinueOnError), pflag.NewFlagSet("", pflag.ContinueOnError)
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		if _, ok := f.Annotations[expertFlag]; ok {
			experts.AddFlag(f)
		} else {
			shown.AddFlag(f)
		}
	})
	return shown, experts
}

// usage prints how a command is called, its examples, its subcommands by group and its flags.
func usage(c *cobra.Command) error {
	w := c.OutOrStderr()
	if c.Runnable() {
		fmt.Fprintf(w, "Usage:\n  %s\n", c.UseLine())
	} else {
		fmt.Fprintf(w, "Usage: %s COMMAND [flags]\n", c.CommandPath())
	}
	if c.HasExample() {
		fmt.Fprintf(w, "\nExamples:\n%s\n", c.Example)
	}
	if groups := c.Groups(); len(groups) > 0 {
		for _, g := range groups {
			printCommands(w, c, g.ID, g.Title)
		}
	} else if c.HasAvailableSubCommands() {
		printCommands(w, c, "", "Commands:")
	}
	if !c.HasParent() {
		return nil
	}
	shown, experts := flagLists(c)
	if text := shown.FlagUsages(); text != "" {
		fmt.Fprintf(w, "\nFlags:\n%s", text)
	}
	if all, _ := c.Flags().GetBool("help-all"); all {
		if experts.HasFlags() {
			fmt.Fprintf(w, "\nExpert flags:\n%s", experts.FlagUsages())
		}
		printDetails(w, c)
	} else if experts.HasFlags() {
		n := 0
		experts.VisitAll(func(*pflag.Flag) { n++ })
		fmt.Fprintf(w, "\n%s --help-all shows %d more flags.\n", c.CommandPath(), n)
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(w, "\n%s COMMAND --help describes a command.\n", c.CommandPath())
	}
	return nil
}

// printDetails prints what flags have beside their line.
func printDetails(w io.Writer, c *cobra.Command) {
	title := "\nDetails:\n"
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if text := f.Annotations[flagDetails]; len(text) > 0 && !f.Hidden {
			fmt.Fprintf(w, "%s  --%s: %s\n", title, f.Name, strings.ReplaceAll(text[0], "\n", "\n    "))
			title = ""
		}
	})
}

// printCommands lists the subcommands of a group.
func printCommands(w io.Writer, of *cobra.Command, group, title string) {
	fmt.Fprintf(w, "\n%s\n", title)
	for _, c := range of.Commands() {
		if c.GroupID == group && (c.IsAvailableCommand() || c.Name() == "help") {
			fmt.Fprintf(w, "  %-11s %s\n", c.Name(), c.Short)
		}
	}
}

// strictHelp makes krait help fail for an unknown command.
func strictHelp(root *cobra.Command) {
	help, _, err := root.Find([]string{"help"})
	if err != nil {
		panic("BUG: " + err.Error())
	}
	help.Short = "Describe a command, as krait COMMAND --help does"
	show := help.Run
	help.Run = nil
	help.RunE = func(c *cobra.Command, args []string) error {
		of, rest, _ := root.Find(args)
		if len(rest) > 0 && of.HasSubCommands() {
			return unknownCommand(of, rest[0])
		}
		show(c, args)
		return nil
	}
}

// unknownCommand names the commands that a name is close to.
func unknownCommand(of *cobra.Command, name string) error {
	of.SuggestionsMinimumDistance = 2
	if list := of.SuggestionsFor(name); len(list) > 0 {
		return fmt.Errorf("unknown command %q for %q; did you mean %s?", name, of.CommandPath(), strings.Join(list, ", or "))
	}
	return fmt.Errorf("unknown command %q for %q; %s lists the commands", name, of.CommandPath(), strings.Replace(of.CommandPath(), "krait", "krait help", 1))
}

package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// modelArg is the model of a command: its first argument, or --model.
type modelArg struct {
	kind   string // what it may be: DIR, or DIR or FILE.ir
	needed bool   // or else it is the embedded model
	flag   string
}

func (m *modelArg) add(c *cobra.Command) {
	usage := m.kind + ", instead of the argument"
	if !m.needed {
		usage += " (default: the embedded model)"
	}
	c.Flags().StringVarP(&m.flag, "model", "m", "", usage)
}

// take is the model's path, of no or one argument; "" is the embedded model.
func (m *modelArg) take(c *cobra.Command, args []string) (string, error) {
	path, given := m.flag, c.Flags().Changed("model")
	if len(args) > 0 {
		if given {
			return "", fmt.Errorf("%s and --model %s: give the model once", strconv.Quote(args[0]), strconv.Quote(path))
		}
		path, given = args[0], true
	}
	switch {
	case given && path == "":
		return "", errors.New(`the model is "", which is no folder; leave it out for the embedded model`)
	case !given && m.needed:
		return "", fmt.Errorf("%s needs a model: %s, as an argument or as --model", name(c), m.kind)
	}
	return path, nil
}

// notPath rejects a lone argument that is a path, and so a model without a prompt. Where
// --model is given, the argument can only be the prompt.
func (m *modelArg) notPath(c *cobra.Command, prompt string) error {
	if c.Flags().Changed("model") {
		return nil
	}
	switch info, err := os.Stat(prompt); {
	case err == nil && info.IsDir():
		return fmt.Errorf("%s has a model, the folder %q, and no PROMPT: give it in quotes after the folder, or as - on standard input", name(c), prompt)
	case err == nil:
		return fmt.Errorf("%s has the file %q and no PROMPT: give it in quotes after a model, or as - on standard input", name(c), prompt)
	case looksLikePath(prompt):
		return fmt.Errorf("%s has no PROMPT, and there is no model at %q; a PROMPT that looks like a path is given as - on standard input", name(c), prompt)
	}
	return nil
}

// looksLikePath reports whether text has a path separator or a checkpoint's extension, and no
// blank.
func looksLikePath(text string) bool {
	if text == "" || strings.ContainsFunc(text, unicode.IsSpace) {
		return false
	}
	switch strings.ToLower(filepath.Ext(text)) {
	case ".gguf", ".safetensors", ".ir":
		return true
	}
	return strings.ContainsRune(text, '/') || strings.ContainsRune(text, filepath.Separator)
}

// strictHelp makes krait help fail for a command that there is not.
func strictHelp(root *cobra.Command) {
	help, _, err := root.Find([]string{"help"})
	if err != nil {
		panic("BUG: " + err.Error())
	}
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
		return fmt.Errorf("unknown command %q for %q; is %s meant?", name, of.CommandPath(), strings.Join(list, ", or "))
	}
	return fmt.Errorf("unknown command %q for %q; %s lists those that there are", name, of.CommandPath(), strings.Replace(of.CommandPath(), "krait", "krait help", 1))
}

// takes lets a command have least to most arguments, which the form names.
func takes(least, most int, form string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return fmt.Errorf("%s needs %s; %s --help says more", name(c), form, c.CommandPath())
		case len(args) > most && most == 0:
			return fmt.Errorf("%s takes no arguments, and there is %s", name(c), strconv.Quote(args[0]))
		case len(args) > most && most > 0:
			return fmt.Errorf("%s takes %s, and there is also %s", name(c), form, strconv.Quote(args[most]))
		}
		return nil
	}
}

// name is the command without the program.
func name(c *cobra.Command) string { return strings.TrimPrefix(c.CommandPath(), "krait ") }

// explainFlag says which flag was meant by one that is not there.
func explainFlag(c *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || unknown.GetSpecifiedName() == "" || unknown.GetSpecifiedShortnames() != "" {
		return err
	}
	// cobra compares names of commands; to it, flags are such.
	flags := &cobra.Command{SuggestionsMinimumDistance: 2}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			flags.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
		}
	})
	if list := flags.SuggestionsFor(unknown.GetSpecifiedName()); len(list) > 0 {
		return fmt.Errorf("%w; is --%s meant?", err, strings.Join(list, ", or --"))
	}
	return fmt.Errorf("%w; %s --help lists those that there are", err, c.CommandPath())
}

package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"

	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/checkpoint/hub"
	"github.com/krait-ml/krait/checkpoint/synth"
	"github.com/krait-ml/krait/graph"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// modelArg is the model of a command: its first argument, or --model.
type modelArg struct {
	kind   string   // what it may be: DIR, or DIR or FILE.ir
	needed bool     // or else it is the embedded model
	part   hub.Part // what the command needs of a published model
	flag   string
}

func (m *modelArg) add(c *cobra.Command) {
	usage := m.kind + ", in place of the argument"
	if !m.needed {
		usage += " (default: embedded model)"
	}
	c.Flags().StringVarP(&m.flag, "model", "m", "", usage)
}

// errNoModel is the error of a command that has no default model.
var errNoModel = errors.New("needs a model")

// take returns the model's path, of no or one argument; "" is the embedded model. The path of
// org/name is that in the cache, into which it is pulled if need be.
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
		return "", errors.New(`the model is ""; give a folder or file, or leave it out for the embedded model`)
	case !given && m.needed:
		return "", fmt.Errorf("%s %w: %s, as an argument or as --model", name(c), errNoModel, m.kind)
	}
	return locate(c, path, m.part)
}

// graphArg is the graph of a command that needs no weights: of a model, of graph text, or with
// --like of a published size.
type graphArg struct {
	modelArg
	like, dtype string
}

func newGraphArg() graphArg {
	return graphArg{modelArg: modelArg{kind: "DIR or FILE.ir", part: hub.Config}}
}

func (a *graphArg) add(c *cobra.Command) {
	a.modelArg.add(c)
	c.Flags().StringVar(&a.like, "like", "", "published size to use instead of a model (krait synth --help lists them)")
}

// addDType adds the flag of commands that may change the format of the weights.
func (a *graphArg) addDType(c *cobra.Command) {
	c.Flags().StringVar(&a.dtype, "dtype", "", "weight format: f32, bf16, f16 or fp8 (default: the model's)")
}

// read returns the graph, and what the model is called: its path, or the published size.
func (a *graphArg) read(c *cobra.Command, args []string) (g *graph.Graph, name string, err error) {
	if a.like != "" {
		if len(args) > 0 || c.Flags().Changed("model") {
			return nil, "", errors.New("--like and a model exclude each other: give one of them")
		}
		g, err = interruptible(c, "read", func() (*graph.Graph, error) {
			return synth.Graph(synth.Options{Like: a.like, DType: cmp.Or(a.dtype, "bf16")})
		})
		return g, a.like, err
	}
	path, err := a.take(c, args)
	if err == nil && a.dtype != "" {
		g, err = a.cast(c, path)
	} else if err == nil {
		g, err = readGraph(c, path)
	}
	return g, path, err
}

// cast returns a folder's graph with weights in the format of --dtype.
func (a *graphArg) cast(c *cobra.Command, path string) (*graph.Graph, error) {
	if path == "" || strings.HasSuffix(path, ".ir") || path == "-" {
		return nil, errors.New("--dtype is for folders and --like; the embedded model and graph text have fixed formats")
	}
	return interruptible(c, "read", func() (*graph.Graph, error) {
		m, _, err := checkpoint.Describe(path)
		if err != nil {
			return nil, err
		}
		return m.GraphIn(a.dtype)
	})
}

// title is what reports call the model.
func (a *graphArg) title(path string, g *graph.Graph) string { return cmp.Or(a.like, nameOf(path, g)) }

// notPath rejects a lone argument that is a path, and so a model without a prompt. Where
// --model is given, the argument can only be the prompt.
func (m *modelArg) notPath(c *cobra.Command, prompt string) error {
	if c.Flags().Changed("model") {
		return nil
	}
	if isCached(prompt) {
		return fmt.Errorf("%s has the model %q but no PROMPT: give it in quotes after the name, or - for standard input", name(c), prompt)
	}
	if _, ok := hub.Parse(prompt); ok { // and/or
		return nil
	}
	switch info, err := os.Stat(prompt); {
	case err == nil && info.IsDir():
		return fmt.Errorf("%s has the model %q but no PROMPT: give it in quotes after the folder, or - for standard input", name(c), prompt)
	case err == nil:
		return fmt.Errorf("%s has the file %q but no PROMPT: give it in quotes after a model, or - for standard input", name(c), prompt)
	case looksLikePath(prompt):
		return fmt.Errorf("%s: there is no model at %q, and no PROMPT; a PROMPT that looks like a path must come on standard input (-)", name(c), prompt)
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

// takes lets a command have least to most arguments, which the form names.
func takes(least, most int, form string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return fmt.Errorf("%s needs %s; %s --help says more", name(c), form, c.CommandPath())
		case len(args) > most && most == 0:
			return fmt.Errorf("%s takes no arguments; leave out %s", name(c), strconv.Quote(args[0]))
		case len(args) > most && most > 0:
			return fmt.Errorf("%s takes %s; leave out %s", name(c), form, strconv.Quote(args[most]))
		}
		return nil
	}
}

// name is the command without the program.
func name(c *cobra.Command) string { return strings.TrimPrefix(c.CommandPath(), "krait ") }

// flagValues are the values of flags, by their type.
var flagValues = map[string]string{
	"int": "a whole number", "int64": "a whole number", "uint64": "a whole number, not negative", "intSlice": "whole numbers between commas",
	"float64": "a number", "duration": "a duration, such as 500ms, 30s or 5m", "bool": "true or false",
}

// explainFlag says which value a flag takes, and which flag was meant by one that is not there.
func explainFlag(c *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) && !errors.Is(err, strconv.ErrRange) {
		if f := invalid.GetFlag(); flagValues[f.Value.Type()] != "" {
			return fmt.Errorf("--%s is %q; it must be %s", f.Name, invalid.GetValue(), flagValues[f.Value.Type()])
		}
	}
	var unknown *pflag.NotExistError
	switch {
	case !errors.As(err, &unknown) || unknown.GetSpecifiedName() == "":
		return err
	case unknown.GetSpecifiedShortnames() != "":
		return fmt.Errorf("%w; arguments that begin with - come after --", err)
	}
	// Only cobra compares names, and only of commands.
	flags := &cobra.Command{SuggestionsMinimumDistance: 2}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			flags.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
		}
	})
	if list := flags.SuggestionsFor(unknown.GetSpecifiedName()); len(list) > 0 {
		return fmt.Errorf("%w; did you mean --%s?", err, strings.Join(list, ", or --"))
	}
	return fmt.Errorf("%w; %s --help-all lists all flags", err, c.CommandPath())
}

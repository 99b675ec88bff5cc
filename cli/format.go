package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"

	"github.com/krait-ml/krait/visualize"
	"github.com/spf13/cobra"
)

// format is how a graph or a schedule is written, and where to.
type format struct {
	name, output string
	open         bool // in the browser
}

func (f *format) add(c *cobra.Command) {
	c.Flags().StringVar(&f.name, "format", "", "format: text, dot, or svg, which needs Graphviz (default: by -o, or text)")
	c.Flags().StringVarP(&f.output, "output", "o", "", "write to this file; - is standard output")
}

// endings are the extensions of each format; none is for formats that Krait does not draw.
var endings = map[string]string{
	".svg": "svg", ".dot": "dot", ".gv": "dot", ".ir": "text", ".txt": "text",
	".png": "none", ".pdf": "none", ".jpg": "none", ".jpeg": "none", ".gif": "none", ".webp": "none", ".ps": "none",
}

// picture says what a drawing shows, and how.
type picture struct {
	detail, highlight    string
	unfolded, dark, open bool
}

func (p *picture) add(c *cobra.Command) {
	c.Flags().StringVar(&p.detail, "detail", "", "detail of a drawing: model, block (one of each kind) or op (default op)")
	c.Flags().BoolVar(&p.unfolded, "unfolded", false, "draw all blocks, not one of each kind")
	c.Flags().BoolVar(&p.dark, "dark", false, "draw for a dark ground")
	c.Flags().BoolVar(&p.open, "open", false, "show the drawing in the browser; without -o it is a temporary file")
	c.Flags().StringVar(&p.highlight, "highlight", "", "frame operations whose name or result matches this expression")
	detail(c, "highlight", "a regular expression, such as out_proj or 'all_reduce|scan'.")
}

// options settles the format, and returns the options of a drawing.
func (p *picture) options(f *format) (o visualize.Options, err error) {
	if p.open && f.name == "" && f.output == "" {
		f.name = "svg"
	}
	if err := f.settle(); err != nil {
		return o, err
	}
	f.open = p.open
	switch {
	case f.name == "text" && *p != (picture{}):
		return o, errors.New("--detail, --unfolded, --dark, --highlight and --open are for drawings: add --format dot or svg, or -o FILE.svg")
	case p.open && f.name != "svg":
		return o, errors.New("--open shows a drawing as SVG: leave out --format, and name the file FILE.svg")
	case p.detail != "":
		if o.Detail, err = visualize.ParseDetail(p.detail); err != nil {
			return o, fmt.Errorf("--%w", err)
		}
	}
	if p.highlight != "" {
		if o.Highlight, err = regexp.Compile(p.highlight); err != nil {
			return o, fmt.Errorf("--highlight: %w", err)
		}
	}
	o.Unfolded, o.Dark = p.unfolded, p.dark
	return o, nil
}

// settle checks the format against the name of the output, which gives it by default.
func (f *format) settle() error {
	named, ok := endings[filepath.Ext(f.output)]
	switch {
	case f.name != "" && f.name != "text" && f.name != "dot" && f.name != "svg":
		return fmt.Errorf("--format is %q; it must be text, dot or svg", f.name)
	case named == "none":
		return fmt.Errorf("-o %s: Krait writes text (.ir), dot and svg; convert dot with Graphviz (dot -T%s)", f.output, filepath.Ext(f.output)[1:])
	case ok && f.name != "" && named != f.name:
		return fmt.Errorf("-o %s is %[3]s by its suffix and --format is %[2]s; leave out --format, or rename the file", f.output, f.name, named)
	case ok:
		f.name = named
	case f.name == "":
		f.name = "text"
	}
	return nil
}

// write writes the text, or the drawing as Graphviz text or SVG.
func (f *format) write(c *cobra.Command, text func() string, dot func(io.Writer) error) error {
	var out []byte
	var err error
	switch f.name {
	case "text":
		out, err = interruptible(c, "draw", func() ([]byte, error) { return []byte(text()), nil })
	case "dot":
		out, err = drawing(c, dot)
	case "svg":
		if out, err = drawing(c, dot); err == nil {
			out, err = svg(c, out)
		}
	}
	if err != nil {
		return err
	}
	if f.open {
		return show(c, f.output, "svg", out)
	}
	return write(c, f.output, out)
}

// drawn is what f writes.
func drawing(c *cobra.Command, f func(io.Writer) error) ([]byte, error) {
	return interruptible(c, "draw", func() ([]byte, error) {
		var out bytes.Buffer
		err := f(&out)
		return out.Bytes(), err
	})
}

// svg runs Graphviz.
func svg(c *cobra.Command, text []byte) ([]byte, error) {
	path, err := exec.LookPath("dot")
	if err != nil {
		return nil, errors.New("svg needs the program dot of Graphviz, which is not installed: install graphviz, or use --format dot")
	}
	run := exec.CommandContext(c.Context(), path, "-Tsvg")
	run.Stdin = bytes.NewReader(text)
	var out, complaints bytes.Buffer
	run.Stdout, run.Stderr = &out, &complaints
	if err := run.Run(); err != nil {
		return nil, fmt.Errorf("dot: %w: %s", err, complaints.String())
	}
	return out.Bytes(), nil
}

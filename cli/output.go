package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/krait-ml/krait/internal/files"
	"github.com/spf13/cobra"
)

// checkedWriter remembers the first error of the writer below, and ends the command, so that
// callers that print need not check.
type checkedWriter struct {
	w      io.Writer
	failed func(error)
	err    error
}

func (c *checkedWriter) Write(p []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	n, err := c.w.Write(p)
	if err != nil {
		c.err = err
		c.failed(err)
	}
	return n, err
}

// standardOutput is the file below the command's writer.
func standardOutput(c *cobra.Command) io.Writer {
	w := c.OutOrStdout()
	if checked, ok := w.(*checkedWriter); ok {
		return checked.w
	}
	return w
}

// write writes to a file, or to standard output if path is empty or -.
func write(c *cobra.Command, path string, text []byte) error {
	if path == "" || path == "-" {
		_, err := c.OutOrStdout().Write(text)
		return err
	}
	return files.Write(path, text)
}

// output says how a command gives its result, and where: --json and -o FILE.
type output struct {
	json bool
	file string
}

func (o *output) add(c *cobra.Command) {
	c.Flags().BoolVar(&o.json, "json", false, "print the result as JSON")
	fileFlag(c, &o.file)
}

// fileFlag adds -o FILE.
func fileFlag(c *cobra.Command, to *string) {
	c.Flags().StringVarP(to, "output", "o", "", "write to this file; - is standard output")
}

// print writes a result as JSON if --json is given, and otherwise as text.
func (o *output) print(c *cobra.Command, v any, text func(io.Writer)) error {
	if o.json {
		return writeJSON(c, o.file, v)
	}
	var b bytes.Buffer
	text(&b)
	return write(c, o.file, b.Bytes())
}

// writeJSON writes a value as indented JSON.
func writeJSON(c *cobra.Command, path string, v any) error {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return err
	}
	return write(c, path, text.Bytes())
}

// figure is a number that is null in JSON where it is none.
type figure float64

// MarshalJSON writes the number, or null.
func (f figure) MarshalJSON() ([]byte, error) {
	if math.IsNaN(float64(f)) || math.IsInf(float64(f), 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(f))
}

// longestLine is how much of a line is shown, in bytes.
const longestLine = 2000

// printable is text for a terminal: names in it may come from anyone. Control
// characters are as Go writes them, and long lines are cut.
func printable(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if cut := len(line) - longestLine; cut > 0 {
			head := strings.ToValidUTF8(line[:longestLine], "")
			line = fmt.Sprintf("%s… (%d bytes more)", head, len(line)-len(head))
		}
		lines[i] = visible(line)
	}
	return strings.Join(lines, "\n")
}

// visible is a line in which each character can be seen.
func visible(line string) string {
	var b strings.Builder
	for rest := line; rest != ""; {
		r, n := utf8.DecodeRuneInString(rest)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, rest[0])
		case r == '\t' || unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			quoted := strconv.QuoteRune(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		rest = rest[n:]
	}
	return b.String()
}

// ranks writes 1 rank, 2 ranks.
func ranks(n int) string { return count(n, "rank") }

// count writes 1 thing, 2 things.
func count(n int, thing string) string {
	return thousands(int64(n)) + " " + plural(n, thing)
}

func plural(n int, thing string) string {
	if n == 1 {
		return thing
	}
	return thing + "s"
}

package cli

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/krait-ml/krait/lab/workload"
	"github.com/krait-ml/krait/session/prefix"
	"github.com/spf13/cobra"
)

func newSimulateTrace() *cobra.Command {
	var o workload.Options
	var file, from string
	var kinds, formats strings.Builder
	list := func(to *strings.Builder, name, doc string) {
		indented := strings.TrimSuffix(wrapText(doc, 72, 13), "\n")
		fmt.Fprintf(to, "  %-11s%s\n", name, strings.TrimLeft(indented, " "))
	}
	for _, k := range workload.Kinds {
		list(&kinds, k.Name, k.Doc)
	}
	for _, f := range workload.Formats {
		list(&formats, f.Name, f.Doc)
	}
	c := &cobra.Command{
		Use:   "trace [flags] KIND | FILE",
		Short: "Make a trace of requests",
		Long: `Trace makes a trace of requests, one per line, for krait simulate cache, krait bench trace
and krait load. The kinds are:

` + kinds.String() + `
--from FORMAT reads a published trace or conversations from FILE (- is standard input) instead:

` + formats.String() + `
Conversations have no times, which --rate and --pause set, and a token is taken for 4 bytes of
text. Equal messages have equal ids. --sessions takes the first ones.

Traces of kinds are synthetic: lengths have uniform or lognormal distributions, --rate sessions
begin per second, and their requests follow after --pause seconds, both on average. The same
flags give the same trace. Token ids stand for text: shared prefixes have the same ids, and all
other ids differ; with --vocab they are drawn below it.`,
		Example: `  krait simulate trace chat --sessions 200 --seed 1 -o chat.jsonl
  krait simulate trace --from mooncake conversation_trace.jsonl -o mooncake.jsonl
  krait simulate trace docs --sessions 5000 | krait simulate cache - --capacity 16GiB --model ~/models/bamba-9b`,
		Args:      takes(1, 1, "one KIND: "+strings.Join(workload.Names(), ", ")+"; or with --from FORMAT one FILE"),
		ValidArgs: workload.Names(),
		RunE: func(c *cobra.Command, args []string) error {
			o.Kind = args[0] // or the file
			switch given := c.Flags().Changed; {
			case from != "" && given("vocab"):
				return errors.New("--vocab is for synthetic traces; leave it out, or --from")
			case (given("rate") || given("pause") || given("regular")) && slices.ContainsFunc(workload.Formats, func(x workload.Format) bool { return x.Name == from && x.Timed }):
				return fmt.Errorf("requests of %s have times; leave out --rate, --pause and --regular", from)
			case from != "" && !given("sessions"):
				o.Sessions = 0
			}
			switch {
			case !(o.Rate > 0):
				return fmt.Errorf("--rate is %g; it must be above 0", o.Rate)
			case !c.Flags().Changed("pause"):
				o.Pause = -1
			case !(o.Pause >= 0):
				return fmt.Errorf("--pause is %g; it must not be negative", o.Pause)
			}
			text, err := interruptible(c, "draw", func() ([]byte, error) {
				make := workload.Make
				if from != "" {
					make = func(o workload.Options) ([]prefix.Request, error) { return readForeign(c, from, o) }
				}
				trace, err := make(o)
				if err != nil {
					return nil, err
				}
				var b bytes.Buffer
				err = prefix.WriteTrace(&b, trace)
				return b.Bytes(), err
			})
			if err != nil {
				return err
			}
			return write(c, file, text)
		},
	}
	flags := c.Flags()
	flags.StringVar(&from, "from", "", "format of FILE: "+strings.Join(workload.FormatNames(), ", "))
	flags.IntVar(&o.Sessions, "sessions", 100, "sessions, or requests that share no session (default: 100, or all of --from)")
	flags.Lookup("sessions").DefValue = "0" // the help says the default
	flags.Uint64Var(&o.Seed, "seed", 0, "seed; the same seed gives the same trace")
	flags.Float64Var(&o.Rate, "rate", 1, "mean new sessions per second (Poisson)")
	flags.Float64Var(&o.Pause, "pause", 0, "mean seconds between requests of a session (default: chat 30, agent 5)")
	flags.Float64Var(&o.Regular, "regular", 0, "share of each pause that does not vary, 0 (exponential) to 1 (constant)")
	flags.IntVar(&o.Vocab, "vocab", 0, "vocabulary size: draw ids below it; 0: runs of consecutive ids")
	fileFlag(c, &file)
	return c
}

// readForeign reads a trace in a format from a file.
func readForeign(c *cobra.Command, format string, o workload.Options) ([]prefix.Request, error) {
	in, name := stdin(c), "standard input"
	if path := o.Kind; path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in, name = f, visible(path)
	}
	trace, left, err := workload.Read(format, in, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if left != (workload.Left{}) {
		fmt.Fprintf(c.ErrOrStderr(), "krait: note: %s: left out are %v\n", name, left)
	}
	return trace, nil
}

// wrapText lays a text out in lines of a width, indented.
func wrapText(text string, width, indent int) string {
	var b strings.Builder
	line := ""
	for _, w := range strings.Fields(text) {
		if line != "" && len(line)+1+len(w) > width {
			b.WriteString(strings.Repeat(" ", indent) + line + "\n")
			line = ""
		}
		line = strings.TrimSpace(line + " " + w)
	}
	return b.String() + strings.Repeat(" ", indent) + line + "\n"
}

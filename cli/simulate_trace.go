package cli

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/krait-ml/krait/lab/workload"
	"github.com/krait-ml/krait/session/prefix"
	"github.com/spf13/cobra"
)

func newSimulateTrace() *cobra.Command {
	var o workload.Options
	var file string
	var kinds strings.Builder
	for _, k := range workload.Kinds {
		indented := strings.TrimSuffix(wrapText(k.Doc, 72, 11), "\n")
		fmt.Fprintf(&kinds, "  %-9s%s\n", k.Name, strings.TrimLeft(indented, " "))
	}
	c := &cobra.Command{
		Use:   "trace [flags] KIND",
		Short: "Make a trace of requests",
		Long: `Trace makes a trace of requests, one per line, for krait simulate cache, krait bench trace
and krait load. The kinds are:

` + kinds.String() + `
Traces are synthetic: lengths have uniform or lognormal distributions, --rate sessions begin
per second, and their requests follow after --pause seconds, both on average. The same flags
give the same trace. Token ids stand for text: shared prefixes have the same ids, and all other
ids differ; with --vocab they are drawn below it.`,
		Example: `  krait simulate trace chat --sessions 200 --seed 1 -o chat.jsonl
  krait simulate trace docs --sessions 5000 | krait simulate cache - --capacity 16GiB --model ~/models/bamba-9b`,
		Args:      takes(1, 1, "one KIND: "+strings.Join(workload.Names(), ", ")),
		ValidArgs: workload.Names(),
		RunE: func(c *cobra.Command, args []string) error {
			o.Kind = args[0]
			switch {
			case !(o.Rate > 0):
				return fmt.Errorf("--rate is %g; it must be above 0", o.Rate)
			case !c.Flags().Changed("pause"):
				o.Pause = -1
			case !(o.Pause >= 0):
				return fmt.Errorf("--pause is %g; it must not be negative", o.Pause)
			}
			text, err := interruptible(c, "draw", func() ([]byte, error) {
				trace, err := workload.Make(o)
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
	flags.IntVar(&o.Sessions, "sessions", 100, "number of sessions; for kinds fewshot and docs, of requests")
	flags.Uint64Var(&o.Seed, "seed", 0, "seed; the same seed gives the same trace")
	flags.Float64Var(&o.Rate, "rate", 1, "mean new sessions per second (Poisson)")
	flags.Float64Var(&o.Pause, "pause", 0, "mean seconds between requests of a session (default: chat 30, agent 5)")
	flags.IntVar(&o.Vocab, "vocab", 0, "vocabulary size: draw ids below it; 0: runs of consecutive ids")
	fileFlag(c, &file)
	return c
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

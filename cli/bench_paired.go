package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/lab/bench"
	"github.com/spf13/cobra"
)

// pairedFlags are the flags of krait bench --paired.
type pairedFlags struct {
	dir    string
	rounds int
	only   []string
}

func (p *pairedFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&p.dir, "paired", "", "measure in turns with the peer in this folder")
	c.Flags().IntVar(&p.rounds, "rounds", 3, "with --paired, how often they take turns; with --trace 1 where not given")
	c.Flags().StringSliceVar(&p.only, "only", nil, "with --paired, models, as NAME-TYPE (default: all that both have)")
}

// run measures in turns and prints a table.
func (p *pairedFlags) run(c *cobra.Command, args []string, f *modelFlags, o *bench.Options, batches []int, out string) error {
	if len(args) > 0 || c.Flags().Changed("model") || f.device.name != "cpu" {
		return errors.New("--paired measures the models in its own folder on the CPU: name some of them by --only, and leave out others and --device")
	}
	unless(c, "batch", func() { batches = []int{16} })
	if len(batches) != 1 || batches[0] < 1 {
		return fmt.Errorf("--batch %v: --paired takes one batch, of at least 1 sequence", batches)
	}
	peer, err := bench.OpenPeer(p.dir)
	if err != nil {
		return err
	}
	models, left, err := peer.Models(p.only)
	if err != nil {
		return err
	}
	f.options.Slots, f.options.Workers = batches[0], cmp.Or(f.options.Workers, runtime.GOMAXPROCS(0))
	w, file, noisy := lines(c, out), bench.File{Environment: bench.Here(nil)}, busy()
	roofline := measureRoofline(f.options.Workers)
	file.Environment.Measured(&roofline)
	fmt.Fprintf(w, "%s, %s\n", file.Environment.Machine, cmp.Or(file.Environment.Commit, "commit unknown"))
	printRoofline(w, &file.Environment)
	if noisy {
		fmt.Fprintln(w, "NOISY: something else is running; ratios of such a run say little")
	}
	if len(left) > 0 {
		fmt.Fprintf(w, "left out, since %s has no such files: %s\n", bench.PeerName, strings.Join(left, ", "))
	}
	file.Pairs, err = bench.Paired(c.Context(), peer, models, bench.PairedOptions{
		Rounds: p.rounds, Threads: f.options.Workers, Batch: batches[0], Prompt: o.Prompt, Tokens: o.Tokens, Roofline: roofline,
		Open: func(dir string) (*krait.Model, error) { return krait.Open(dir, f.options) },
		Tell: func(text string) {
			if !f.quiet {
				fmt.Fprintln(c.ErrOrStderr(), text)
			}
		},
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(w)
	bench.ReportPairs(w, file.Pairs)
	return save(c, out, &file)
}

// busy reports whether the system says that others run.
func busy() bool {
	text, _ := os.ReadFile("/proc/loadavg") // other systems have none
	load, _, _ := strings.Cut(string(text), " ")
	v, err := strconv.ParseFloat(load, 64)
	return err == nil && v > 0.7
}

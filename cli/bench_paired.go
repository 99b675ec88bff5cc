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
	"github.com/krait-ml/krait/internal/terminal"
	"github.com/krait-ml/krait/lab/bench"
	"github.com/spf13/cobra"
)

// pairedFlags are the flags of krait bench paired.
type pairedFlags struct {
	modelFlags
	o    bench.PairedOptions
	only []string
	out  measurements
}

func newBenchPaired() *cobra.Command {
	var f pairedFlags
	c := &cobra.Command{
		Use:   "paired [flags] PEER",
		Short: "Measure in turns with llama.cpp",
		Long: `Paired measures llama.cpp and Krait on the same models, in turns, and prints the ratio of
median tokens per second, Krait to llama.cpp. PEER is a folder with llama.cpp's programs
in bin/ (llama-bench, llama-batched-bench), its models as gguf/NAME-TYPE.gguf, and the folders
that they were converted from as hf/NAME-TYPE; of a model that --only names, both open the file if
it has no folder. Shares of the roofline are by reads of memory between Krait's steps, and before
and after each of llama.cpp's runs. In a batch, sequences have an eighth of
--prompt and half of --tokens. Run it on an otherwise idle machine.`,
		Example: `  krait bench paired ~/peer --only mamba-130m-bf16 --batch 16
  krait bench paired ~/peer --only mamba-130m-q4_k_m --math int8`,
		Args: takes(1, 1, "one PEER, a folder"),
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case f.modelFlags.device.name != "cpu":
				return errors.New("bench paired runs on the CPU: leave out --device")
			case f.comm.kind != "local":
				return errors.New("bench paired opens several models in turns, with all ranks in this process: leave out --comm")
			case f.o.Batch < 1:
				return fmt.Errorf("--batch is %d; it must be at least 1", f.o.Batch)
			}
			return f.run(c, args[0])
		},
	}
	f.modelFlags.add(c)
	c.Flags().IntVar(&f.o.Rounds, "rounds", 3, "measured runs of each program, in turns")
	c.Flags().StringSliceVar(&f.only, "only", nil, "models to measure, as NAME-TYPE (default: all that both have)")
	c.Flags().IntVar(&f.o.Batch, "batch", 16, "sequences per batch")
	c.Flags().IntVar(&f.o.Prompt, "prompt", 512, "tokens of each prompt")
	c.Flags().IntVarP(&f.o.Tokens, "tokens", "n", 64, "tokens to generate per sequence")
	f.out.add(c)
	hide(c, "device")
	hide(c, commNames...)
	return c
}

// run measures in turns and prints a table.
func (f *pairedFlags) run(c *cobra.Command, dir string) error {
	peer, err := bench.OpenPeer(dir)
	if err != nil {
		return err
	}
	models, left, err := peer.Models(f.only)
	if err != nil {
		return err
	}
	if f.options.Device, err = f.device.open(""); err != nil {
		return err
	}
	f.options.Slots, f.options.Workers = f.o.Batch, cmp.Or(f.options.Workers, runtime.GOMAXPROCS(0))
	w, file, noisy := f.out.lines(c), bench.File{Environment: bench.Here(nil)}, busy()
	roofline := measureRoofline(f.options.Workers)
	file.Environment.Measured(&roofline)
	fmt.Fprintf(w, "%s, %s\n", file.Environment.Machine, cmp.Or(file.Environment.Commit, "commit unknown"))
	printRoofline(w, &file.Environment)
	if noisy {
		fmt.Fprintln(w, "NOISY: other programs are running; ratios of this run mean little")
	}
	if len(left) > 0 {
		fmt.Fprintf(w, "left out, as %s has no file for them: %s\n", bench.PeerName, strings.Join(left, ", "))
	}
	f.o.Threads, f.o.Roofline = f.options.Workers, roofline
	f.o.Open = func(dir string) (*krait.Model, error) { return krait.Open(dir, f.options) }
	var end func()
	f.o.Progress, end = terminal.Progress(c.ErrOrStderr(), "measure", "models", f.quiet)
	file.Pairs, err = bench.Paired(c.Context(), peer, models, f.o)
	end()
	if err != nil {
		return err
	}
	fmt.Fprintln(w)
	bench.ReportPairs(w, file.Pairs)
	return f.out.save(c, &file)
}

// busy reports whether the load average says that other programs run.
func busy() bool {
	text, _ := os.ReadFile("/proc/loadavg") // other systems have none
	load, _, _ := strings.Cut(string(text), " ")
	v, err := strconv.ParseFloat(load, 64)
	return err == nil && v > 0.7
}

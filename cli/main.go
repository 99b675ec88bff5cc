// Package cli is the command line of krait: flags, help and printing.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/internal/files"
	"github.com/spf13/cobra"
)

// Main runs the command line of this process and exits with its status.
func Main() {
	ctx, end := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		for s := range signals {
			if f := interrupts.Load(); f != nil && s == os.Interrupt && (*f)() {
				continue
			}
			signal.Stop(signals) // the next one ends the process
			end(stopped{s})
			return
		}
	}()
	os.Exit(run(ctx, end, os.Args[1:]))
}

// stopped is why a command ends that a signal stops.
type stopped struct{ os.Signal }

func (s stopped) Error() string {
	if s.Signal == os.Interrupt {
		return "interrupted"
	}
	return s.Signal.String()
}

// status is what shells expect of a process that the signal ended.
func (s stopped) status() int {
	if n, ok := s.Signal.(syscall.Signal); ok {
		return 128 + int(n)
	}
	return 1
}

// run is Main without the process: it returns the exit status.
func run(ctx context.Context, end context.CancelCauseFunc, args []string) int {
	root := newRoot()
	root.SetArgs(args)
	out := &checkedWriter{w: root.OutOrStdout(), failed: end}
	root.SetOut(out)
	c := root
	err := files.Guard(func() (err error) { c, err = root.ExecuteContextC(ctx); return err })
	var s stopped
	switch {
	case out.err != nil: // and the command's error is that it was ended
		err = out.err
	case errors.As(err, &s), errors.Is(err, context.Canceled) && errors.As(context.Cause(ctx), &s):
		fmt.Fprintln(root.ErrOrStderr(), s)
		return s.status()
	}
	if errors.Is(err, krait.ErrNoTokenizer) && c.Flags().Lookup("ids") != nil {
		err = fmt.Errorf("%w, or give token ids with --ids", err)
	}
	switch {
	case err == nil:
		return 0
	case !errors.Is(err, errFailed):
		fmt.Fprintln(root.ErrOrStderr(), "krait:", printable(err.Error()))
	}
	return 1
}

// errFailed ends a command whose output has said already what failed.
var errFailed = errors.New("failed")

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "krait",
		Short: "Run, check and draw state-space language models",
		Long: `Krait runs state-space language models (Mamba and its kin) from Hugging Face
folders. Without a model, commands use the small trained one that the program
carries. A folder may be given as an argument or as --model; a file named - is
standard input or output.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version(),
	}
	root.SetFlagErrorFunc(explainFlag)
	root.AddCommand(
		newBench(),
		newCacheSim(),
		newCalibrate(),
		newCalibrateQuant(),
		newChat(),
		newCheck(),
		newDevices(),
		newEval(),
		newExplain(),
		newGenerate(),
		newGraph(),
		newLoad(),
		newOpt(),
		newPlan(),
		newProve(),
		newConvert(),
		newQuantizeWeights(),
		newReproduce(),
		newRoute(),
		newSchedule(),
		newServe(),
		newSimulate(),
		newSynth(),
		newTokenize(),
		newTrace(),
		newTransfer(),
	)
	root.InitDefaultHelpCmd()
	strictHelp(root)
	completeFlags(root)
	return root
}

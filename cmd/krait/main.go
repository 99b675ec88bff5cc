// Command krait runs, checks and draws state-space language models.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	os.Exit(run(ctx, os.Args[1:]))
}

// run is main without the process: it returns the exit status.
func run(ctx context.Context, args []string) int {
	root := newRoot()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(root.ErrOrStderr(), "interrupted")
		return 130
	case !errors.Is(err, errFailed):
		fmt.Fprintln(root.ErrOrStderr(), "krait:", err)
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
carries.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(newBench(), newGenerate(), newCheck(), newEval(), newGraph(), newOpt(), newPlan(), newProve(), newDevices(), newSchedule(), newSynth(), newTokenize())
	return root
}

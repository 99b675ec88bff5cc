// Package cli is the command line of krait: flags, help and printing. A program that registers
// model families or operations of its own calls [Main] to get all commands with them.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
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
			end(signalError{s})
			return
		}
	}()
	os.Exit(run(ctx, end, newRoot(), os.Args[1:]))
}

// signalError is the cause of a context that a signal ended.
type signalError struct{ os.Signal }

func (s signalError) Error() string {
	if s.Signal == os.Interrupt {
		return "interrupted"
	}
	return s.Signal.String()
}

// status returns the exit status that shells expect of a process that the signal ended.
func (s signalError) status() int {
	if n, ok := s.Signal.(syscall.Signal); ok {
		return 128 + int(n)
	}
	return 1
}

// run is Main without the process: it returns the exit status.
func run(ctx context.Context, end context.CancelCauseFunc, root *cobra.Command, args []string) int {
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		completeFlags(root)
	}
	args, notes := renamed(args)
	root.SetArgs(args)
	for _, note := range notes {
		fmt.Fprintln(root.ErrOrStderr(), "krait:", note)
	}
	out := &checkedWriter{w: root.OutOrStdout(), failed: end}
	root.SetOut(out)
	c := root
	err := files.Guard(func() (err error) { c, err = root.ExecuteContextC(ctx); return err })
	var s signalError
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

// errFailed ends a command whose output says already what failed.
var errFailed = errors.New("failed")

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "krait",
		Short: "Compile, run and serve state-space language models",
		Long: `Krait compiles, runs and serves state-space language models. DIR is a Hugging
Face folder, a GGUF file or a name, ORG/NAME; without it, a small model runs.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       versionOf().String(),
	}
	root.SetFlagErrorFunc(explainFlag)
	root.SetUsageFunc(usage)
	add := func(id, title string, commands ...*cobra.Command) {
		root.AddGroup(&cobra.Group{ID: id, Title: title})
		for _, c := range commands {
			c.GroupID = id
		}
		root.AddCommand(commands...)
	}
	add("run", "Run:", newGenerate(), newChat(), newEval(), newTokenize())
	add("compile", "Compile:", newGraph(), newProve(), newPlan(), newExplain())
	add("measure", "Measure:", newBench(), newCheck(), newLoad(), newReproduce(), newSimulate(), newCalibrate())
	add("serve", "Serve:", newServe(), newRoute(), newDevices())
	add("models", "Models:", newPull(), newModels(), newConvert(), newSynth())
	add("other", "Other:", newVersion(), newMan())
	root.SetHelpCommandGroupID("other")
	root.SetCompletionCommandGroupID("other")
	root.PersistentFlags().Bool("help-all", false, "show all flags of the command")
	root.PersistentFlags().Lookup("help-all").Hidden = true
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	if c, _, err := root.Find([]string{"completion"}); err == nil {
		c.Short = "Print a completion script for a shell"
	}
	strictHelp(root)
	return root
}

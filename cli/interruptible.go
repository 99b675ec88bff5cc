package cli

import (
	"github.com/krait-ml/krait/internal/files"
	"github.com/krait-ml/krait/internal/terminal"
	"github.com/spf13/cobra"
)

// interruptible returns the result of f, or an error if the command is stopped first. It is for
// work that takes no context and writes nothing: the process ends without waiting for it. On a
// terminal it shows what runs, and since when; empty: f shows it.
func interruptible[T any](c *cobra.Command, what string, f func() (T, error)) (T, error) {
	var out T
	stopped, err := interrupted(c, what, func() (err error) { out, err = f(); return err })
	if stopped { // f may still write out
		var none T
		return none, err
	}
	return out, err
}

// interrupted runs f until it ends or the command is stopped, and reports whether that came first.
func interrupted(c *cobra.Command, what string, f func() error) (stopped bool, err error) {
	if err := c.Context().Err(); err != nil {
		return true, err
	}
	_, end := terminal.Progress(c.ErrOrStderr(), what, "", isQuiet(c) || what == "")
	defer end()
	done := make(chan error, 1)
	go func() { done <- files.Guard(f) }()
	select {
	case <-c.Context().Done():
		return true, c.Context().Err()
	case err := <-done:
		return false, err
	}
}

// isQuiet reports whether the command has --quiet.
func isQuiet(c *cobra.Command) bool {
	quiet, _ := c.Flags().GetBool("quiet")
	return quiet
}

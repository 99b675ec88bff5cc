package cli

import (
	"github.com/krait-ml/krait/internal/files"
	"github.com/krait-ml/krait/internal/terminal"
	"github.com/spf13/cobra"
)

// interruptible returns the result of f, or an error if the command is stopped first. It is for
// work that takes no context and writes nothing: the process ends without waiting for it. On a
// terminal it shows what runs, and since when; empty: f shows it.
func interruptible[T any](c *cobra.Command, what string, f func() (T, error)) (out T, err error) {
	if err := c.Context().Err(); err != nil {
		return out, err
	}
	quiet, _ := c.Flags().GetBool("quiet")
	_, end := terminal.Progress[int](c.ErrOrStderr(), what, "", quiet || what == "")
	defer end()
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		var r result
		r.err = files.Guard(func() error {
			r.value, r.err = f()
			return r.err
		})
		done <- r
	}()
	select {
	case <-c.Context().Done():
		return out, c.Context().Err()
	case r := <-done:
		return r.value, r.err
	}
}

package cli

import (
	"bytes"
	"context"
	"errors"
	"os"
	"testing"

	"github.com/spf13/cobra"
)

// TestInterruptible: a stopped command does not wait for the work.
func TestInterruptible(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	c := &cobra.Command{}
	c.SetContext(ctx)
	if n, err := interruptible(c, "count", func() (int, error) { return 3, nil }); n != 3 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	begun, forever := make(chan bool), make(chan bool)
	go func() {
		<-begun
		cancel()
	}()
	_, err := interruptible(c, "wait", func() (int, error) {
		close(begun)
		<-forever
		return 3, nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestStopped: what takes long in each command ends with its context.
func TestStopped(t *testing.T) {
	dir := "../testdata/golden/mamba-a"
	for _, args := range [][]string{
		{"plan", dir}, {"plan", "--compare", "--tp", "2", dir}, {"graph", "--tp", "2", dir}, {"graph", "--format", "dot", dir}, {"prove", "--tp", "2", dir},
		{"graph", "opt", "--tp", "2", dir}, {"graph", "schedule", dir}, {"generate", "--ids", "1", dir}, {"eval", "--ids", "--text", os.DevNull, dir}, {"bench", dir},
		{"bench", "meter", dir}, {"explain", "--like", "mamba-130m"}, {"simulate", dir}, {"simulate", "--rate", "1", dir},
	} {
		ctx, end := context.WithCancelCause(context.Background())
		end(signalError{os.Interrupt})
		root := newRoot()
		var out bytes.Buffer
		root.SetOut(&out)
		root.SetArgs(args)
		if err := root.ExecuteContext(ctx); !errors.Is(err, context.Canceled) || out.Len() > 0 {
			t.Errorf("%q: %v: %.100s", args, err, out.String())
		}
	}
}

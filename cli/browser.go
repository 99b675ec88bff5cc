package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
)

// show writes a page or a drawing to a file, a temporary one if none is named, and lets the
// system's browser open it. If it has none, show prints the path.
func show(c *cobra.Command, path, suffix string, data []byte) error {
	if path == "-" {
		return fmt.Errorf("--open needs a file: leave out -o -, or give -o FILE.%s", suffix)
	}
	if path == "" {
		file, err := os.CreateTemp("", "krait-*."+suffix)
		if err != nil {
			return err
		}
		path = file.Name()
		if err := file.Close(); err != nil {
			return err
		}
	}
	if err := write(c, path, data); err != nil {
		return err
	}
	if !browse(path) {
		fmt.Fprintln(c.OutOrStdout(), path)
	}
	return nil
}

// browse opens a file in the browser, and reports whether the system has a program for it that did
// not fail at once.
func browse(path string) bool {
	full, err := filepath.Abs(path)
	if err != nil {
		return false
	}
	for _, name := range []string{"xdg-open", "open"} { // Linux, macOS
		program, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		run := exec.Command(program, full)
		if run.Start() != nil {
			continue
		}
		ended := make(chan error, 1)
		go func() { ended <- run.Wait() }()
		select {
		case err := <-ended:
			return err == nil
		case <-time.After(2 * time.Second): // it is the browser itself
			return true
		}
	}
	return false
}

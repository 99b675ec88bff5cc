package cli

import (
	"os"
	"os/signal"
	"syscall"
)

// onSIGHUP calls reload on each SIGHUP, which no longer ends the process, until stop is called.
func onSIGHUP(reload func()) (stop func()) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-hangups:
				reload()
			case <-done:
				return
			}
		}
	}()
	return func() {
		signal.Stop(hangups)
		close(done)
	}
}

package cli

import (
	"log/slog"
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

// reloading is a part of a server's configuration that SIGHUP reads again.
type reloading struct {
	what string
	some bool // a flag names files
	read func() error
}

// reload reads files again. If a file is wrong, what it had stays in force, and the log says why.
func reload(log *slog.Logger, list ...reloading) {
	any := false
	for _, r := range list {
		if !r.some {
			continue
		}
		any = true
		if err := r.read(); err != nil {
			log.Error(r.what+" not reloaded; the previous ones stay valid", "error", err)
			continue
		}
		log.Info(r.what + " reloaded")
	}
	if !any {
		log.Info("SIGHUP ignored: no flag names files to reload")
	}
}

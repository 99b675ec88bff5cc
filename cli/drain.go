package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/krait-ml/krait"
	"github.com/spf13/cobra"
)

// drain are the limits of a server's end.
type drain struct {
	most   time.Duration // active requests continue at most this long
	notice time.Duration // the port stays open at least this long, so that load balancers see 503
}

func (d *drain) add(c *cobra.Command) {
	d.addMost(c)
	c.Flags().DurationVar(&d.notice, "drain-notice", 2*time.Second, "minimum time between SIGTERM (/ready turns 503) and closing the port")
}

func (d *drain) addMost(c *cobra.Command) {
	c.Flags().DurationVar(&d.most, "drain", 30*time.Second, "how long active requests may continue after SIGTERM")
}

// check returns an error if a limit is out of range.
func (d *drain) check() error {
	switch {
	case d.most <= 0:
		return fmt.Errorf("--drain is %v; it must be above 0", d.most)
	case d.notice < 0:
		return fmt.Errorf("--drain-notice is %v; it must not be negative", d.notice)
	}
	return nil
}

// listenUntil serves h until ctx ends, and then drains: refuse makes h answer new work with 503,
// and the port stays open until active requests have ended and load balancers had time to see it.
func listenUntil(ctx context.Context, l net.Listener, h http.Handler, refuse func(), d drain, log *slog.Logger) error {
	all, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	log = cmp.Or(log, slog.New(slog.DiscardHandler))
	count := &activeRequests{Handler: h, idle: make(chan struct{})}
	s := &http.Server{
		Handler: count, BaseContext: func(net.Listener) context.Context { return all },
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 32 << 10,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	failed := make(chan error, 1)
	go func() { failed <- s.Serve(l) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	if stop := (signalError{}); errors.As(context.Cause(ctx), &stop) && stop.Signal == os.Interrupt {
		d.notice = 0 // Ctrl-C: a user waits at the terminal
	}
	log.Info("draining", "drain", d.most, "drain-notice", d.notice)
	refuse()
	count.drain()
	notice := time.After(min(d.notice, d.most))
	late := time.After(d.most)
	var err error
	select {
	case <-count.idle:
		<-notice
	case <-late:
		cancel(krait.ErrClosed) // requests end within a step
		err = fmt.Errorf("requests that were still active after %v of draining were ended", d.most)
	}
	bounded, end := context.WithTimeout(context.Background(), 5*time.Second)
	defer end()
	if s.Shutdown(bounded) != nil {
		s.Close()
	}
	return err
}

// activeRequests counts the requests that began before the drain.
type activeRequests struct {
	http.Handler
	idle chan struct{} // closed once they have ended

	mu     sync.Mutex
	n      int
	drains bool
}

// ServeHTTP counts a request. During the drain it makes clients reconnect, to another server.
func (u *activeRequests) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u.mu.Lock()
	counts := !u.drains
	if counts {
		u.n++
	}
	u.mu.Unlock()
	if counts {
		defer u.end()
	} else {
		w.Header().Set("Connection", "close")
	}
	u.Handler.ServeHTTP(w, r)
}

func (u *activeRequests) end() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.n--; u.n == 0 && u.drains {
		close(u.idle)
	}
}

// drain counts no request from now on.
func (u *activeRequests) drain() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.drains = true; u.n == 0 {
		close(u.idle)
	}
}

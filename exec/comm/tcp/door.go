package tcp

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/krait-ml/krait/internal/lobby"
)

const (
	longestGreeting = 5 * time.Second  // from a connection to the end of its hello
	mostGreeted     = 64               // connections greeted at the same time; more evict the oldest
	quiet           = 10 * time.Second // between two warnings about strangers
)

// door accepts connections, greets them in parallel, and hands on those whose processes know the
// secret. Strangers are dropped; they neither end the run nor keep others waiting.
type door struct {
	key     []byte
	lobby   *lobby.Lobby
	come    chan caller
	live    sync.WaitGroup
	warn    func(format string, args ...any)
	notices lobby.Notices
}

// caller is a process that has proved that it knows the secret.
type caller struct {
	conn *net.TCPConn
	hello
}

// open greets connections of a listener until the context ends, which closes the listener.
func open(ctx context.Context, l *net.TCPListener, key []byte, warn func(string, ...any)) *door {
	d := &door{key: key, lobby: lobby.New(mostGreeted), come: make(chan caller), warn: warn}
	context.AfterFunc(ctx, func() {
		l.Close()
		d.lobby.Clear()
	})
	d.live.Go(func() {
		for ctx.Err() == nil {
			c, err := l.AcceptTCP()
			switch {
			case errors.Is(err, net.ErrClosed):
				return
			case err != nil:
				pause(ctx) // too many open files, for one
			default:
				d.greet(ctx, c)
			}
		}
	})
	return d
}

// greet authenticates a process, and reads its hello.
func (d *door) greet(ctx context.Context, c *net.TCPConn) {
	place := d.lobby.Enter(lobby.Host(c.RemoteAddr().String()), 1, func() { c.Close() })
	if place == nil || ctx.Err() != nil { // the lobby may have been cleared before
		c.Close()
		return
	}
	d.live.Go(func() {
		_ = c.SetDeadline(time.Now().Add(longestGreeting))
		var h hello
		err := admit(c, d.key)
		if err == nil {
			err = hear(c, &h, mostStranger)
		}
		place.Leave()
		if err != nil {
			c.Close()
			if ctx.Err() == nil {
				d.stranger(c.RemoteAddr(), err)
			}
			return
		}
		_ = c.SetDeadline(time.Time{})
		select {
		case d.come <- caller{c, h}:
		case <-ctx.Done():
			c.Close()
		}
	})
}

// stranger warns of one, unless it did a moment ago.
func (d *door) stranger(from net.Addr, why error) {
	if d.warn == nil {
		return
	}
	if n, due := d.notices.Due(quiet); due {
		d.warn("%s is no rank of this run, and was sent away: %v (strangers since the last such line: %d)", from, why, n)
	}
}

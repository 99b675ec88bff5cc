package tcp

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/krait-ml/krait/exec/comm"
)

// join lets n processes join, in random order.
func join(t *testing.T, n int, change func(o *Options)) ([]*Link, []error) {
	t.Helper()
	return joinUntil(t, n, "no error", change)
}

// joinUntil is join that cancels those who still wait when one has an error that contains want.
func joinUntil(t *testing.T, n int, want string, change func(o *Options)) ([]*Link, []error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	id := "file:" + filepath.Join(t.TempDir(), "rank0")
	links, errs := make([]*Link, n), make([]error, n)
	var all sync.WaitGroup
	for r := range n {
		o := Options{Rank: r, World: n, ID: id, Timeout: 10 * time.Second}
		change(&o)
		all.Go(func() {
			time.Sleep(time.Duration(rand.IntN(30)) * time.Millisecond)
			links[r], errs[r] = Join(ctx, o)
			if errs[r] != nil && strings.Contains(errs[r].Error(), want) {
				cancel()
			}
		})
	}
	all.Wait()
	t.Cleanup(func() {
		for _, l := range links {
			if l != nil {
				l.Close(0, true)
			}
		}
	})
	return links, errs
}

// freePort is an address without a listener.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// TestLink: each sends messages of many sizes to each, all arrive in order, and when all have
// closed nothing was lost.
func TestLink(t *testing.T) {
	for _, n := range []int{1, 2, 5} {
		for _, kind := range []string{"file", "tcp"} {
			place := freePort(t)
			links, errs := join(t, n, func(o *Options) {
				if kind == "tcp" {
					o.ID = "tcp:" + place
				}
			})
			if err := errs[0]; err != nil {
				t.Fatal(errs)
			}
			const messages = 50
			size := func(from, to, i int) int { return (from*7 + to*11 + i*i*i*13) % (1 << 18) }
			var all sync.WaitGroup
			for r, l := range links {
				if l.Rank() != r || l.Ranks() != n {
					t.Errorf("rank %d of %d, want %d of %d", l.Rank(), l.Ranks(), r, n)
				}
				got := make([]int, n)
				done := make(chan int, n)
				l.Start(func(from int, m comm.Message) {
					i := got[from]
					got[from]++
					if want := size(from, r, i) + comm.Header; len(m) != want || m[len(m)-1] != byte(i) {
						t.Errorf("message %d from %d to %d has %d bytes, want %d", i, from, r, len(m), want)
					}
					if i == messages-1 {
						done <- from
					}
				}, func(int, error) {})
				all.Go(func() {
					for i := range messages {
						for to := range n {
							if to == r {
								continue
							}
							m := comm.NewMessage(size(r, to, i))
							m[len(m)-1] = byte(i)
							if len(m) == comm.Header {
								m[comm.Header-1] = byte(i)
							}
							l.Send(to, m)
						}
					}
					for range n - 1 {
						<-done
					}
					if err := l.Close(time.Second, false); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
		}
	}
}

// TestJoin: processes that do not belong together do not join, and say why.
func TestJoin(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(o *Options)
		want   string // of one at least
	}{
		{"two are rank 1", func(o *Options) { o.Rank = min(o.Rank, 1) }, "two processes are rank 1 of 3"},
		{"another number", func(o *Options) { o.World += o.Rank / 2 }, "rank 2 is one of 4, rank 0 one of 3"},
		{"no such rank", func(o *Options) { o.Rank += o.Rank / 2 }, "rank 3 of 3 processes: ranks are 0 to"},
		{"one too few", func(o *Options) { o.World++ }, "rank 0: of 4 ranks 3 did not come after 2s"},
		{"no place", func(o *Options) { o.ID = "localhost" }, `"localhost" does not name rank 0`},
		{"no rank 0", func(o *Options) { o.Rank, o.World, o.Timeout = o.Rank+1, 4, 300*time.Millisecond }, "rank 0 is not to be found at file:"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, errs := joinUntil(t, 3, c.want, func(o *Options) {
				if strings.HasSuffix(c.want, "after 2s") {
					o.Timeout = 2 * time.Second
				}
				c.change(o)
			})
			if !slices.ContainsFunc(errs, func(err error) bool { return err != nil && strings.Contains(err.Error(), c.want) }) {
				t.Errorf("%v, want %q", errs, c.want)
			}
			if slices.Contains(errs, nil) && c.name != "two are rank 1" && c.name != "no such rank" {
				t.Errorf("some have joined: %v", errs)
			}
		})
	}
}

// TestCancel: who waits for others ends with the context.
func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(50*time.Millisecond, cancel)
	start := time.Now()
	for r := range 2 {
		_, err := Join(ctx, Options{Rank: r, World: 3, ID: "file:" + filepath.Join(t.TempDir(), "id"), Timeout: 10 * time.Second})
		if err == nil || time.Since(start) > 3*time.Second {
			t.Errorf("rank %d: %v after %v", r, err, time.Since(start))
		}
	}
}

// TestBroken: a connection that is cut is told, and a message that is none ends it.
func TestBroken(t *testing.T) {
	links, errs := join(t, 3, func(*Options) {})
	if errs[0] != nil {
		t.Fatal(errs)
	}
	lost := make(chan string, 9)
	for r, l := range links {
		l.Start(func(int, comm.Message) {}, func(from int, err error) { lost <- fmt.Sprintf("%d lost %d: %v", r, from, err) })
	}
	links[2].peers[0].conn.Close()
	links[1].peers[0].conn.Write([]byte{3, 0, 0, 0}) // no message is so short
	want := map[string]bool{"0 lost 2: its connection was closed": true, "0 lost 1: it sent a message of 3 bytes": true}
	for len(want) > 0 {
		select {
		case text := <-lost:
			delete(want, text)
		case <-time.After(5 * time.Second):
			t.Fatalf("no error is %v", want)
		}
	}
}

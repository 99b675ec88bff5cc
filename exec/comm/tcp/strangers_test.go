package tcp

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// stranger is a connection of a process that is no rank.
func stranger(t *testing.T, place string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", place)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return c.(*net.TCPConn)
}

// sent is what a process says after lines, until it closes the connection.
func sent(t *testing.T, c *net.TCPConn, lines string) string {
	t.Helper()
	if _, err := io.WriteString(c, lines); err != nil {
		t.Error(err)
	}
	text, _ := io.ReadAll(c) // a reset is an end, too
	return string(text)
}

// attack does to a listener what strangers do, and returns what they were told. Silent ones stay.
func attack(t *testing.T, place string, key []byte) (told string) {
	for range 80 { // more than are greeted at the same time
		stranger(t, place)
	}
	half := stranger(t, place)
	fmt.Fprint(half, `{"Krait":2,"Non`)
	for _, lines := range []string{
		"GET / HTTP/1.1\r\n\r\n", "{}\n", "\n", strings.Repeat("x", mostStranger+1),
		`{"Krait":1,"Rank":1,"World":9}` + "\n", `{"Krait":1,"Rank":1,"World":4}` + "\n", `{"Krait":2,"Nonce":"AAAA"}` + "\n",
	} {
		told += sent(t, stranger(t, place), lines)
	}
	wrong := stranger(t, place)
	if err := knock(wrong, []byte("another")); err == nil {
		t.Error("another token is taken")
	}
	for range 2 { // who listens gets the same token, but takes no rank that is none
		if len(key) == len("\x00") {
			c := stranger(t, place)
			if err := knock(c, key); err != nil {
				t.Error(err)
			}
			text, _ := json.Marshal(hello{Rank: 7, World: 4})
			told += sent(t, c, string(text)+"\n")
		}
	}
	replayed(t, place, key)
	return told
}

// replayed repeats what a rank once said, which is to be of no use.
func replayed(t *testing.T, place string, key []byte) {
	mine, theirs := challenge{Krait: speaks, Nonce: newNonce()}, challenge{}
	first, again := stranger(t, place), stranger(t, place)
	var once proof
	for i, c := range []*net.TCPConn{first, again} {
		if err := say(c, mine); err != nil {
			t.Fatal(err)
		}
		if err := hear(c, &theirs, mostStranger); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			once.Proof = sum(key, ofCaller, mine.Nonce, theirs.Nonce)
		}
		if err := say(c, once); err != nil {
			t.Fatal(err)
		}
		var p proof
		if err := hear(c, &p, mostStranger); err != nil || (p.Error == "") != (i == 0) {
			t.Errorf("proof %d: %+v, %v", i, p, err)
		}
	}
}

// TestStrangers: a launch of 4 ranks completes after strangers came who say nothing, half of
// something, something else, what a rank once said, or another token; they learn nothing of the
// run.
func TestStrangers(t *testing.T) {
	for name, o := range map[string]Options{"file": {}, "token": {Token: "sesame"}, "loopback": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			place, key := freePort(t), []byte(o.Token+"\x00")
			o.World, o.Timeout, o.ID = 4, time.Minute, "tcp:"+place
			file := filepath.Join(t.TempDir(), "rank0")
			if name == "file" {
				o.ID = "file:" + file
			}
			var warned sync.WaitGroup
			warned.Add(1)
			var once sync.Once
			o.Warn = func(string, ...any) { once.Do(warned.Done) }
			links, errs := make([]*Link, o.World), make([]error, o.World)
			var all sync.WaitGroup
			start := func(r int) {
				o := o
				o.Rank = r
				all.Go(func() { links[r], errs[r] = Join(t.Context(), o) })
			}
			start(0)
			if name == "file" {
				place, key = written(t, file)
			}
			for up := false; !up; time.Sleep(time.Millisecond) {
				c, err := net.Dial("tcp", place)
				if up = err == nil; up {
					c.Close()
				}
			}
			told := attack(t, place, key)
			for _, secret := range []string{"Session", "Places", "Secret", place} {
				if strings.Contains(told, secret) {
					t.Errorf("strangers are told %q", told)
				}
			}
			for r := 1; r < o.World; r++ {
				start(r)
			}
			all.Wait()
			for r, err := range errs {
				if err != nil {
					t.Errorf("rank %d: %v", r, err)
					continue
				}
				links[r].Close(0, true)
			}
			warned.Wait()
		})
	}
}

// written is where rank 0 listens, and its key, as its file says.
func written(t *testing.T, file string) (place string, key []byte) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		info, err := os.Stat(file)
		if err != nil {
			continue
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("the file that carries the secret has mode %v", info.Mode())
		}
		m := meeting{where: file}
		r, err := m.read()
		if err != nil {
			t.Fatal(err)
		}
		return r.Places[len(r.Places)-1], m.key(r.Secret)
	}
	t.Fatal("rank 0 writes no file")
	return "", nil
}

// TestImpostor: a rank tells who listens in rank 0's place nothing, and takes nothing from it.
func TestImpostor(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	heard := make(chan string, 100)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conn := c.(*net.TCPConn)
			var theirs challenge
			var p map[string]any
			_ = hear(conn, &theirs, mostStranger)
			_ = say(conn, challenge{Krait: speaks, Nonce: newNonce()})
			_ = hear(conn, &p, mostStranger)
			_ = say(conn, proof{Proof: make([]byte, 32)})
			_ = say(conn, answer{Places: make([]string, 2)})
			rest, _ := io.ReadAll(conn)
			text, _ := json.Marshal(p)
			select {
			case heard <- string(text) + string(rest):
			default:
			}
			c.Close()
		}
	}()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := Join(ctx, Options{Rank: 1, World: 2, ID: "tcp:" + l.Addr().String(), Token: "sesame", Timeout: time.Minute})
		ended <- err
	}()
	for range 2 { // it tries again
		if text := <-heard; strings.Contains(text, "Rank") || !strings.Contains(text, "Proof") {
			t.Errorf("an impostor hears %s", text)
		}
	}
	cancel()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "another token") {
		t.Error(err)
	}
}

// TestTrust: a process that reaches the address of a run without a secret joins only where that was
// asked for, or where it is a process of the same machine.
func TestTrust(t *testing.T) {
	for id, want := range map[string]string{
		"tcp:10.0.0.1:7777": "by --comm-token-file", "tcp:krait-0.krait:7777": "by --comm-token-file", "tcp::7777": "by --comm-token-file",
		"tcp:0.0.0.0:7777": "by --comm-token-file", "tcp:127.0.0.1:7777": "", "tcp:localhost:7777": "", "tcp:[::1]:7777": "",
	} {
		for _, o := range []Options{{}, {Token: "x"}, {Insecure: true}} {
			o.World, o.ID = 1, id
			_, err := Join(t.Context(), o)
			if refused := err != nil; refused != (want != "" && o.Token == "" && !o.Insecure) || refused && !strings.Contains(err.Error(), want) {
				t.Errorf("%s, %+v: %v", id, o, err)
			}
		}
	}
}

// TestStale: the file of a run that has ended, or one that others can read, is an error.
func TestStale(t *testing.T) {
	dir := t.TempDir()
	for mode, secret := range map[os.FileMode]string{0o600: "old", 0o644: "known"} {
		file := filepath.Join(dir, secret)
		text, _ := json.Marshal(rendezvous{Secret: secret, Places: []string{freePort(t)}})
		if err := os.WriteFile(file, text, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := (&meeting{where: file}).read(); (err == nil) != (mode == 0o600) {
			t.Errorf("mode %v: %v", mode, err)
		}
		_, errs := join(t, 3, func(o *Options) { o.ID = "file:" + file })
		for r, err := range errs {
			if err != nil {
				t.Errorf("after another run, rank %d: %v", r, err)
			}
		}
	}
}

package ptytest

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// PTY is a pseudo-terminal: a program has Slave, and the test types and looks at the screen.
type PTY struct {
	*Screen
	Slave  *os.File
	master *os.File
}

// Open opens a pseudo-terminal of 24 rows. The test closes it at its end.
func Open(t testing.TB, columns int) *PTY {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no pseudo-terminals: ", err)
	}
	fd := int(master.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: uint16(columns)})
	}
	var slave *os.File
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	p := &PTY{NewScreen(columns), slave, master}
	t.Cleanup(func() { slave.Close(); master.Close() })
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := master.Read(buf)
			if p.Write(buf[:n]); err != nil {
				return
			}
		}
	}()
	return p
}

// Type sends keys to the program.
func (p *PTY) Type(t testing.TB, keys string) {
	t.Helper()
	if _, err := p.master.WriteString(keys); err != nil {
		t.Fatal(err)
	}
}

// Await waits until the screen has a text.
func (p *PTY) Await(t testing.TB, text string) {
	t.Helper()
	for range 1500 {
		if strings.Contains(p.Text(), text) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("the screen never had %q; it is:\n%s", text, p.Text())
}

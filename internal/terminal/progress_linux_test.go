package terminal_test

import (
	"strings"
	"testing"
	"time"

	"github.com/krait-ml/krait/internal/terminal"
	"github.com/krait-ml/krait/internal/terminal/ptytest"
)

// TestProgress: on a terminal work shows its time, then how much of it is done, within the window,
// and leaves nothing; a terminal that cannot move its cursor, and quiet commands, show nothing.
func TestProgress(t *testing.T) {
	t.Setenv("TERM", "xterm")
	p := ptytest.Open(t, 24)
	tell, end := terminal.Progress(p.Slave, "work", "things", false)
	p.Await(t, "work  1s")
	tell(0, 10)
	time.Sleep(100 * time.Millisecond)
	tell(5, 10)
	p.Await(t, "work  50%, ")
	if strings.Contains(p.Text(), "5 of 10") {
		t.Errorf("24 columns have\n%s", p.Text())
	}
	end()
	end()
	p.Slave.WriteString("next")
	p.Await(t, "next")
	if p.Text() != "next" {
		t.Errorf("it leaves\n%s", p.Text())
	}
	if tell, _ := terminal.Progress(p.Slave, "work", "things", true); tell != nil {
		t.Error("a quiet command shows progress")
	}
	t.Setenv("TERM", "dumb")
	if tell, _ := terminal.Progress(p.Slave, "work", "things", false); tell != nil {
		t.Error("a dumb terminal shows progress")
	}
}

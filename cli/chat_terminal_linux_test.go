package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/krait-ml/krait/internal/terminal/ptytest"
)

// startOnTerminal starts krait on a terminal of its own, with a home of its own. Its status comes
// when it ends.
func startOnTerminal(t *testing.T, columns int, args ...string) (p *ptytest.PTY, home string, ended <-chan int) {
	t.Helper()
	p, home = ptytest.Open(t, columns), t.TempDir()
	c := kraitCommand(t, args...)
	c.Env = append(c.Env, "HOME="+home, "XDG_STATE_HOME=", "TERM=xterm", "NO_COLOR=", "HF_HOME="+home, "HF_HUB_OFFLINE=1")
	c.Dir = home
	c.Stdin, c.Stdout, c.Stderr = p.Slave, p.Slave, p.Slave
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return p, home, statusOf(t, c)
}

func statusOf(t *testing.T, c *exec.Cmd) <-chan int {
	status := make(chan int, 1)
	go func() { c.Wait(); status <- c.ProcessState.ExitCode() }()
	t.Cleanup(func() { c.Process.Kill() })
	return status
}

// awaitStatus waits until the program ends.
func awaitStatus(t *testing.T, p *ptytest.PTY, ended <-chan int, want int) {
	t.Helper()
	select {
	case got := <-ended:
		if got != want {
			t.Errorf("status %d, want %d:\n%s", got, want, p.Text())
		}
	case <-time.After(30 * time.Second):
		t.Fatalf("it does not end:\n%s", p.Text())
	}
}

// TestChatOnTerminal: a chat as one has it on a terminal.
func TestChatOnTerminal(t *testing.T) {
	p, home, ended := startOnTerminal(t, 60, "chat", "-n", "60")
	p.Await(t, "Ctrl-D ends\n>")
	p.Type(t, "/s\t\t")
	p.Await(t, "/system  /set  /save")
	p.Type(t, "et\r")
	for _, line := range []string{"temperature=0\n", "top-k=0\n", "top-p=1\n", "min-p=0\n", "repetition-penalty=1\n", "max-tokens=60\n"} {
		p.Await(t, line)
	}
	p.Type(t, "\x1b[200~Hello\rthere\x1b[201~\r")
	p.Await(t, "> Hello\n  there\n")
	p.Await(t, "generated 60 at ")
	p.Type(t, "/save talk\r")
	p.Await(t, "88 tokens in\n~/.local")
	if info, err := os.Stat(filepath.Join(home, ".local/state/krait/chats/talk.krait")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	p.Type(t, "/reset\r/load t\t\r")
	p.Await(t, "> /load talk\n[loaded 2 messages")
	p.Type(t, "/model\r")
	p.Await(t, "\ntiny-mamba (mamba, 732,544")
	p.Type(t, "/model nowhere\r")
	p.Await(t, "\nerror: ")
	p.Type(t, "\x1b[A\x1b[A\x1b[A\x1b[A\x1b[A\x1b[A\x15no\x03/bye\r")
	awaitStatus(t, p, ended, 0)
	for _, line := range strings.Split(p.Text(), "\n") {
		if len([]rune(line)) > 60 {
			t.Errorf("a line of %d columns: %q", len([]rune(line)), line)
		}
	}
	if !strings.Contains(p.Raw.String(), "tokens/s; Ctrl-C stops") || strings.Contains(p.Text(), "Ctrl-C stops") {
		t.Errorf("the rate is not shown during the answer, or stays:\n%s", p.Text())
	}
	history, err := os.ReadFile(filepath.Join(home, ".local/state/krait/chat_history"))
	if err != nil || !strings.Contains(string(history), "\"Hello\\nthere\"\n\"/save talk\"\n") {
		t.Errorf("%q, %v", history, err)
	}
}

// TestChatStops: Ctrl-C stops an answer, drops a line, and at the prompt ends the program.
func TestChatStops(t *testing.T) {
	p, home, ended := startOnTerminal(t, 60, "chat", "-n", "100000000", "--ignore-eos", "--no-history")
	p.Await(t, "\n>")
	p.Type(t, "Hello\r")
	p.Await(t, "Ctrl-C stops")
	p.Type(t, "\x03")
	p.Await(t, "\n[stopped]\n>")
	p.Type(t, "some\x03\x03")
	awaitStatus(t, p, ended, 130)
	if _, err := os.Stat(filepath.Join(home, ".local")); err == nil {
		t.Error("--no-history keeps something")
	}
}

// TestChatModels: /model continues the conversation with another model, and what /set changed.
func TestChatModels(t *testing.T) {
	golden, err := filepath.Abs("../internal/embedded/tiny-mamba")
	if err != nil {
		t.Fatal(err)
	}
	p, _, ended := startOnTerminal(t, 100, "chat", "-n", "20", "--tp", "2")
	p.Await(t, "\n>")
	p.Type(t, "/set top-k=7\r")
	p.Type(t, "Hello there\r")
	p.Await(t, "[prefilled 28 of 28 tokens")
	p.Type(t, "/model "+golden+"\r")
	p.Await(t, "tiny-mamba\nwarning: ")
	p.Type(t, "/set\r")
	p.Await(t, "\ntop-k=7")
	p.Type(t, "Go on\r")
	p.Await(t, "[prefilled 71 of 71 tokens")
	// One that has no weights leaves the model before.
	empty := t.TempDir()
	config, err := os.ReadFile(filepath.Join(golden, "config.json"))
	if err == nil {
		err = os.WriteFile(filepath.Join(empty, "config.json"), config, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	p.Type(t, "/model "+empty+"\r")
	p.Await(t, "\nerror: ")
	p.Type(t, "Well\r")
	p.Await(t, "[prefilled 113 of 113 tokens")
	p.Type(t, "/undo\r/undo\r/undo\r/undo\r")
	p.Await(t, "error: there is no turn to undo")
	p.Type(t, "\x04")
	awaitStatus(t, p, ended, 0)
}

package terminal_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/krait-ml/krait/internal/terminal"
	"github.com/krait-ml/krait/internal/terminal/ptytest"
	"golang.org/x/term"
)

// typed is what an editor on a terminal of 22 columns returns for keys.
func typed(t *testing.T, h *terminal.History, keys string) (text, screen string, err error) {
	t.Helper()
	p := ptytest.Open(t, 22)
	e := terminal.NewEditor(p.Slave, p.Slave, h, func(head string) (list []string) {
		for _, c := range []string{"/save ", "/set ", "/system "} {
			if strings.HasPrefix(c, head) {
				list = append(list, c)
			}
		}
		return list
	})
	go func() { p.Await(t, ">"); p.Type(t, keys) }()
	text, err = e.Read(t.Context())
	io.WriteString(p.Slave, "%") // comes last
	p.Await(t, "%")
	return text, p.Text(), err
}

// TestEditor: what keys give, and what the screen shows.
func TestEditor(t *testing.T) {
	const paste, end = "\x1b[200~", "\x1b[201~"
	long := strings.Repeat("word ", 2000)
	for _, c := range []struct{ name, keys, want, screen string }{
		{"plain", "hello\r", "hello", "> hello\n%"},
		{"backspace and home", "helo\x7flo\x01oh \r", "oh hello", "> oh hello\n%"},
		{"words", "one two\x1bbxx \x1b[1;5C!\x01\x1b[1;5C-\r", "one -xx two!", ""},
		{"longer than the window", "a long line of many words\x01X\r", "Xa long line of many words", "> Xa long line of many\n words\n%"},
		{"backslash", "one\\\rtwo\r", "one\ntwo", "> one\\\n  two\n%"},
		{"pasted", paste + "one\rtwo\rthree" + end + " four\r", "one\ntwo\nthree four", "> one\n  two\n  three four\n%"},
		{"pasted after text", "say: " + paste + "one\r\ntwo\r\n" + end + "\r", "say: one\ntwo\n", "> say: one\n  two\n\n%"},
		{"pasted tab and escape", paste + "a\tb\x1b[31mc\x07\x03" + end + "\r", "a\tb[31mc", "> a b[31mc\n%"},
		{"pasted, long", paste + long + end + "\r", long, ""},
		{"completed", "/sy\tBe brief.\r", "/system Be brief.", "> /system Be brief.\n%"},
		{"listed", "/s\t\x7fx\r", "/x", "/save  /set  /system\n> /x\n%"},
		{"dropped", "nonsense\x03yes\r", "yes", "> yes\n%"},
		{"dropped lines", "one\\\rtwo\x03\x7fyes\r", "yes", "> one\\\n  two^C\n> yes\n%"},
		{"typed ⏎", "one⏎two\r", "one\ntwo", ""},
		{"wide", "漢字かな\x02\x02X\r", "漢字Xかな", "> 漢字Xかな\n%"},
		{"wide, erased", "a漢字b\x1b[D\x7f\x7f-\x1b[3~\r", "a-", "> a-\n%"},
		{"wide, moved over", "🐍krait漢\x01\x1b[C\x1b[C-\x06\x1b[3~\r", "🐍k-rit漢", "> 🐍k-rit漢\n%"},
		{"wide, longer than the window", "漢字漢字漢字漢字漢字漢字\x01X\r", "X漢字漢字漢字漢字漢字漢字", ""},
		{"wide, pasted", paste + "漢字\rかな" + end + "\x1b[D!\r", "漢字\nか!な", "> 漢字\n  か!な\n%"},
		{"wide, a word", "漢字 かな\x17x\r", "漢字 x", "> 漢字 x\n%"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, _ := terminal.OpenHistory("")
			text, screen, err := typed(t, h, c.keys)
			if text != c.want || err != nil || c.screen != "" && screen != c.screen {
				t.Errorf("%q, %v; want %q; the screen is\n%s", text, err, c.want, screen)
			}
		})
	}
}

// TestEditorEnds: Ctrl-D, Ctrl-C and the context end the input, and leave the terminal as it was.
func TestEditorEnds(t *testing.T) {
	h, _ := terminal.OpenHistory("")
	if _, _, err := typed(t, h, "\x04"); err != io.EOF {
		t.Errorf("Ctrl-D: %v", err)
	}
	if _, _, err := typed(t, h, "\x03"); err != terminal.ErrInterrupt {
		t.Errorf("Ctrl-C: %v", err)
	}
	p := ptytest.Open(t, 20)
	was, err := term.GetState(int(p.Slave.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("terminated")
	go func() { p.Await(t, ">"); cancel(reason) }()
	if _, err := terminal.NewEditor(p.Slave, p.Slave, h, nil).Read(ctx); err != reason {
		t.Errorf("context: %v", err)
	}
	if is, err := term.GetState(int(p.Slave.Fd())); err != nil || !reflect.DeepEqual(is, was) {
		t.Errorf("the terminal stays raw: %v", err)
	}
}

// TestHistory: messages come back in the next run, lines of one folded, and twice the same once.
func TestHistory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "history")
	const up, down = "\x1b[A", "\x1b[B"
	for _, step := range []struct{ keys, want string }{
		{"one\r", "one"},
		{"two\\\rlines\r", "two\nlines"},
		{up + "\r", "two\nlines"},
		{up + up + "!\r", "one!"},
		{"new" + up + up + down + down + "er\r", "newer"},
	} {
		h, err := terminal.OpenHistory(path)
		if err != nil {
			t.Fatal(err)
		}
		if text, screen, err := typed(t, h, step.keys); text != step.want || err != nil {
			t.Errorf("%q: %q, %v; the screen is\n%s", step.keys, text, err, screen)
		}
	}
	data, err := os.ReadFile(path)
	if want := "\"one\"\n\"two\\nlines\"\n\"one!\"\n\"newer\"\n"; err != nil || string(data) != want {
		t.Errorf("%q, %v; want %q", data, err, want)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info.Mode(), err)
	}
	if h, err := terminal.OpenHistory(filepath.Join(path, "no")); err == nil || h == nil {
		t.Error("a history below a file: ", h, err)
	}
	old := strings.Repeat("\"a\"\n\"b\"\n", 1100)
	if err := os.WriteFile(path, []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := terminal.OpenHistory(path); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(path); err != nil || strings.Count(string(data), "\n") != 1000 {
		t.Errorf("%d lines are kept, %v", strings.Count(string(data), "\n"), err)
	}
}

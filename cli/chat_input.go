package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/checkpoint/hub"
	"github.com/krait-ml/krait/internal/terminal"
)

// lines returns what reads the next message.
func (t *talk) lines(in io.Reader) func(context.Context) (string, error) {
	if t.editor != nil {
		return t.edited
	}
	next := inputLines(in)
	return func(ctx context.Context) (string, error) {
		if t.shown {
			fmt.Fprint(t.out, "> ")
		}
		select {
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case line := <-next:
			return line.text, line.err
		}
	}
}

// inputLine is a line of the input, or several that belong together.
type inputLine struct {
	text string
	err  error // after the line
}

// longestLineRead is how many bytes of a line are read.
const longestLineRead = 1 << 20

// inputLines reads the input line by line.
func inputLines(in io.Reader) <-chan inputLine {
	next := make(chan inputLine)
	go func() {
		s := bufio.NewScanner(in)
		s.Buffer(nil, longestLineRead)
		text := ""
		for s.Scan() {
			line := strings.TrimSuffix(s.Text(), "\r")
			if before, more := strings.CutSuffix(line, `\`); more {
				text += before + "\n"
				continue
			}
			next <- inputLine{text: text + line}
			text = ""
		}
		err := s.Err()
		if errors.Is(err, bufio.ErrTooLong) {
			err = fmt.Errorf("a line has more than %d bytes, the limit", longestLineRead)
		}
		next <- inputLine{strings.TrimSuffix(text, "\n"), cmp.Or(err, io.EOF)}
	}()
	return next
}

// onTerminal lets lines be edited and answers be wrapped, if the terminal can move its cursor and
// shows the answers, too.
func (t *talk) onTerminal() {
	in, out := t.c.InOrStdin(), standardOutput(t.c)
	if !terminal.Moves(in) || !terminal.Moves(out) {
		return
	}
	path := ""
	if dir, err := terminal.StateFolder(); err == nil && !t.f.noHistory {
		path = filepath.Join(dir, "chat_history")
	}
	history, err := terminal.OpenHistory(path)
	if err != nil {
		t.warn("warning: the history of lines is not kept", err)
	}
	t.editor = terminal.NewEditor(in.(*os.File), out.(*os.File), history, t.complete)
	t.page = terminal.NewWrapped(out)
}

// edited reads a message that is typed on the terminal.
func (t *talk) edited(ctx context.Context) (string, error) {
	text, err := t.editor.Read(ctx)
	if err == terminal.ErrInterrupt {
		err = signalError{syscall.SIGINT}
	}
	return text, err
}

// complete returns the commands that a line may become.
func (t *talk) complete(head string) (list []string) {
	command, _, found := strings.Cut(head, " ")
	words, before := chatCommands(), ""
	if found {
		words, before = argumentsOf(command), command+" "
	}
	for _, w := range words {
		if strings.HasPrefix(before+w, head) {
			list = append(list, before+w)
		}
	}
	return list
}

// argumentsOf returns what may follow a command.
func argumentsOf(command string) (words []string) {
	switch command {
	case "/set":
		words, _, _ = settings(&krait.Generate{})
		for i := range words {
			words[i] += "="
		}
	case "/save", "/load":
		words = savedChats()
	case "/model":
		if h, err := hub.New(os.Getenv); err == nil {
			cached, _ := h.List() // or nothing is completed
			for i := range cached {
				words = append(words, cached[i].Name.String())
			}
		}
	}
	return words
}

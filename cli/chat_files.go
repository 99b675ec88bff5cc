package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/krait-ml/krait/internal/files"
	"github.com/krait-ml/krait/internal/terminal"
	"github.com/krait-ml/krait/internal/versions"
	"github.com/krait-ml/krait/text/chat"
)

// chatFile is the first line of what /save writes; the state follows it.
type chatFile struct {
	Krait    string        `json:"krait"` // "chat 1": the version of the format
	Messages []chatMessage `json:"messages"`
	Turns    []int         `json:"turns"` // how many messages there were before each
	Fed      []int         `json:"fed"`
	Known    string        `json:"known"`
}

type chatMessage struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

const longestChat = 64 << 20

// chatsFolder returns the folder of the chats that are saved by name.
func chatsFolder() (string, error) {
	dir, err := terminal.StateFolder()
	return filepath.Join(dir, "chats"), err
}

// chatExt ends the names of its files.
const chatExt = ".krait"

// savedChats returns their names.
func savedChats() (names []string) {
	dir, err := chatsFolder()
	if err != nil {
		return nil
	}
	entries, _ := os.ReadDir(dir) // or there are none
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), chatExt); ok {
			names = append(names, name)
		}
	}
	return names
}

// namedChat returns the file of a chat in the folder, if the text is a name and no file.
func namedChat(name string) (string, bool) {
	dir, err := chatsFolder()
	if err != nil || strings.ContainsAny(name, `/\.`) {
		return "", false
	}
	return filepath.Join(dir, name+chatExt), true
}

// save writes the conversation to a file, or on a terminal by name.
func (t *talk) save(path string) error {
	write, where := files.Write, ""
	if file, ok := namedChat(path); ok && t.editor != nil {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return err
		}
		path, write, where = file, files.WritePrivate, " in "+terminal.Home(file)
	}
	s := chatFile{Krait: fmt.Sprint("chat ", versions.Chat.Version), Fed: t.fed, Known: t.known, Messages: []chatMessage{}, Turns: []int{}}
	for _, m := range t.messages {
		s.Messages = append(s.Messages, chatMessage{m.Role, m.Content})
	}
	for _, x := range t.turns {
		s.Turns = append(s.Turns, x.messages)
	}
	head, err := json.Marshal(s)
	if err != nil {
		return err
	}
	var all bytes.Buffer
	all.Write(append(head, '\n'))
	if len(t.fed) > 0 {
		if err := t.seq.Save(&all); err != nil {
			return err
		}
	}
	if err := write(path, all.Bytes()); err != nil {
		return err
	}
	t.note(fmt.Sprintf("[saved %s and the state of %s%s]", count(len(t.messages), "message"), count(len(t.fed), "token"), where))
	return nil
}

// load goes on with what was saved in a file, or by name. Where the state is another model's, the
// messages are read again.
func (t *talk) load(path string) error {
	file, err := os.Open(path)
	if named, ok := namedChat(path); ok && errors.Is(err, fs.ErrNotExist) {
		if saved, missing := os.Open(named); missing == nil {
			file, err = saved, nil
		}
	}
	if err != nil {
		return err
	}
	defer file.Close()
	in := bufio.NewReader(file)
	s, err := readTalk(in)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	t.reset("")
	for _, m := range s.Messages {
		t.messages = append(t.messages, chat.Message{Role: m.Role, Content: m.Content})
	}
	for _, n := range s.Turns {
		t.turns = append(t.turns, turn{messages: n})
	}
	if len(s.Fed) == 0 {
		return nil
	}
	if err = t.seq.Load(in); err == nil {
		var n int
		if n, err = t.seq.Len(); err == nil && n != len(s.Fed) {
			err = fmt.Errorf("the state has %s; the conversation has %d", count(n, "token"), len(s.Fed))
		}
	}
	if err != nil {
		t.forget()
		t.warn("warning: the conversation is prefilled again", err)
		return nil
	}
	t.fed, t.known = s.Fed, s.Known
	if err := t.mark(); err != nil {
		return err
	}
	t.note(fmt.Sprintf("[loaded %s and the state of %s]", count(len(t.messages), "message"), count(len(t.fed), "token")))
	return nil
}

// readTalk reads the first line, and checks it.
func readTalk(in *bufio.Reader) (*chatFile, error) {
	var head []byte
	for {
		part, err := in.ReadSlice('\n')
		head = append(head, part...)
		if err == nil {
			break
		}
		if !errors.Is(err, bufio.ErrBufferFull) || len(head) > longestChat {
			return nil, errors.New("not a file that /save wrote")
		}
	}
	var s chatFile
	if err := json.Unmarshal(head, &s); err != nil || !strings.HasPrefix(s.Krait, "chat ") {
		return nil, errors.New("not a file that /save wrote")
	}
	version, err := strconv.Atoi(strings.TrimPrefix(s.Krait, "chat "))
	if err != nil || version < 1 {
		return nil, errors.New("not a file that /save wrote")
	}
	if err := versions.Chat.Accept(version); err != nil {
		return nil, err
	}
	before := -1
	for _, n := range s.Turns {
		if n <= before || n >= len(s.Messages) {
			return nil, errors.New("the file is damaged: its turns do not match its messages")
		}
		before = n
	}
	return &s, nil
}

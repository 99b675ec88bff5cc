package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/internal/files"
	"github.com/krait-ml/krait/text/chat"
	"github.com/krait-ml/krait/text/sampling"
)

// errQuit ends a talk.
var errQuit = errors.New("quit")

const chatHelp = `/help            this list
/system TEXT     start over with TEXT as the system message; without TEXT, with none
/reset           start over with the same system message
/undo            take back the last turn
/set NAME=VALUE  temperature, top-k, top-p, min-p, repetition-penalty, presence-penalty,
                 frequency-penalty, seed or max-tokens; without NAME, show them
/save FILE       write the conversation and the model's state
/load FILE       continue what /save wrote
/quit            end, as does the end of the input
//TEXT           send /TEXT`

// command does a command, without its /.
func (t *talk) command(text string) error {
	name, rest, _ := strings.Cut(text, " ")
	rest = strings.TrimSpace(rest)
	needs := func() error {
		if rest == "" {
			return fmt.Errorf("/%s needs a FILE", name)
		}
		return nil
	}
	switch name {
	case "help":
		fmt.Fprintln(t.out, chatHelp)
	case "system":
		t.reset(rest)
	case "reset":
		t.reset(t.system())
	case "undo":
		was, err := t.undo()
		if err == nil && !was {
			err = errors.New("there is no turn to undo")
		}
		return err
	case "set":
		return t.set(rest)
	case "save":
		if err := needs(); err != nil {
			return err
		}
		return t.save(rest)
	case "load":
		if err := needs(); err != nil {
			return err
		}
		return t.load(rest)
	case "quit", "exit":
		return errQuit
	default:
		return fmt.Errorf("unknown command /%s; /help lists the commands, and // begins a line with /", name)
	}
	return nil
}

// settings are the numbers that /set knows, by name.
func settings(o *krait.Generate) (names []string, set map[string]func(string) error, show map[string]string) {
	set, show = map[string]func(string) error{}, map[string]string{}
	number := func(name string, to *float64) {
		names, show[name] = append(names, name), strconv.FormatFloat(*to, 'g', -1, 64)
		set[name] = func(s string) (err error) { *to, err = strconv.ParseFloat(s, 64); return err }
	}
	whole := func(name string, to *int) {
		names, show[name] = append(names, name), strconv.Itoa(*to)
		set[name] = func(s string) (err error) { *to, err = strconv.Atoi(s); return err }
	}
	number("temperature", &o.Temperature)
	whole("top-k", &o.TopK)
	number("top-p", &o.TopP)
	number("min-p", &o.MinP)
	number("repetition-penalty", &o.RepetitionPenalty)
	number("presence-penalty", &o.PresencePenalty)
	number("frequency-penalty", &o.FrequencyPenalty)
	whole("max-tokens", &o.MaxTokens)
	names, show["seed"] = append(names, "seed"), strconv.FormatUint(o.Seed, 10)
	set["seed"] = func(s string) (err error) { o.Seed, err = strconv.ParseUint(s, 10, 64); return err }
	return names, set, show
}

// set changes how answers are chosen, or shows it.
func (t *talk) set(text string) error {
	o := t.o
	names, set, show := settings(&o)
	if text == "" {
		for _, name := range names {
			fmt.Fprintf(t.out, "%s=%s\n", name, show[name])
		}
		return nil
	}
	name, value, found := strings.Cut(text, "=")
	name = strings.ReplaceAll(strings.TrimSpace(name), "_", "-")
	f, known := set[name]
	switch {
	case !known:
		return fmt.Errorf("unknown setting %q; it must be one of %s", name, strings.Join(names, ", "))
	case !found:
		return fmt.Errorf("/set %s needs =VALUE", name)
	}
	if err := f(strings.TrimSpace(value)); err != nil {
		return fmt.Errorf("%s is %q; it must be a number", name, value)
	}
	if o.MaxTokens < 1 {
		return fmt.Errorf("max-tokens is %d; it must be at least 1", o.MaxTokens)
	}
	if _, err := sampling.New(o.Sampling(), t.m.Vocab()); err != nil {
		return err
	}
	t.o = o
	return nil
}

// chatFile is the first line of what /save writes; the state follows it.
type chatFile struct {
	Krait    string        `json:"krait"` // chatFormat
	Messages []chatMessage `json:"messages"`
	Turns    []int         `json:"turns"` // how many messages there were before each
	Fed      []int         `json:"fed"`
	Known    string        `json:"known"`
}

type chatMessage struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

const chatFormat, longestChat = "chat 1", 64 << 20

func (t *talk) save(path string) error {
	s := chatFile{Krait: chatFormat, Fed: t.fed, Known: t.known, Messages: []chatMessage{}, Turns: []int{}}
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
	if err := files.Write(path, all.Bytes()); err != nil {
		return err
	}
	fmt.Fprintf(t.info, "[saved %s and the state of %s]\n", count(len(t.messages), "message"), count(len(t.fed), "token"))
	return nil
}

// load goes on with what was saved. Where the state is another model's, the messages are
// read again.
func (t *talk) load(path string) error {
	file, err := os.Open(path)
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
		fmt.Fprintln(t.info, "warning: the conversation is prefilled again:", printable(err.Error()))
		return nil
	}
	t.fed, t.known = s.Fed, s.Known
	if err := t.mark(); err != nil {
		return err
	}
	fmt.Fprintf(t.info, "[loaded %s and the state of %s]\n", count(len(t.messages), "message"), count(len(t.fed), "token"))
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
	if err := json.Unmarshal(head, &s); err != nil || s.Krait != chatFormat {
		return nil, errors.New("not a file that /save wrote")
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

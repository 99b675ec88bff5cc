package cli

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/checkpoint/hub"
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
/model NAME      continue with another model; without NAME, show the model
/save FILE       write the conversation and the model's state; on a terminal a NAME without
                 / and . is kept in the folder of chats
/load FILE       continue what /save wrote, or the chat of that NAME
/bye, /quit      end, as does the end of the input
//TEXT           send /TEXT`

// chatCommands returns the commands, those with an argument with a blank behind.
func chatCommands() (list []string) {
	for _, line := range strings.Split(chatHelp, "\n") {
		words := strings.Fields(line)
		for i := 0; strings.HasPrefix(words[i], "/") && words[i] != "//TEXT"; i++ {
			name, more := strings.CutSuffix(words[i], ",")
			if next := words[i+1]; !more && next == strings.ToUpper(next) {
				name += " "
			}
			list = append(list, name)
		}
	}
	return list
}

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
	case "system", "reset":
		if name == "reset" {
			rest = t.system()
		}
		t.reset(rest)
		t.note("[started over]")
	case "undo":
		said, err := t.undo()
		if err == nil {
			t.note(fmt.Sprintf("[took back %s and its answer; %s left]", excerpt(said), count(len(t.messages), "message")))
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
	case "model":
		return t.change(rest)
	case "quit", "exit", "bye":
		return errQuit
	default:
		return fmt.Errorf("unknown command /%s; /help lists the commands, and // begins a line with /", name)
	}
	return nil
}

// excerpt quotes the beginning of a text.
func excerpt(text string) string {
	const most = 40
	line := []rune(strings.Join(strings.Fields(text), " "))
	if len(line) > most {
		line = append(line[:most], '…')
	}
	return strconv.Quote(string(line))
}

// settings are the numbers that /set knows, by name, as they are shown: those that are off as the
// number that changes nothing.
func settings(o *krait.Generate) (names []string, set map[string]func(string) error, show map[string]string) {
	set, show = map[string]func(string) error{}, map[string]string{}
	number := func(name string, to *float64, off float64) {
		names, show[name] = append(names, name), strconv.FormatFloat(cmp.Or(*to, off), 'g', -1, 64)
		set[name] = func(s string) (err error) { *to, err = strconv.ParseFloat(s, 64); return err }
	}
	whole := func(name string, to *int) {
		names, show[name] = append(names, name), strconv.Itoa(*to)
		set[name] = func(s string) (err error) { *to, err = strconv.Atoi(s); return err }
	}
	number("temperature", &o.Temperature, 0)
	whole("top-k", &o.TopK)
	number("top-p", &o.TopP, 1)
	number("min-p", &o.MinP, 0)
	number("repetition-penalty", &o.RepetitionPenalty, 1)
	number("presence-penalty", &o.PresencePenalty, 0)
	number("frequency-penalty", &o.FrequencyPenalty, 0)
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
	t.o, t.changed = o, append(t.changed, text)
	return nil
}

// change continues the conversation with another model, which prefills it with its next turn. What
// /set changed stays. The model before is closed first, as both may not fit, and comes back if the
// other fails to open; if that fails, too, there is no model.
func (t *talk) change(name string) error {
	switch {
	case name == "":
		fmt.Fprintln(t.out, describe(t.m, &t.f.device))
		return nil
	case t.f.options.Processes != nil:
		return errors.New("/model: the ranks are in several processes, which all must open the model: start krait chat anew")
	}
	dir, err := locate(t.c, name, hub.Weights)
	if err == nil {
		_, _, err = checkpoint.Describe(dir)
	}
	if err != nil {
		return err
	}
	was, changed := t.dir, t.changed
	if err := t.close(); err != nil {
		return err
	}
	if err = t.open(dir); err != nil {
		if again := t.open(was); again != nil {
			return errors.Join(err, again)
		}
	}
	for i := range t.turns {
		t.turns[i].fed = 0
	}
	t.forget()
	t.changed = nil
	for _, text := range changed {
		if err := t.set(text); err != nil {
			t.warn("warning: /set "+printable(text), err)
		}
	}
	return err
}

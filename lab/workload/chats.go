package workload

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/krait-ml/krait/session/prefix"
)

// message is a message in any of the formats of conversations.
type message struct {
	From   string `json:"from"`
	Role   string `json:"role"`
	Value  text   `json:"value"`
	Text   text   `json:"text"`
	Body   text   `json:"content"`
	System text   `json:"system_prompt"`
	Calls  text   `json:"tool_calls"`
}

// text is a string, the texts of a list of parts, or other JSON as it stands.
type text string

func (t *text) UnmarshalJSON(raw []byte) error {
	var s string
	var parts []struct {
		Text *string `json:"text"`
	}
	if json.Unmarshal(raw, &s) != nil {
		if s = string(raw); s == "null" {
			s = ""
		}
		if json.Unmarshal(raw, &parts) == nil {
			all := ""
			for _, p := range parts {
				if p.Text == nil { // an image
					*t = text(s)
					return nil
				}
				all += *p.Text
			}
			s = all
		}
	}
	*t = text(s)
	return nil
}

// answers reports whether the model wrote the message.
func (x *message) answers() bool {
	return slices.Contains([]string{"gpt", "chatgpt", "assistant", "ai", "model", "bard", "bing"}, cmp.Or(x.From, x.Role))
}

// conversation is one in any of the formats.
type conversation struct {
	ShareGPT   []message `json:"conversations"`
	LMSys      []message `json:"conversation"`
	History    []message `json:"history"`
	Messages   []message `json:"messages"`
	Trajectory []message `json:"trajectory"`
}

func (x *conversation) messages() []message {
	for _, list := range [][]message{x.ShareGPT, x.LMSys, x.History, x.Messages, x.Trajectory} {
		if len(list) > 0 {
			return list
		}
	}
	return nil
}

// readChats reads conversations, one after the other or in a list.
func readChats(m *maker, r *bufio.Reader) error {
	d, list := json.NewDecoder(r), begins(r, '[')
	if list {
		if _, err := d.Token(); err != nil {
			return err
		}
	}
	said := map[text]prefix.Tokens{}
	at := 0.0
	for n := 1; m.Sessions == 0 || n <= m.Sessions; n++ {
		if list && !d.More() {
			return ends(d, n-1)
		}
		var x conversation
		if err := d.Decode(&x); err == io.EOF && !list {
			return nil
		} else if err != nil {
			return notJSON("conversation", n, err)
		}
		at += m.rng.ExpFloat64() / m.Rate
		turns := m.turns(x.messages(), said)
		if len(turns) == 0 {
			m.left.Conversations++
		}
		if k := tokensOf(turns); k > prefix.MaxTokens {
			return fmt.Errorf("conversation %d has %d tokens; a request has at most %d", n, k, prefix.MaxTokens)
		}
		m.play(at, turns)
		if m.next > mostIDs {
			return errAllIDs
		}
	}
	return nil
}

// ends reads the end of a list of n conversations, after which the file ends.
func ends(d *json.Decoder, n int) error {
	if _, err := d.Token(); err != nil {
		return fmt.Errorf("after %d conversations the list does not end; is the file complete?", n)
	}
	if _, err := d.Token(); err != io.EOF {
		return fmt.Errorf("there is more after the list of %d conversations; a file has one list, or objects without a list", n)
	}
	return nil
}

// tokensOf returns the tokens of a conversation.
func tokensOf(turns []turn) (n int) {
	for _, t := range turns {
		n += t.asked.Len() + t.answered.Len()
	}
	return n
}

// begins reports whether a byte follows white space, which it takes.
func begins(r *bufio.Reader, what byte) bool {
	for {
		b, err := r.ReadByte()
		if err != nil {
			return false
		}
		if !strings.ContainsRune(" \t\r\n", rune(b)) {
			r.UnreadByte()
			return b == what
		}
	}
}

// turns returns the turns of messages. Messages without text or after the last answer are left out.
func (m *maker) turns(list []message, said map[text]prefix.Tokens) (turns []turn) {
	var asked prefix.Tokens
	waiting := 0
	for i := range list {
		x := &list[i]
		body := cmp.Or(x.Value, x.Body, x.Text, x.System) + x.Calls
		if body == "" {
			m.left.Messages++
			continue
		}
		tokens, ok := said[body]
		if !ok {
			tokens = m.text((len(body) + bytesPerToken - 1) / bytesPerToken)
			said[body] = tokens
		}
		if x.answers() && (asked.Len() > 0 || len(turns) > 0) {
			turns = append(turns, turn{asked, tokens})
			asked, waiting = prefix.Tokens{}, 0
		} else {
			asked = after(asked, tokens)
			waiting++
		}
	}
	if len(turns) > 0 {
		m.left.Messages += waiting
	}
	return turns
}

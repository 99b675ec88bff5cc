package workload

import (
	"bufio"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/krait-ml/krait/session/prefix"
)

// Format is a format of published traces or conversations.
type Format struct {
	Name string
	Doc  string
	read func(*maker, *bufio.Reader) error
}

// Formats lists the formats that [Read] reads.
var Formats = []Format{
	{"sharegpt", "ShareGPT: a JSON list of conversations, each with from and value of its messages", readChats},
	{"lmsys", "LMSys-Chat: a JSON object per line, with role and content of the messages of conversation", readChats},
	{"swe-agent", "SWE-agent: trajectories as JSON, with role and content of the messages of history, or role and text", readChats},
	{"mooncake", "Mooncake: a JSON object per line, with hash_ids of blocks of 512 tokens, which are shared", readBlocks},
	{"burstgpt", "BurstGPT: CSV with Timestamp, Request tokens and Response tokens; lengths only, so that no prefix is shared", readLengths},
	{"azure", "Azure LLM inference: CSV with TIMESTAMP, ContextTokens and GeneratedTokens; lengths only, so that no prefix is shared", readLengths},
}

// FormatNames lists the names of the formats.
func FormatNames() (names []string) {
	for _, f := range Formats {
		names = append(names, f.Name)
	}
	return names
}

// bytesPerToken is the text that counts as a token in formats without numbers of tokens.
const bytesPerToken = 4

// Read reads the first o.Sessions conversations or requests of a trace in a format; 0: all.
// Conversations have no times: they begin at o.Rate, and turns
// follow after o.Pause seconds, on average. A token is taken for 4 bytes of text there, and equal
// messages have equal tokens.
func Read(format string, r io.Reader, o Options) ([]prefix.Request, error) {
	i := slices.IndexFunc(Formats, func(f Format) bool { return f.Name == format })
	if i < 0 {
		return nil, fmt.Errorf("unknown format %q; use one of %v", format, FormatNames())
	}
	if o.Sessions < 0 {
		return nil, fmt.Errorf("%d sessions; there must be at least 1, or 0 for all", o.Sessions)
	}
	if o.Rate = cmp.Or(o.Rate, 1); o.Pause < 0 {
		o.Pause = Kinds[0].pause
	}
	m := &maker{Options: o, rng: rand.New(rand.NewPCG(o.Seed, 0))}
	if err := Formats[i].read(m, bufio.NewReaderSize(r, 1<<20)); err != nil {
		return nil, err
	}
	if len(m.trace) == 0 {
		return nil, errors.New("it has no requests")
	}
	return m.sorted(), nil
}

// message is a message in any of the formats of conversations.
type message struct {
	From   string `json:"from"`
	Role   string `json:"role"`
	Value  text   `json:"value"`
	Text   text   `json:"text"`
	Body   text   `json:"content"`
	System text   `json:"system_prompt"`
}

// text is a string, or other JSON as it stands.
type text string

func (t *text) UnmarshalJSON(raw []byte) error {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		if s = string(raw); s == "null" {
			s = ""
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
	Trajectory []message `json:"trajectory"`
}

func (x *conversation) messages() []message {
	for _, list := range [][]message{x.ShareGPT, x.LMSys, x.History, x.Trajectory} {
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
			if _, err := d.Token(); err != nil {
				return fmt.Errorf("after %d conversations: %w", n-1, err)
			}
			return nil
		}
		var x conversation
		if err := d.Decode(&x); err == io.EOF && !list {
			return nil
		} else if err != nil {
			return fmt.Errorf("conversation %d: %w", n, err)
		}
		at += m.rng.ExpFloat64() / m.Rate
		m.play(at, m.turns(x.messages(), said))
		if m.next > mostIDs {
			return errAllIDs
		}
	}
	return nil
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

// turns returns the turns of messages. Messages after the last answer are left out.
func (m *maker) turns(list []message, said map[text]prefix.Tokens) (turns []turn) {
	var asked prefix.Tokens
	for i := range list {
		x := &list[i]
		body := cmp.Or(x.Value, x.Body, x.Text, x.System)
		if body == "" {
			continue
		}
		tokens, ok := said[body]
		if !ok {
			tokens = m.text((len(body) + bytesPerToken - 1) / bytesPerToken)
			said[body] = tokens
		}
		if x.answers() && (asked.Len() > 0 || len(turns) > 0) {
			turns = append(turns, turn{asked, tokens})
			asked = prefix.Tokens{}
		} else {
			asked = after(asked, tokens)
		}
	}
	return turns
}

// blockTokens is the tokens of a block in Mooncake's traces.
const blockTokens = 512

// readBlocks reads requests whose prompts are blocks of known hashes.
func readBlocks(m *maker, r *bufio.Reader) error {
	d := json.NewDecoder(r)
	first := map[int64]int32{}
	for n := 1; m.Sessions == 0 || n <= m.Sessions; n++ {
		var x struct {
			Timestamp float64 `json:"timestamp"` // in ms
			Input     int     `json:"input_length"`
			Output    int     `json:"output_length"`
			Hashes    []int64 `json:"hash_ids"`
		}
		switch err := d.Decode(&x); {
		case err == io.EOF:
			return nil
		case err != nil:
			return fmt.Errorf("request %d: %w", n, err)
		case x.Input < 1 || x.Output < 0 || len(x.Hashes) != (x.Input+blockTokens-1)/blockTokens:
			return fmt.Errorf("request %d: %d tokens in %d blocks; a block has %d", n, x.Input, len(x.Hashes), blockTokens)
		}
		var b prefix.Builder
		for i, h := range x.Hashes {
			if _, ok := first[h]; !ok {
				first[h] = int32(m.next)
				m.next += blockTokens + 1
			}
			b.Append(first[h], min(blockTokens, x.Input-i*blockTokens))
		}
		if err := m.add(x.Timestamp/1000, b.Tokens(), x.Output); err != nil {
			return err
		}
	}
	return nil
}

var errAllIDs = errors.New("the requests use up all token ids; give fewer (--sessions)")

// add adds a request with an output of its own.
func (m *maker) add(at float64, input prefix.Tokens, output int) error {
	if input.Len()+output > prefix.MaxTokens {
		return fmt.Errorf("a request of %d tokens; it must have at most %d", input.Len()+output, prefix.MaxTokens)
	}
	m.trace = append(m.trace, prefix.Request{At: at, Tokens: after(input, m.text(output)), InputLen: input.Len()})
	if m.next > mostIDs {
		return errAllIDs
	}
	return nil
}

// readLengths reads requests of which only lengths are known. Those without tokens, which failed,
// are left out.
func readLengths(m *maker, r *bufio.Reader) error {
	c := csv.NewReader(r)
	c.FieldsPerRecord = -1
	head, err := c.Read()
	if err != nil {
		return fmt.Errorf("it has no header: %w", err)
	}
	find := func(names ...string) int {
		return slices.IndexFunc(head, func(s string) bool {
			return slices.Contains(names, strings.ToLower(strings.TrimSpace(strings.TrimPrefix(s, "\ufeff"))))
		})
	}
	columns := []int{find("timestamp"), find("request tokens", "contexttokens"), find("response tokens", "generatedtokens")}
	if slices.Min(columns) < 0 {
		return fmt.Errorf("its columns are %q; there must be a timestamp and the tokens of prompt and output", head)
	}
	var begin float64
	for n := 2; m.Sessions == 0 || len(m.trace) < m.Sessions; n++ {
		row, err := c.Read()
		if err == io.EOF {
			break
		}
		if err == nil && len(row) <= slices.Max(columns) {
			err = errors.New("it has too few columns")
		}
		var at float64
		var tokens [2]int
		if err == nil {
			at, err = seconds(row[columns[0]])
		}
		for i := range tokens {
			if err == nil {
				tokens[i], err = strconv.Atoi(row[columns[1+i]])
			}
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		if tokens[0] < 1 || tokens[1] < 1 {
			continue
		}
		if len(m.trace) == 0 {
			begin = at
		}
		if at < begin || max(tokens[0], tokens[1]) > prefix.MaxTokens {
			return fmt.Errorf("line %d: it is before the first request, or has more than %d tokens", n, prefix.MaxTokens)
		}
		if err := m.add(at-begin, m.text(tokens[0]), tokens[1]); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	return nil
}

// seconds reads a time: seconds, or a date with a time of day.
func seconds(text string) (float64, error) {
	if s, err := strconv.ParseFloat(text, 64); err == nil {
		return s, nil
	}
	for _, layout := range []string{"2006-01-02 15:04:05", time.RFC3339} {
		if t, err := time.Parse(layout, text); err == nil {
			return float64(t.UnixMicro()) / 1e6, nil
		}
	}
	return 0, fmt.Errorf("%.40q is no time", text)
}

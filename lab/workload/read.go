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
	Name  string
	Doc   string
	Timed bool // its requests have times
	read  func(*maker, *bufio.Reader) error
}

// Formats lists the formats that [Read] reads.
var Formats = []Format{
	{"sharegpt", "ShareGPT: a JSON list of conversations, each with from and value of its messages", false, readChats},
	{"lmsys", "LMSys-Chat: a JSON object per line, with role and content of the messages of conversation", false, readChats},
	{"swe-agent", "SWE-agent: trajectories as JSON, with role and content of history or messages, or role and text of trajectory", false, readChats},
	{"mooncake", "Mooncake: a JSON object per line, with hash_ids of blocks of 512 tokens, which are shared", true, readBlocks},
	{"burstgpt", "BurstGPT: CSV with Timestamp, Request tokens and Response tokens; lengths only, so that no prefix is shared", true, readLengths},
	{"azure", "Azure LLM inference: CSV with TIMESTAMP, ContextTokens and GeneratedTokens; lengths only, so that no prefix is shared", true, readLengths},
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

// Left counts what [Read] left out.
type Left struct {
	Conversations int // without an answer to a message
	Messages      int // without text, or after the last answer
	Requests      int // without tokens of prompt or output: they failed
}

func (l Left) String() string {
	var parts []string
	for _, x := range []struct {
		n    int
		what string
	}{{l.Conversations, "conversations without an answer"}, {l.Messages, "messages without text or answer"}, {l.Requests, "requests without tokens"}} {
		if x.n > 0 {
			parts = append(parts, fmt.Sprintf("%s: %d", x.what, x.n))
		}
	}
	return strings.Join(parts, "; ")
}

// Read reads the first o.Sessions conversations or requests of a trace in a format; 0: all.
// Conversations have no times: they begin at o.Rate, and turns follow after o.Pause seconds, on
// average. A token is taken for 4 bytes of text there, and equal messages have equal tokens.
func Read(format string, r io.Reader, o Options) (trace []prefix.Request, left Left, err error) {
	i := slices.IndexFunc(Formats, func(f Format) bool { return f.Name == format })
	if i < 0 {
		return nil, left, fmt.Errorf("unknown format %q; use one of %v", format, FormatNames())
	}
	if o.Sessions < 0 {
		return nil, left, fmt.Errorf("%d sessions; there must be at least 1, or 0 for all", o.Sessions)
	}
	if err := o.checkTimes(); err != nil {
		return nil, left, err
	}
	if o.Rate = cmp.Or(o.Rate, 1); o.Pause < 0 {
		o.Pause = Kinds[0].pause
	}
	m := &maker{Options: o, rng: rand.New(rand.NewPCG(o.Seed, 0))}
	text, err := prefix.Text(r)
	if err == nil {
		err = Formats[i].read(m, text)
	}
	switch {
	case err != nil:
		return nil, m.left, err
	case len(m.trace) == 0 && m.left != Left{}:
		return nil, m.left, fmt.Errorf("it has no requests (left out are %v); is it of format %s?", m.left, format)
	case len(m.trace) == 0:
		return nil, m.left, errors.New("it has no requests")
	}
	trace, err = m.sorted()
	return trace, m.left, err
}

// notJSON returns the error of a JSON value that has a number.
func notJSON(what string, n int, err error) error {
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("%s %d: %s is a JSON %s; see the formats in krait simulate trace --help", what, n, cmp.Or(e.Field, "it"), e.Value)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%s %d: the file ends inside it; is it complete?", what, n)
	}
	return fmt.Errorf("%s %d is not JSON: %w", what, n, err)
}

// blockTokens is the tokens of a block in Mooncake's traces.
const blockTokens = 512

// readBlocks reads requests whose prompts are blocks of known hashes.
func readBlocks(m *maker, r *bufio.Reader) error {
	d := json.NewDecoder(r)
	first := map[int64]int32{}
	for n := 1; m.Sessions == 0 || n <= m.Sessions; n++ {
		var x struct {
			Timestamp *float64 `json:"timestamp"` // in ms
			Input     *int     `json:"input_length"`
			Output    *int     `json:"output_length"`
			Hashes    []int64  `json:"hash_ids"`
		}
		switch err := d.Decode(&x); {
		case err == io.EOF:
			return nil
		case err != nil:
			return notJSON("request", n, err)
		case x.Timestamp == nil || x.Input == nil || x.Output == nil:
			return fmt.Errorf("request %d: it must have timestamp, input_length, output_length and hash_ids", n)
		case !(*x.Timestamp >= 0 && *x.Timestamp <= 1000*prefix.MostSeconds):
			return fmt.Errorf("request %d: its timestamp is %g; it must be milliseconds from 0 to %g", n, *x.Timestamp, 1000*prefix.MostSeconds)
		case *x.Output < 0:
			return fmt.Errorf("request %d: its output_length is %d; it must not be negative", n, *x.Output)
		case *x.Input < 1 || len(x.Hashes) != (*x.Input+blockTokens-1)/blockTokens:
			return fmt.Errorf("request %d: %d tokens in %d blocks; a block has %d", n, *x.Input, len(x.Hashes), blockTokens)
		}
		var b prefix.Builder
		for i, h := range x.Hashes {
			if _, ok := first[h]; !ok {
				first[h] = int32(m.next)
				m.next += blockTokens + 1
			}
			b.Append(first[h], min(blockTokens, *x.Input-i*blockTokens))
		}
		if err := m.add(*x.Timestamp/1000, b.Tokens(), *x.Output); err != nil {
			return fmt.Errorf("request %d: %w", n, err)
		}
	}
	return nil
}

var errAllIDs = errors.New("the token ids are used up; read fewer of the first ones (--sessions)")

// add adds a request with an output of its own.
func (m *maker) add(at float64, input prefix.Tokens, output int) error {
	if input.Len()+output > prefix.MaxTokens {
		return fmt.Errorf("it has %d tokens; a request has at most %d", input.Len()+output, prefix.MaxTokens)
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
	if err == io.EOF {
		return errors.New("it is empty; its first line must name the columns")
	} else if err != nil {
		return notCSV(err)
	}
	find := func(names ...string) int {
		return slices.IndexFunc(head, func(s string) bool { return slices.Contains(names, strings.ToLower(strings.TrimSpace(s))) })
	}
	columns := []int{find("timestamp"), find("request tokens", "contexttokens"), find("response tokens", "generatedtokens")}
	if slices.Min(columns) < 0 {
		return fmt.Errorf("its columns are %q; there must be a timestamp and the tokens of prompt and output", head)
	}
	var begin float64
	for m.Sessions == 0 || len(m.trace) < m.Sessions {
		row, err := c.Read()
		if err == io.EOF {
			break
		} else if err != nil {
			return notCSV(err)
		}
		line, _ := c.FieldPos(0)
		at, input, output, err := lengthsOf(row, columns)
		switch {
		case err != nil:
			return fmt.Errorf("line %d: %w", line, err)
		case input == 0 || output == 0:
			m.left.Requests++
			continue
		case len(m.trace) == 0:
			begin = at
		case at < begin:
			return fmt.Errorf("line %d: it is before the first request; sort the lines by time", line)
		}
		if err := m.add(at-begin, m.text(input), output); err != nil {
			return fmt.Errorf("line %d: %w", line, err)
		}
	}
	return nil
}

// notCSV returns an error of package csv with its line.
func notCSV(err error) error {
	if e, ok := errors.AsType[*csv.ParseError](err); ok {
		return fmt.Errorf("line %d is not CSV: %w", e.Line, e.Err)
	}
	return err
}

// lengthsOf reads the time of a row, and its tokens of prompt and output.
func lengthsOf(row []string, columns []int) (at float64, input, output int, err error) {
	if n := slices.Max(columns); len(row) <= n {
		return 0, 0, 0, fmt.Errorf("it has too few columns: %d, and there must be %d", len(row), n+1)
	}
	if at, err = seconds(strings.TrimSpace(row[columns[0]])); err != nil {
		return 0, 0, 0, err
	}
	for i, to := range []*int{&input, &output} {
		text := strings.TrimSpace(row[columns[1+i]])
		n, err := strconv.ParseFloat(text, 64) // some tools write 18.0
		if *to = int(n); err != nil || !(n >= 0 && n <= prefix.MaxTokens) || float64(*to) != n {
			return 0, 0, 0, fmt.Errorf("%.40q is not a number of tokens from 0 to %d", text, prefix.MaxTokens)
		}
	}
	return at, input, output, nil
}

// seconds reads a time: seconds, or a date with a time of day.
func seconds(text string) (float64, error) {
	if s, err := strconv.ParseFloat(text, 64); err == nil && s >= 0 && s <= prefix.MostSeconds {
		return s, nil
	}
	for _, layout := range []string{"2006-01-02 15:04:05", "2006-01-02 15:04:05Z07:00", time.RFC3339} {
		if t, err := time.Parse(layout, text); err == nil {
			return float64(t.UnixMicro()) / 1e6, nil
		}
	}
	return 0, fmt.Errorf("%.40q is no time: it must be seconds from 0 to %g, or a date with a time of day", text, prefix.MostSeconds)
}

package prefix

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// longestLine of a trace, in bytes.
const longestLine = 256 << 20

// MostSeconds bounds the times of requests: a [time.Duration] holds them.
const MostSeconds = 9e9

// foreign are beginnings of files that are no text, and what to do with them.
var foreign = [][2]string{
	{"\x1f\x8b", "compressed by gzip; decompress it first (gzip -d)"},
	{"\x28\xb5\x2f\xfd", "compressed by zstd; decompress it first (zstd -d)"},
	{"PK\x03\x04", "a zip archive; extract it first (unzip)"},
	{"PAR1", "a Parquet file; convert it to JSON first, an object per line"},
	{"\xff\xfe", "UTF-16; convert it to UTF-8 first"},
	{"\xfe\xff", "UTF-16; convert it to UTF-8 first"},
}

// Text returns a reader of a text in UTF-8, without its byte order mark. An error says that it is
// a file of another kind.
func Text(r io.Reader) (*bufio.Reader, error) {
	text := bufio.NewReaderSize(r, 1<<20)
	begin, _ := text.Peek(4) // an error comes again
	for _, f := range foreign {
		if strings.HasPrefix(string(begin), f[0]) {
			return nil, fmt.Errorf("it is %s", f[1])
		}
	}
	if bytes.HasPrefix(begin, []byte("\ufeff")) {
		text.Discard(3)
	}
	return text, nil
}

// ReadTrace reads a request per line, as JSON: {"at": seconds, "input": [...], "output": [...]},
// where a number is a token id, and [first, n] are n consecutive ones. Empty lines are skipped. An
// error names the line.
func ReadTrace(r io.Reader) ([]Request, error) {
	var trace []Request
	var tokens Builder
	text, err := Text(r)
	if err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(text)
	lines.Buffer(nil, longestLine)
	n, last := 0, 0 // lines; the one of the last request
	for lines.Scan() {
		n++
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		x, err := readRequest(lines.Bytes(), &tokens)
		if err == nil && len(trace) > 0 && x.At < trace[len(trace)-1].At {
			err = fmt.Errorf("its time %g is before that of line %d, %g; sort the requests by time", x.At, last, trace[len(trace)-1].At)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		trace, last = append(trace, x), n
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return nil, fmt.Errorf("line %d is longer than %d MiB, the limit", n+1, longestLine>>20)
	case err != nil:
		return nil, err
	case len(trace) == 0:
		return nil, errors.New("it has no requests")
	}
	return trace, nil
}

// readRequest reads a line.
func readRequest(line []byte, b *Builder) (Request, error) {
	var x struct {
		At     *float64 `json:"at"`
		Input  *[1]int  `json:"input"`
		Output *[1]int  `json:"output"`
	}
	line, lists := takeLists(line)
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	err := d.Decode(&x)
	if err == io.ErrUnexpectedEOF {
		err = errors.New("it ends inside the request")
	}
	if err == nil {
		if rest := bytes.TrimSpace(line[d.InputOffset():]); len(rest) > 0 {
			err = fmt.Errorf("after the request there is %.20q; a line is one request", rest)
		}
	}
	switch {
	case err != nil:
		return Request{}, err
	case x.At == nil || x.Input == nil || x.Output == nil:
		return Request{}, errors.New(`a request has "at", "input" and "output"`)
	case *x.At < 0:
		return Request{}, fmt.Errorf(`"at" is %g: times are not negative`, *x.At)
	case *x.At > MostSeconds:
		return Request{}, fmt.Errorf(`"at" is %g: times are seconds, at most %g`, *x.At, MostSeconds)
	}
	*b = Builder{b.ids[:0], b.ends[:0], 0}
	if err := readTokens(lists[x.Input[0]], b); err != nil {
		return Request{}, fmt.Errorf(`"input": %w`, err)
	}
	r := Request{At: *x.At, InputLen: b.Len()}
	if r.InputLen == 0 {
		return Request{}, errors.New(`"input" is empty: a prompt has at least one token`)
	}
	if err := readTokens(lists[x.Output[0]], b); err != nil {
		return Request{}, fmt.Errorf(`"output": %w`, err)
	}
	r.Tokens = b.Tokens()
	return r, nil
}

// takeLists replaces list i of a line by [i]: lists are long, and parsed once.
func takeLists(line []byte) (rest []byte, lists [][]byte) {
	depth, start := 0, 0
	for i, c := range line {
		if c == '[' {
			if depth++; depth == 1 {
				start = i
			}
		}
		if depth == 0 {
			rest = append(rest, c)
		}
		if c == ']' && depth > 0 {
			if depth--; depth == 0 {
				rest = fmt.Appendf(rest, "[%d]", len(lists))
				lists = append(lists, line[start:i+1])
			}
		}
	}
	return rest, lists
}

// readTokens appends a list, whose brackets match.
func readTokens(list []byte, b *Builder) error {
	l := tokenList{text: list[1:]}
	if l.skip(); len(l.text) == 1 {
		return nil
	}
	for n := 0; ; n++ {
		var pair [2]int64
		var err error
		switch l.skip(); l.text[0] {
		case '[':
			pair, err = l.pair()
		default:
			pair[1] = 1
			pair[0], err = l.number()
		}
		first, count := pair[0], pair[1]
		switch {
		case err != nil:
		case first < 0 || first > math.MaxInt32:
			err = fmt.Errorf("token id %d is not from 0 to %d", first, math.MaxInt32)
		case count < 1:
			err = fmt.Errorf("[%d, %d] is not a run: it has at least one token", first, count)
		case count > MaxTokens-int64(b.Len()):
			err = fmt.Errorf("input and output have more than %d tokens", MaxTokens)
		case first+count-1 > math.MaxInt32:
			err = fmt.Errorf("[%d, %d] goes past token id %d", first, count, math.MaxInt32)
		}
		if err != nil {
			return fmt.Errorf("element %d: %w", n, err)
		}
		b.Append(int32(first), int(count))
		if l.skip(); len(l.text) == 1 {
			return nil
		}
		if l.text[0] != ',' {
			return fmt.Errorf("after element %d there is no comma", n)
		}
		l.text = l.text[1:]
	}
}

// tokenList is what is left of a list, up to its last bracket.
type tokenList struct{ text []byte }

// skip takes white space.
func (l *tokenList) skip() {
	for l.text[0] <= ' ' {
		l.text = l.text[1:]
	}
}

// number takes an integer.
func (l *tokenList) number() (int64, error) {
	n, value := 0, int64(0)
	for ; n < 18 && '0' <= l.text[n] && l.text[n] <= '9'; n++ {
		value = 10*value + int64(l.text[n]-'0')
	}
	if end := l.text[n]; n > 0 && (end == ',' || end == ']' || end <= ' ') {
		l.text = l.text[n:]
		return value, nil
	}
	end := bytes.IndexAny(l.text, ", \t\r\n]")
	value, err := strconv.ParseInt(string(l.text[:end]), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%.20s is not a token id, and no [first, n]", l.text[:end])
	}
	l.text = l.text[end:]
	return value, nil
}

// pair takes [first, n].
func (l *tokenList) pair() (pair [2]int64, err error) {
	whole := l.text
	l.text = l.text[1:]
	for i := range pair {
		if l.skip(); i == 1 && l.text[0] == ',' {
			l.text = l.text[1:]
			l.skip()
		}
		if pair[i], err = l.number(); err != nil {
			break
		}
	}
	if l.skip(); err != nil || l.text[0] != ']' {
		end := bytes.IndexByte(whole, ']')
		return pair, fmt.Errorf("%.40s is not a run: one is [first, n]", whole[:end+1])
	}
	l.text = l.text[1:]
	return pair, nil
}

package prefix

import (
	"io"
	"strconv"
)

// WriteTrace writes a request per line, as [ReadTrace] reads them: tokens with consecutive
// ids as runs.
func WriteTrace(w io.Writer, trace []Request) error {
	var line []byte
	for _, r := range trace {
		line = strconv.AppendFloat(append(line[:0], `{"at": `...), r.At, 'g', -1, 64)
		line = r.Tokens.appendList(append(line, `, "input": [`...), 0, r.InputLen)
		line = r.Tokens.appendList(append(line, `], "output": [`...), r.InputLen, r.Tokens.n)
		if _, err := w.Write(append(line, "]}\n"...)); err != nil {
			return err
		}
	}
	return nil
}

// appendList writes tokens from…to−1.
func (t Tokens) appendList(line []byte, from, to int) []byte {
	for at := from; at < to; {
		first, n := t.consecutive(at, to)
		if at > from {
			line = append(line, ", "...)
		}
		if n == 1 {
			line = strconv.AppendInt(line, int64(first), 10)
		} else {
			line = strconv.AppendInt(append(line, '['), int64(first), 10)
			line = append(strconv.AppendInt(append(line, ", "...), int64(n), 10), ']')
		}
		at += n
	}
	return line
}

// consecutive is the run that begins at token at and ends before to: its first id, and
// how many tokens it has.
func (t Tokens) consecutive(at, to int) (first int32, n int) {
	r := t.run(at)
	first = t.id(r, at)
	n = min(t.end(r), to) - at
	if t.ends == nil {
		for at+n < to && t.ids[at+n]-first == int32(n) {
			n++
		}
	}
	return first, n
}

// AppendTokens adds a sequence.
func (b *Builder) AppendTokens(t Tokens) {
	for at := 0; at < t.n; {
		first, n := t.consecutive(at, t.n)
		b.Append(first, n)
		at += n
	}
}

package jinja

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// widest is how wide a field of a format may be.
const widest = 1000

// format is text % args, as Python has it, for %s, %r, %d, %i, %f, %e, %g, %x, %X, %o, %c and %%.
func (s *state) format(t string, args any) any {
	list, ok := args.(tuple)
	if !ok {
		list = tuple{args}
	}
	var w writer
	next := 0
	for {
		i := strings.IndexByte(t, '%')
		if i < 0 {
			break
		}
		s.put(&w, t[:i])
		t = t[i+1:]
		n := strings.IndexFunc(t, func(r rune) bool { return !strings.ContainsRune("0123456789.+- #", r) })
		if n < 0 {
			panic(errors.New("a format ends after %"))
		}
		flags, verb := t[:n], t[n]
		t = t[n+1:]
		if verb == '%' {
			w.WriteByte('%')
			continue
		}
		if next >= len(list) {
			panic(errors.New("a format has too few arguments"))
		}
		s.put(&w, s.formatted(flags, verb, list[next]))
		next++
	}
	if next < len(list) {
		if _, dict := args.(*Dict); !dict {
			panic(errors.New("a format has too many arguments"))
		}
	}
	s.makes(w.Len() + len(t))
	return w.String() + t
}

func (s *state) formatted(flags string, verb byte, v any) string {
	for _, n := range strings.FieldsFunc(flags, func(r rune) bool { return r < '0' || r > '9' }) {
		if wide, err := strconv.Atoi(n); err != nil || wide > widest {
			panic(fmt.Errorf("a field is %s wide; the limit is %d", n, widest))
		}
	}
	switch verb {
	case 's', 'r':
		var w writer
		s.repr(&w, v, 0, verb == 'r')
		return fmt.Sprintf("%"+flags+"s", w.String())
	case 'd', 'i', 'u', 'x', 'X', 'o', 'c':
		n, ok := numeric(v)
		if !ok {
			panic(fmt.Errorf("%%%c is for a number, and has %s", verb, kindOf(v)))
		}
		whole := int(n)
		if x, ok := v.(int); ok {
			whole = x
		}
		if verb == 'i' || verb == 'u' {
			verb = 'd'
		}
		return fmt.Sprintf("%"+flags+string(verb), whole)
	case 'f', 'F', 'e', 'E', 'g', 'G':
		n, ok := numeric(v)
		if !ok {
			panic(fmt.Errorf("%%%c is for a number, and has %s", verb, kindOf(v)))
		}
		return fmt.Sprintf("%"+flags+string(verb), n)
	}
	panic(fmt.Errorf("%%%c is not supported in a format", verb))
}

// strftime formats a time as C does, in the C locale.
func strftime(t time.Time, format string) string {
	layouts := map[byte]string{'a': "Mon", 'A': "Monday", 'b': "Jan", 'h': "Jan", 'B': "January", 'd': "02", 'e': "_2", 'm': "01", 'y': "06", 'Y': "2006",
		'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM", 'z': "-0700", 'Z': "MST", 'F': "2006-01-02", 'T': "15:04:05", 'R': "15:04", 'D': "01/02/06",
		'c': "Mon Jan _2 15:04:05 2006", 'x': "01/02/06", 'X': "15:04:05", 'f': "000000"}
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		bare := false
		if format[i] == '-' && i+1 < len(format) { // without the leading zero
			bare = true
			i++
		}
		var out string
		switch layout, ok := layouts[format[i]]; {
		case format[i] == '%':
			out = "%"
		case format[i] == 'n':
			out = "\n"
		case format[i] == 'j':
			out = fmt.Sprintf("%03d", t.YearDay())
		case format[i] == 'w':
			out = strconv.Itoa(int(t.Weekday()))
		case format[i] == 'u':
			out = strconv.Itoa((int(t.Weekday())+6)%7 + 1)
		case format[i] == 's':
			out = strconv.FormatInt(t.Unix(), 10)
		case format[i] == 'f':
			out = fmt.Sprintf("%06d", t.Nanosecond()/1000)
		case ok:
			out = t.Format(layout)
		default:
			r, _ := utf8.DecodeRuneInString(format[i:])
			panic(fmt.Errorf("%%%c is not supported", r))
		}
		if bare {
			if out = strings.TrimLeft(out, "0 "); out == "" {
				out = "0"
			}
		}
		b.WriteString(out)
	}
	return b.String()
}

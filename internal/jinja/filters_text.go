package jinja

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// texts is a filter of a function of texts.
func texts(f func(string) string) filter {
	return func(s *state, v any, a call) any {
		a.want("")
		t := s.text(v)
		s.makes(2 * len(t))
		return f(t)
	}
}

func capitalize(t string) string {
	r, n := utf8.DecodeRuneInString(t)
	if n == 0 {
		return t
	}
	return string(unicode.ToTitle(r)) + strings.ToLower(t[n:])
}

func title(t string) string {
	inside := false
	return strings.Map(func(r rune) rune {
		letter := unicode.IsLetter(r) || unicode.IsDigit(r) || r == '\''
		defer func() { inside = letter }()
		if inside {
			return unicode.ToLower(r)
		}
		return unicode.ToTitle(r)
	}, t)
}

func center(s *state, v any, a call) any {
	var width any = 80
	a.want("width", &width)
	n, ok := width.(int)
	t := s.text(v)
	if !ok {
		panic(errors.New("its width is a number"))
	}
	missing := max(max(n, 0)-utf8.RuneCountInString(t), 0)
	left := missing/2 + missing&n&1 // as Python does
	s.makes(len(t))
	return s.repeat(" ", left) + t + s.repeat(" ", missing-left)
}

func formatFilter(s *state, v any, a call) any {
	t := s.text(v)
	if len(a.named) > 0 {
		panic(errors.New("arguments with names are not supported"))
	}
	return s.format(t, tuple(a.args))
}

func indentFilter(s *state, v any, a call) any {
	var width, firstToo, blank any = 4, false, false
	a.want("width first blank", &width, &firstToo, &blank)
	t := s.text(v)
	by, ok := width.(string)
	if n, isInt := width.(int); isInt {
		by, ok = s.repeat(" ", n), true
	}
	if !ok {
		panic(errors.New("its width is a number or a string"))
	}
	var b strings.Builder
	for i, line := range strings.Split(t, "\n") {
		if i > 0 {
			b.WriteByte('\n')
		}
		if (i > 0 || truth(firstToo)) && (line != "" || truth(blank)) {
			s.makes(len(by))
			b.WriteString(by)
		}
		b.WriteString(line)
	}
	s.makes(17*(1+strings.Count(t, "\n")) + len(t))
	return b.String()
}

func replace(s *state, v any, a call) any {
	var old, with, count any = nil, nil, nil
	a.want("old new count", &old, &with, &count)
	t := s.text(v)
	from, ok1 := old.(string)
	to, ok2 := with.(string)
	if !ok1 || !ok2 {
		panic(errors.New("it needs two strings"))
	}
	n, limited := count.(int)
	if !limited {
		n = -1
	}
	return s.replaced(t, from, to, n)
}

// replaced is a text in which the first n places have another, or all where n is below 0.
func (s *state) replaced(t, from, to string, n int) any {
	s.reads(len(t))
	places := strings.Count(t, from)
	if n >= 0 {
		places = min(places, n)
	}
	if len(to) > 0 && places > s.limits.Memory/len(to) {
		panic(errMemory)
	}
	s.makes(len(t) + places*len(to))
	return strings.Replace(t, from, to, n)
}

func trim(s *state, v any, a call) any {
	var chars any
	a.want("chars", &chars)
	return strip(s, s.text(v), chars, true, true)
}

// strip takes white space, or other characters, off the ends of a text.
func strip(s *state, t string, chars any, left, right bool) any {
	is := space
	switch c := chars.(type) {
	case nil:
	case string:
		is = func(r rune) bool { return strings.ContainsRune(c, r) }
		s.reads(len(c) * len(t))
	default:
		panic(fmt.Errorf("%s is stripped off a string", kindOf(chars)))
	}
	if left {
		t = strings.TrimLeftFunc(t, is)
	}
	if right {
		t = strings.TrimRightFunc(t, is)
	}
	s.makes(len(t))
	return t
}

func truncate(s *state, v any, a call) any {
	var limit, kill, end, leeway any = 255, false, "...", 5
	a.want("length killwords end leeway", &limit, &kill, &end, &leeway)
	t := s.text(v)
	n, ok1 := limit.(int)
	tail, ok2 := end.(string)
	slack, ok3 := leeway.(int)
	if !ok1 || !ok2 || !ok3 || n < utf8.RuneCountInString(tail) || slack < 0 {
		panic(errors.New("it needs a length, not below that of its end"))
	}
	r := []rune(t)
	s.makes(5 * len(t))
	if len(r)-slack <= n {
		return t
	}
	t = string(r[:n-utf8.RuneCountInString(tail)])
	if i := strings.LastIndexByte(t, ' '); i >= 0 && !truth(kill) {
		t = t[:i]
	}
	return t + tail
}

func wordCount(s *state, v any, a call) any {
	a.want("")
	t := s.text(v)
	s.makes(16 * len(t))
	return len(strings.FieldsFunc(t, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_' }))
}

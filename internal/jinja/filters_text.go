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
	return func(s *state, v any, a call) (any, error) {
		if err := a.want(""); err != nil {
			return nil, err
		}
		t, err := s.text(v)
		if err != nil {
			return nil, err
		}
		return f(t), s.makes(2 * len(t))
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

func center(s *state, v any, a call) (any, error) {
	var width any = 80
	if err := a.want("width", &width); err != nil {
		return nil, err
	}
	n, ok := width.(int)
	t, err := s.text(v)
	if err != nil || !ok {
		return nil, errors.Join(err, errors.New("its width is a number"))
	}
	missing := max(max(n, 0)-utf8.RuneCountInString(t), 0)
	left := missing/2 + missing&n&1 // as Python does
	before, err := s.repeat(" ", left)
	if err != nil {
		return nil, err
	}
	after, err := s.repeat(" ", missing-left)
	if err != nil {
		return nil, err
	}
	return before.(string) + t + after.(string), s.makes(len(t))
}

func formatFilter(s *state, v any, a call) (any, error) {
	t, err := s.text(v)
	if err != nil {
		return nil, err
	}
	if len(a.named) > 0 {
		return nil, errors.New("arguments with names are not supported")
	}
	return s.format(t, tuple(a.args))
}

func indentFilter(s *state, v any, a call) (any, error) {
	var width, firstToo, blank any = 4, false, false
	if err := a.want("width first blank", &width, &firstToo, &blank); err != nil {
		return nil, err
	}
	t, err := s.text(v)
	if err != nil {
		return nil, err
	}
	by, ok := width.(string)
	if n, isInt := width.(int); isInt {
		x, err := s.repeat(" ", n)
		if err != nil {
			return nil, err
		}
		by, ok = x.(string), true
	}
	if !ok {
		return nil, errors.New("its width is a number or a string")
	}
	var b strings.Builder
	for i, line := range strings.Split(t, "\n") {
		if i > 0 {
			b.WriteByte('\n')
		}
		if (i > 0 || truth(firstToo)) && (line != "" || truth(blank)) {
			if err := s.makes(len(by)); err != nil {
				return nil, err
			}
			b.WriteString(by)
		}
		b.WriteString(line)
	}
	return b.String(), s.makes(17*(1+strings.Count(t, "\n")) + len(t))
}

func replace(s *state, v any, a call) (any, error) {
	var old, with, count any = nil, nil, nil
	if err := a.want("old new count", &old, &with, &count); err != nil {
		return nil, err
	}
	t, err := s.text(v)
	if err != nil {
		return nil, err
	}
	from, ok1 := old.(string)
	to, ok2 := with.(string)
	if !ok1 || !ok2 {
		return nil, errors.New("it needs two strings")
	}
	n, limited := count.(int)
	if !limited {
		n = -1
	}
	return s.replaced(t, from, to, n)
}

// replaced is a text in which the first n places have another, or all where n is below 0.
func (s *state) replaced(t, from, to string, n int) (any, error) {
	if err := s.reads(len(t)); err != nil {
		return nil, err
	}
	places := strings.Count(t, from)
	if n >= 0 {
		places = min(places, n)
	}
	if len(to) > 0 && places > s.limits.Memory/len(to) {
		return nil, errMemory
	}
	if err := s.makes(len(t) + places*len(to)); err != nil {
		return nil, err
	}
	return strings.Replace(t, from, to, n), nil
}

func trim(s *state, v any, a call) (any, error) {
	var chars any
	if err := a.want("chars", &chars); err != nil {
		return nil, err
	}
	t, err := s.text(v)
	if err != nil {
		return nil, err
	}
	return strip(s, t, chars, true, true)
}

// strip takes white space, or other characters, off the ends of a text.
func strip(s *state, t string, chars any, left, right bool) (any, error) {
	is := space
	switch c := chars.(type) {
	case nil:
	case string:
		is = func(r rune) bool { return strings.ContainsRune(c, r) }
		if err := s.reads(len(c) * len(t)); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("%s is stripped off a string", kindOf(chars))
	}
	if left {
		t = strings.TrimLeftFunc(t, is)
	}
	if right {
		t = strings.TrimRightFunc(t, is)
	}
	return t, s.makes(len(t))
}

func truncate(s *state, v any, a call) (any, error) {
	var limit, kill, end, leeway any = 255, false, "...", 5
	if err := a.want("length killwords end leeway", &limit, &kill, &end, &leeway); err != nil {
		return nil, err
	}
	t, err := s.text(v)
	if err != nil {
		return nil, err
	}
	n, ok1 := limit.(int)
	tail, ok2 := end.(string)
	slack, ok3 := leeway.(int)
	if !ok1 || !ok2 || !ok3 || n < utf8.RuneCountInString(tail) || slack < 0 {
		return nil, errors.New("it needs a length, not below that of its end")
	}
	r := []rune(t)
	if err := s.makes(5 * len(t)); err != nil {
		return nil, err
	}
	if len(r)-slack <= n {
		return t, nil
	}
	t = string(r[:n-utf8.RuneCountInString(tail)])
	if i := strings.LastIndexByte(t, ' '); i >= 0 && !truth(kill) {
		t = t[:i]
	}
	return t + tail, nil
}

func wordCount(s *state, v any, a call) (any, error) {
	t, err := s.text(v)
	if err != nil {
		return nil, err
	}
	return len(strings.FieldsFunc(t, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_' })), errors.Join(s.makes(16*len(t)), a.want(""))
}

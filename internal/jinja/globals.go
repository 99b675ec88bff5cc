package jinja

import (
	"errors"
	"fmt"
	"iter"
)

// longestRange is that of Jinja's sandbox.
const longestRange = 100_000

// globals are what every template has.
var globals = map[string]any{
	"range":           function{"range", rangeOf},
	"namespace":       function{"namespace", newNamespace},
	"dict":            function{"dict", newDict},
	"raise_exception": function{"raise_exception", raise},
	"strftime_now":    function{"strftime_now", now},
	"joiner":          function{"joiner", joiner},
	"cycler":          function{"cycler", cycler},
}

func rangeOf(s *state, a call) (any, error) {
	from, to, step := 0, 0, 1
	var n [3]int
	for i, v := range a.args {
		x, ok := v.(int)
		if !ok || i == 3 {
			return nil, errors.New("range: it takes one to three integers")
		}
		n[i] = x
	}
	switch len(a.args) {
	case 1:
		to = n[0]
	case 2:
		from, to = n[0], n[1]
	case 3:
		from, to, step = n[0], n[1], n[2]
	}
	if len(a.args) == 0 || len(a.named) > 0 || step == 0 {
		return nil, errors.New("range: it takes one to three integers, the third not 0")
	}
	out := []any{}
	for i := range steps(from, to, step) {
		if len(out) == longestRange {
			return nil, fmt.Errorf("range: it has more than %d items", longestRange)
		}
		out = append(out, i)
	}
	return out, s.makes(16 * len(out))
}

// steps counts as Python's range does; step is not 0.
func steps(from, to, step int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := from; step > 0 && i < to || step < 0 && i > to; {
			next := i + step
			if !yield(i) || (next > i) != (step > 0) { // past the largest integer
				return
			}
			i = next
		}
	}
}

func newNamespace(s *state, a call) (any, error) {
	d, err := newDict(s, a)
	if err != nil {
		return nil, err
	}
	return &namespace{d.(*Dict)}, nil
}

func newDict(s *state, a call) (any, error) {
	d := NewDict()
	if len(a.args) > 1 {
		return nil, errors.New("dict: it takes one dictionary, and arguments with names")
	}
	for _, v := range a.args {
		of, ok := v.(*Dict)
		if !ok {
			return nil, fmt.Errorf("dict: it takes a dictionary, and not %s", kindOf(v))
		}
		for _, k := range of.keys {
			d.set(k, of.values[k])
		}
	}
	for _, n := range a.named {
		d.Set(n.name, n.v)
	}
	return d, s.makes(64 * len(d.keys))
}

func raise(s *state, a call) (any, error) {
	var message any = ""
	if err := a.want("message", &message); err != nil {
		return nil, err
	}
	t, err := s.text(message)
	if err != nil {
		return nil, err
	}
	return nil, &Raised{t}
}

func now(s *state, a call) (any, error) {
	format, err := oneText(a)
	if err == nil {
		err = s.makes(64 * len(format))
	}
	if err != nil {
		return nil, named("strftime_now", err)
	}
	t, err := strftime(s.now(), format)
	return t, err
}

// joiner gives nothing when it is called first, and then its text.
func joiner(_ *state, a call) (any, error) {
	var sep any = ", "
	if err := a.want("sep", &sep); err != nil {
		return nil, err
	}
	used := false
	return function{"joiner", func(*state, call) (any, error) {
		if !used {
			used = true
			return "", nil
		}
		return sep, nil
	}}, nil
}

// cycler is a namespace with what gives its items in turns.
func cycler(_ *state, a call) (any, error) {
	if len(a.args) == 0 {
		return nil, errors.New("cycler: it needs an item")
	}
	at := -1
	ns := &namespace{NewDict()}
	ns.Set("next", function{"cycler.next", func(*state, call) (any, error) {
		at++
		return a.args[at%len(a.args)], nil
	}})
	ns.Set("reset", function{"cycler.reset", func(*state, call) (any, error) {
		at = -1
		return nil, nil
	}})
	return ns, nil
}

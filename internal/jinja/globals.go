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

func rangeOf(s *state, a call) any {
	var n [3]int
	for i, v := range a.args {
		x, ok := v.(int)
		if !ok || i == 3 {
			panic(errors.New("range: it takes one to three integers"))
		}
		n[i] = x
	}
	from, to, step := 0, n[0], 1
	switch len(a.args) {
	case 2:
		from, to = n[0], n[1]
	case 3:
		from, to, step = n[0], n[1], n[2]
	}
	if len(a.args) == 0 || len(a.named) > 0 || step == 0 {
		panic(errors.New("range: it takes one to three integers, the third not 0"))
	}
	out := []any{}
	for i := range steps(from, to, step) {
		if len(out) == longestRange {
			panic(fmt.Errorf("range: it has more than %d items", longestRange))
		}
		out = append(out, i)
	}
	s.makes(16 * len(out))
	return out
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

func newNamespace(s *state, a call) any {
	return &namespace{newDict(s, a).(*Dict)}
}

func newDict(s *state, a call) any {
	d := NewDict()
	if len(a.args) > 1 {
		panic(errors.New("dict: it takes one dictionary, and arguments with names"))
	}
	for _, v := range a.args {
		of, ok := v.(*Dict)
		if !ok {
			panic(fmt.Errorf("dict: it takes a dictionary, and not %s", kindOf(v)))
		}
		for _, k := range of.keys {
			d.set(k, of.values[k])
		}
	}
	for _, n := range a.named {
		d.Set(n.name, n.v)
	}
	s.makes(64 * len(d.keys))
	return d
}

func raise(s *state, a call) any {
	var message any = ""
	a.want("message", &message)
	panic(&Raised{s.text(message)})
}

func now(s *state, a call) any {
	defer naming("strftime_now")
	format := oneText(a)
	s.makes(64 * len(format))
	return strftime(s.now(), format)
}

// joiner gives nothing when it is called first, and then its text.
func joiner(_ *state, a call) any {
	var sep any = ", "
	a.want("sep", &sep)
	used := false
	return function{"joiner", func(*state, call) any {
		if !used {
			used = true
			return ""
		}
		return sep
	}}
}

// cycler is a namespace with what gives its items in turns.
func cycler(_ *state, a call) any {
	if len(a.args) == 0 {
		panic(errors.New("cycler: it needs an item"))
	}
	at := -1
	ns := &namespace{NewDict()}
	ns.Set("next", function{"cycler.next", func(*state, call) any {
		at++
		return a.args[at%len(a.args)]
	}})
	ns.Set("reset", function{"cycler.reset", func(*state, call) any {
		at = -1
		return nil
	}})
	return ns
}

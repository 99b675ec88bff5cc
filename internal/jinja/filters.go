package jinja

import (
	"errors"
	"fmt"
	"html"
	"strings"
	"unicode/utf8"
)

// filter changes a value.
type filter func(s *state, v any, a call) any

// filters maps names to filters. init fills it, since some filters look up others.
var filters map[string]filter

func init() {
	filters = map[string]filter{
		"abs": absolute, "attr": attr, "batch": batch, "capitalize": texts(capitalize), "center": center, "count": length, "d": orDefault, "default": orDefault,
		"dictsort": dictSort, "e": texts(html.EscapeString), "escape": texts(html.EscapeString), "first": first, "float": toFloat, "format": formatFilter, "indent": indentFilter,
		"int": toInt, "items": items, "join": join, "last": last, "length": length, "list": toList, "lower": texts(strings.ToLower), "map": mapFilter,
		"max": best(1), "min": best(-1), "reject": selecting(false, false), "rejectattr": selecting(true, false), "replace": replace, "reverse": reverse,
		"round": round, "safe": texts(func(t string) string { return t }), "select": selecting(false, true), "selectattr": selecting(true, true), "sort": sortFilter, "string": texts(func(t string) string { return t }),
		"sum": sum, "title": texts(title), "tojson": toJSON, "trim": trim, "truncate": truncate, "unique": unique, "upper": texts(strings.ToUpper), "wordcount": wordCount,
	}
}

func attr(s *state, v any, a call) any {
	var name any
	a.want("name", &name)
	t, ok := name.(string)
	if !ok {
		panic(errors.New("it needs a name"))
	}
	return s.attribute(v, t)
}

func length(s *state, v any, a call) any {
	a.want("")
	switch v := v.(type) {
	case string:
		s.reads(len(v))
		return utf8.RuneCountInString(v)
	case *Dict:
		return len(v.keys)
	case undefined:
		return 0
	}
	if list, ok := sequence(v); ok {
		return len(list)
	}
	panic(fmt.Errorf("%s has no length", kindOf(v)))
}

func orDefault(_ *state, v any, a call) any {
	var def, boolean any = "", false
	a.want("default_value boolean", &def, &boolean)
	if _, not := v.(undefined); not || truth(boolean) && !truth(v) {
		return def
	}
	return v
}

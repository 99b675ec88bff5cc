package jinja

import (
	"errors"
	"fmt"
	"html"
	"strings"
	"unicode/utf8"
)

// filter changes a value.
type filter func(s *state, v any, a call) (any, error)

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

func attr(s *state, v any, a call) (any, error) {
	var name any
	if err := a.want("name", &name); err != nil {
		return nil, err
	}
	t, ok := name.(string)
	if !ok {
		return nil, errors.New("it needs a name")
	}
	return s.attribute(v, t)
}

func length(s *state, v any, a call) (any, error) {
	if err := a.want(""); err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case string:
		return utf8.RuneCountInString(v), s.reads(len(v))
	case *Dict:
		return len(v.keys), nil
	case undefined:
		return 0, nil
	}
	if list, ok := sequence(v); ok {
		return len(list), nil
	}
	return nil, fmt.Errorf("%s has no length", kindOf(v))
}

func orDefault(_ *state, v any, a call) (any, error) {
	var def, boolean any = "", false
	if err := a.want("default_value boolean", &def, &boolean); err != nil {
		return nil, err
	}
	if _, not := v.(undefined); not || truth(boolean) && !truth(v) {
		return def, nil
	}
	return v, nil
}

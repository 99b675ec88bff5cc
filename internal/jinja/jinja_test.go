package jinja

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

// TestCases: what Jinja2 makes of templates; testdata/make.py asked it.
func TestCases(t *testing.T) {
	text, err := os.ReadFile("testdata/cases.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Vars  json.RawMessage
		Cases []struct{ Template, Want, Error string }
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	vars := varsOf(t, string(file.Vars))
	for _, c := range file.Cases {
		got, err := render(c.Template, vars)
		if (err != nil) != (c.Error != "") || got != c.Want {
			t.Errorf("%s\n got %q (%v)\nwant %q %s", c.Template, got, err, c.Want, c.Error)
		}
	}
}

// TestFromJSON: a text is one value, whole.
func TestFromJSON(t *testing.T) {
	for text, want := range map[string]string{
		"":        "unexpected end",
		"{":       "unexpected end",
		"[1]]":    "invalid character ']' after top-level value",
		"1 2":     "invalid character '2' after top-level value",
		"[1e999]": "out of range",
		strings.Repeat("[", 300) + strings.Repeat("]", 300): "too deep",
		` {"b": [1, 2.5, null], "a": 1e2} `:                 "",
	} {
		v, err := FromJSON([]byte(text))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.20s: %v, %v; want %q", text, v, err, want)
		}
	}
}

func varsOf(t testing.TB, text string) map[string]any {
	t.Helper()
	v, err := FromJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	vars := map[string]any{}
	for _, k := range v.(*Dict).keys {
		vars[k.(string)] = v.(*Dict).values[k]
	}
	return vars
}

func render(source string, vars map[string]any) (string, error) {
	t, err := Parse(source)
	if err != nil {
		return "", err
	}
	return t.Render(vars, Limits{Now: func() time.Time { return time.Date(2026, 3, 5, 7, 8, 9, 0, time.UTC) }})
}

// TestHostile: templates that would take for ever, all memory, or the stack, end with an
// error, soon.
func TestHostile(t *testing.T) {
	deep := func(open, inner, close string, n int) string {
		return strings.Repeat(open, n) + inner + strings.Repeat(close, n)
	}
	nested := strings.Repeat("{% for i in range(99999) %}", 6) + strings.Repeat("{% endfor %}", 6)
	for name, c := range map[string]struct{ template, want string }{
		"a long range":        {"{% for i in range(1000000000000) %}{% endfor %}", "range: it has more than 100000 items"},
		"the longest":         {"{{ range(-9223372036854775807, 9223372036854775807, 9223372036854775807) }}{{ range(9223372036854775807)|length }}", "range: it has more than"},
		"loops in loops":      {nested, "more work than"},
		"a macro":             {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "too deep"},
		"two macros":          {"{% macro f(n) %}{{ g(n) }}{% endmacro %}{% macro g(n) %}{{ f([n]) }}{% endmacro %}{{ f(1) }}", "too deep"},
		"a tree of macros":    {"{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(90) }}", "more work than"},
		"a loop in itself":    {"{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}", "too deep"},
		"a product":           {"{{ ('x' * 10000000000)|length }}", "more text than"},
		"a list's product":    {"{{ ([1] * 10000000000)|length }}", "more text than"},
		"a negative product":  {"{{ ('x' * -5) + 'x' * 9223372036854775807 }}", "more text than"},
		"doubling":            {"{% set ns = namespace(a='x') %}{% for i in range(60) %}{% set ns.a = ns.a ~ ns.a %}{% endfor %}", "more"},
		"doubling by set":     {"{% set ns = namespace(a='xx') %}{% for i in range(60) %}{% set x %}{{ ns.a }}{{ ns.a }}{% endset %}{% set ns.a = x %}{% endfor %}", "more"},
		"doubling lists":      {"{% set ns = namespace(a=[1]) %}{% for i in range(60) %}{% set ns.a = ns.a + ns.a %}{% endfor %}", "more"},
		"sharing lists":       {"{% set ns = namespace(a=[1]) %}{% for i in range(60) %}{% set ns.a = [ns.a, ns.a] %}{% endfor %}{{ ns.a }}", "more"},
		"sharing, compared":   {"{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(60) %}{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}{% endfor %}{{ ns.a == ns.b }}", "more work"},
		"sharing, as JSON":    {"{% set ns = namespace(a={'k': 1}) %}{% for i in range(60) %}{% set ns.a = {'a': ns.a, 'b': ns.a} %}{% endfor %}{{ ns.a|tojson }}", "more"},
		"a deep list":         {"{% set ns = namespace(a=[]) %}{% for i in range(9999) %}{% set ns.a = [ns.a] %}{% endfor %}{{ ns.a }}", "too deep"},
		"a deep comparison":   {"{% set ns = namespace(a=[], b=[]) %}{% for i in range(9999) %}{% set ns.a = [ns.a] %}{% set ns.b = [ns.b] %}{% endfor %}{{ ns.a == ns.b }}", "too deep"},
		"replacing":           {"{% set x = 'a' * 100000 %}{{ x|replace('a', x)|length }}", "more text than"},
		"replacing nothing":   {"{% set x = 'a' * 100000 %}{{ x.replace('', x)|length }}", "more text than"},
		"joining":             {"{% set x = 'a' * 100000 %}{{ x.join(range(100000)|map('string')|list)|length }}", "more"},
		"an indent":           {"{{ 'a\\nb'|indent(100000000000) }}", "more text than"},
		"a wide indent":       {"{{ ('a\\n' * 1000000)|indent(1000000) }}", "more work than"},
		"a centre":            {"{{ 'a'|center(100000000000) }}", "more text than"},
		"a format":            {"{{ '%9999999999d' % 1 }}", "wide"},
		"a precision":         {"{{ '%.99999999f' % 1.5 }}", "wide"},
		"a power":             {"{{ 9 ** 9 ** 9 ** 9 }}", "too large"},
		"a long power":        {"{{ 1 ** 9223372036854775807 + 0 ** 9223372036854775807 }}{{ 2 ** 63 }}", "too large"},
		"the lowest, negated": {"{{ -(-9223372036854775807 - 1) }}", "too large"},
		"the lowest, divided": {"{{ (-9223372036854775807 - 1) // -1 }}", "too large"},
		"a zfill":             {"{{ 'a'.zfill(99999999999) }}", "width"},
		"a batch":             {"{{ [1]|batch(9223372036854775807, 'x')|list }}", "more text than"},
		"output":              {"{% set x = 'x' * 1000000 %}{% for i in range(99999) %}{{ x }}{% endfor %}", "more"},
		"brackets":            {"{{ " + deep("(", "1", ")", 10_000) + " }}", "nested"},
		"lists":               {"{{ " + deep("[", "1", "]", 10_000) + " }}", "nested"},
		"nots":                {"{{ " + strings.Repeat("not ", 100_000) + "x }}", "nested"},
		"signs":               {"{{ " + strings.Repeat("-", 100_000) + "1 }}", "nested"},
		"fields":              {"{{ x" + strings.Repeat(".a", 100_000) + " }}", "nested"},
		"calls":               {"{{ x" + strings.Repeat("()", 100_000) + " }}", "nested"},
		"filters":             {"{{ x" + strings.Repeat("|trim", 100_000) + " }}", "nested"},
		"sums":                {"{{ 1" + strings.Repeat("+1", 400_000) + " }}", "nested"},
		"ors":                 {"{{ x" + strings.Repeat(" or x", 150_000) + " }}", "nested"},
		"ifs":                 {strings.Repeat("{% if x %}", 10_000), "nested"},
		"elses":               {"{{ " + strings.Repeat("1 if x else ", 50_000) + "1 }}", "nested"},
		"conditions":          {"{{ 1 if 1" + strings.Repeat(" if 1", 50_000) + " }}", "nested"},
		"a long template":     {strings.Repeat("x", 2<<20), "a template of 2097152 bytes"},
		"files":               {"{% include '/etc/passwd' %}", "include is not supported"},
		"Python's insides":    {"{{ ''.__class__.__mro__ }}", "undefined"},
		"globals":             {"{{ raise_exception.__globals__.os }}", "undefined"},
		"tojson's indent":     {"{{ [[1]]|tojson(indent=99999999) }}", "indent"},
		"a loop's text":       {"{% for i in [1] %}{{ loop }}{{ range }}{{ namespace() }}{% endfor %}{{ x.y }}", "undefined"},
		"sorting":             {"{% for i in range(99999) %}{% set x = range(99999)|sort(reverse=true) %}{% endfor %}", "more"},
		"stripping":           {"{% set x = 'a' * 1000000 %}{{ x|trim(x) }}", "more work"},
		"mapping maps":        {"{{ [[1]]|map('map', 'nosuch')|list }}", "there is no filter"},
		"a scope":             {"{% for i in range(99999) %}{% for j in range(99999) %}{% set x = i %}{% endfor %}{% endfor %}", "more"},
		"changing messages":   {"{% set x = messages.append(1) %}", "would change"},
	} {
		got, err := limited(c.template, Limits{Work: 300_000})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %.100q, %v; want an error with %q", name, got, err, c.want)
		}
	}
	if _, err := limited(nested, Limits{}); err == nil || !strings.Contains(err.Error(), "more work than") {
		t.Error(err)
	}
}

func limited(source string, l Limits) (string, error) {
	t, err := Parse(source)
	if err != nil {
		return "", err
	}
	return t.Render(map[string]any{"messages": []any{}}, l)
}

// TestErrors: errors name the line, and what the template refuses is told apart.
func TestErrors(t *testing.T) {
	_, err := render("a\n\n{{ x.y }}", nil)
	var e *Error
	if !errors.As(err, &e) || e.Line != 3 || err.Error() != "line 3: x is undefined" {
		t.Errorf("%v", err)
	}
	_, err = render("a\n{% for x in y %}\n{% endif %}", nil)
	if !errors.As(err, &e) || e.Line != 3 || !strings.Contains(err.Error(), "endif") {
		t.Errorf("%v", err)
	}
	_, err = render("{{ raise_exception('only ' ~ 'users') }}", nil)
	var raised *Raised
	if !errors.As(err, &raised) || err.Error() != "only users" {
		t.Errorf("%v", err)
	}
}

// FuzzRender: no template panics, or takes more than its limits.
func FuzzRender(f *testing.F) {
	text, err := os.ReadFile("testdata/cases.json")
	if err != nil {
		f.Fatal(err)
	}
	var file struct {
		Vars  json.RawMessage
		Cases []struct{ Template string }
	}
	if err := json.Unmarshal(text, &file); err != nil {
		f.Fatal(err)
	}
	for _, c := range file.Cases {
		f.Add(c.Template)
	}
	vars := varsOf(f, string(file.Vars))
	f.Fuzz(func(t *testing.T, source string) {
		tmpl, err := Parse(source)
		if err != nil {
			return
		}
		_, _ = tmpl.Render(vars, Limits{Work: 100_000, Memory: 1 << 20, Output: 1 << 20})
	})
}

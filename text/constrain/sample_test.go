package constrain_test

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/ulikunitz/xz"
	"pgregory.net/rapid"

	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/internal/prop"
	"github.com/krait-ml/krait/text/constrain"
)

// example is a schema of JSONSchemaBench with instances.
type example struct {
	Name   string
	Schema json.RawMessage
	Tests  []struct {
		Valid bool
		Data  json.RawMessage
	}
}

// sample reads shared/jsonschema, which lies beside the checkout, in its folder or the one above.
func sample(t testing.TB) (list []example) {
	t.Helper()
	const name = "shared/jsonschema/sample.jsonl.xz"
	path := filepath.Join("../../..", name)
	if _, err := os.Stat(path); err != nil {
		path = filepath.Join("../../../..", name)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Skipf("%s is not beside the checkout", name)
	}
	defer f.Close()
	r, err := xz.NewReader(bufio.NewReader(f))
	if err != nil {
		t.Fatal(err)
	}
	for d := json.NewDecoder(r); d.More(); {
		var e example
		if err := d.Decode(&e); err != nil {
			t.Fatal(err)
		}
		list = append(list, e)
	}
	return list
}

var places = regexp.MustCompile(`^#\S*: `)

// TestSample compiles the schemas of JSONSchemaBench: at least a share of them, each within a
// time, and no grammar takes an instance that its schema does not. The log has what docs/serving.md
// says.
func TestSample(t *testing.T) {
	refused := map[string]int{}
	var times []time.Duration
	var compiled, valid, taken, invalid int
	all := sample(t)
	switch {
	case goldens.Few(t):
		all = all[:len(all)/10]
	case !goldens.All():
		all = all[:len(all)/3]
	}
	for _, e := range all {
		began := time.Now()
		g, err := constrain.Compile(e.Schema)
		times = append(times, time.Since(began))
		if err != nil {
			t.Logf("%s: %.200v", e.Name, err)
			refused[places.ReplaceAllString(err.Error(), "")]++
			continue
		}
		compiled++
		for i, test := range e.Tests {
			var data bytes.Buffer
			if err := json.Compact(&data, test.Data); err != nil {
				t.Fatal(err)
			}
			takes := g.Takes(data.Bytes())
			switch {
			case !test.Valid:
				if invalid++; takes {
					t.Errorf("%s: takes the invalid instance %d: %.300s", e.Name, i, data.Bytes())
				}
			default:
				valid++
				if takes {
					taken++
				} else {
					t.Logf("%s: does not take the valid instance %d: %.300s", e.Name, i, data.Bytes())
				}
			}
		}
	}
	slices.Sort(times)
	t.Logf("%d of %d schemas compile (%.1f %%); 99 %% within %v, all within %v", compiled, len(all), 100*float64(compiled)/float64(len(all)), times[len(times)*99/100], times[len(times)-1])
	t.Logf("of their instances, %d of %d valid ones are taken, and %d invalid ones refused", taken, valid, invalid)
	for _, reason := range slices.SortedFunc(maps.Keys(refused), func(a, b string) int { return cmp.Or(refused[b]-refused[a], cmp.Compare(a, b)) }) {
		t.Logf("%4d refused: %.200s", refused[reason], reason)
	}
}

// TestSampleTexts: texts drawn from the grammars of JSONSchemaBench are valid to a validator of
// others, with formats.
func TestSampleTexts(t *testing.T) {
	v, n, unread, endless := vocabulary(t), 0, 0, 0
	all := sample(t)
	switch {
	case goldens.Few(t):
		all = all[:30]
	case !goldens.All():
		all = all[:80]
	}
	for i, e := range all {
		g, err := constrain.Compile(e.Schema)
		if err != nil {
			continue
		}
		valid, err := validatorOf(string(e.Schema))
		if err != nil {
			unread++
			continue
		}
		for seed := range uint64(10) {
			text, ended := draw(t, g, v, rand.New(rand.NewPCG(seed, uint64(i))))
			if !ended { // a pattern that letters at random do not meet
				endless++
				continue
			}
			for _, text := range append(mutants(text, rand.New(rand.NewPCG(seed, uint64(i)))), text) {
				if !g.Takes([]byte(text)) {
					continue
				}
				if n++; check(valid, text) != nil {
					t.Errorf("%s, seed %d: %.500s: %v", e.Name, seed, text, check(valid, text))
				}
			}
		}
	}
	t.Logf("%d texts are checked, and %d did not end; the validator does not read %d of the schemas", n, endless, unread)
}

// mutants are texts that differ from one in a place.
func mutants(text string, r *rand.Rand) (list []string) {
	for range 5 {
		i, j := r.IntN(len(text)+1), r.IntN(len(text)+1)
		list = append(list, text[:i]+string(rune(' '+r.IntN(95)))+text[min(i+r.IntN(2), len(text)):], text[:min(i, j)]+text[max(i, j):])
	}
	return list
}

// check asks the validator.
func check(valid *jsonschema.Schema, text string) error {
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return err
	}
	return valid.Validate(value)
}

// TestRandomSchemas: as TestSampleTexts, of schemas that combine keywords at random.
func TestRandomSchemas(t *testing.T) {
	v, compiled, n := vocabulary(t), 0, 0
	prop.CheckN(t, 300, func(r *rapid.T) {
		schema, err := json.Marshal(schemas(r, 3))
		if err != nil {
			t.Fatal(err)
		}
		g, err := constrain.Compile(schema)
		if err != nil {
			return
		}
		compiled++
		valid, err := validatorOf(string(schema))
		if err != nil {
			r.Fatalf("%s: %v", schema, err)
		}
		for seed := range uint64(3) {
			random := rand.New(rand.NewPCG(seed, 3))
			text, ended := draw(t, g, v, random)
			for _, text := range append(mutants(text, random), text) {
				if ended && g.Takes([]byte(text)) {
					if n++; check(valid, text) != nil {
						r.Fatalf("%s, seed %d: %.500s: %v", schema, seed, text, check(valid, text))
					}
				}
			}
		}
	})
	t.Logf("%d schemas compile; %d texts are checked", compiled, n)
	if compiled < 50 { // of 100, or 300 in CI
		t.Errorf("only %d of the schemas compile", compiled)
	}
}

// schemas draws a schema.
func schemas(r *rapid.T, depth int) any {
	pick := func(list ...any) any { return rapid.SampledFrom(list).Draw(r, "pick") }
	count := func() int { return rapid.IntRange(0, 4).Draw(r, "count") }
	some := func() (list []any) {
		for range 1 + count()/2 {
			list = append(list, schemas(r, depth-1))
		}
		return list
	}
	names := []any{"a", "ab", "é", "\"x"}
	keywords := map[string]func() any{
		"type": func() any {
			return pick("string", "integer", "number", "object", "array", "boolean", []any{"string", "null"})
		},
		"enum": func() any {
			return []any{pick("a", "bc", 1, 2.5, nil), pick("", true, 7, []any{1}, map[string]any{"a": 1})}
		},
		"minimum": func() any { return pick(-3, 0, 0.5, 17, 1.25) }, "maximum": func() any { return pick(-1, 9, 99.5, 1000) },
		"exclusiveMinimum": func() any { return pick(-1, 0, 2.5) }, "multipleOf": func() any { return pick(2, 0.5, 3, 0.01) },
		"minLength": func() any { return count() }, "maxLength": func() any { return count() + 1 }, "pattern": func() any { return pick("^a", "b+$", "^[^ab]*$", "é|x", "^..?$") },
		"format":   func() any { return pick("date", "ipv4", "email", "uuid") },
		"minItems": func() any { return count() / 2 }, "maxItems": func() any { return count() + 1 },
		"minProperties": func() any { return count() / 2 }, "maxProperties": func() any { return count() + 1 },
		"required": func() any { return []any{pick(names...)} }, "dependentRequired": func() any { return map[string]any{"a": []any{pick(names...)}} },
		"propertyNames": func() any { return map[string]any{"pattern": pick("a", "^.{0,3}$")} },
	}
	if depth > 0 {
		for _, name := range []string{"items", "additionalProperties", "not", "contains", "if", "then", "else"} {
			keywords[name] = func() any { return schemas(r, depth-1) }
		}
		for _, name := range []string{"allOf", "anyOf", "oneOf", "prefixItems"} {
			keywords[name] = func() any { return some() }
		}
		keywords["properties"] = func() any {
			return map[string]any{pick(names...).(string): schemas(r, depth-1), pick(names...).(string): schemas(r, depth-1)}
		}
		keywords["patternProperties"] = func() any {
			return map[string]any{pick("^a", "b", "é$").(string): schemas(r, depth-1)}
		}
	}
	schema := map[string]any{}
	all := slices.Sorted(maps.Keys(keywords))
	for range rapid.IntRange(1, 4).Draw(r, "keywords") {
		name := rapid.SampledFrom(all).Draw(r, "keyword")
		schema[name] = keywords[name]()
	}
	return schema
}

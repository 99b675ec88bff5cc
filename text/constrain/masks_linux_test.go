package constrain_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/text/constrain"
)

// large is a vocabulary of 262,000 tokens.
func large(t testing.TB) *constrain.Vocabulary { return words(t, 262_000) }

// words is a vocabulary of some tokens: bytes, words of letters with and without a space before
// them, digits, and JSON's punctuation joined to itself and to words.
func words(t testing.TB, size int) *constrain.Vocabulary {
	t.Helper()
	r := rand.New(rand.NewPCG(7, 262_000))
	joins := []string{`": "`, `", "`, `":`, `": `, `",`, `"},`, `"}`, `{"`, `[{"`, `]}`, `},`, `": {`, `": [`, `"]`, `", `, ` "`, `":"`, `","`, `}, {"`, "\n", "  ", "    ", `\n`, `\"`, `": true`, `": false`, `": null`}
	have := map[string]bool{}
	var list []string
	add := func(s string) {
		if !have[s] {
			have[s] = true
			list = append(list, s)
		}
	}
	for b := range 256 {
		add(string([]byte{byte(b)}))
	}
	for _, j := range joins {
		add(j)
	}
	for i := range 1000 {
		add(fmt.Sprint(i))
	}
	for len(list) < size {
		word := []byte{}
		for range 2 + r.IntN(9) {
			word = append(word, byte('a'+min(r.IntN(26), r.IntN(26))))
		}
		switch s := string(word); r.IntN(20) {
		case 0:
			add(s + joins[r.IntN(len(joins))])
		case 1:
			add(joins[r.IntN(len(joins))] + s)
		case 2:
			add(string(rune(0xe0 + r.IntN(0x4000))))
			add(s + string(rune(0xe0+r.IntN(0x60))))
		case 3, 4, 5, 6, 7, 8, 9:
			add(s)
		default:
			add(" " + s)
		}
	}
	v, err := constrain.NewVocabulary(size, func(id int) []byte { return []byte(list[id]) })
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// greedy goes on by the longest allowed token of a text.
func greedy(t testing.TB, m *constrain.Matcher, v *constrain.Vocabulary, mask []int32, text []byte) (id, n int) {
	t.Helper()
	for id, size := range constrain.Prefixes(v, text) {
		if mask[id/32]>>(id%32)&1 != 0 {
			return id, size
		}
	}
	return -1, 0
}

// spent is the processor time of the thread.
func spent() time.Duration {
	var at unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &at); err != nil {
		panic(err)
	}
	return time.Duration(at.Nano())
}

// BenchmarkSampleMasks walks instances of JSONSchemaBench with a vocabulary of 262,000 tokens, and
// reports what masks and steps of a token take, of schemas that have had their first 50 tokens.
func BenchmarkSampleMasks(b *testing.B) {
	v, all := large(b), sample(b)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if g, err := constrain.Compile([]byte(`{"type": "string"}`)); err != nil || g.Match(v, nil).Mask() == nil { // what the vocabulary makes once
		b.Fatal(err)
	}
	for b.Loop() {
		var first, later []time.Duration
		var means []time.Duration
		worst := map[string]time.Duration{}
		for i, e := range all {
			if i%50 != 0 && !goldens.All() {
				continue
			}
			g, err := constrain.Compile(e.Schema)
			if err != nil {
				continue
			}
			tokens, sum, n := 0, time.Duration(0), 0
			for range 2 {
				for _, test := range e.Tests {
					var data bytes.Buffer
					if !test.Valid || json.Compact(&data, test.Data) != nil || !g.Takes(data.Bytes()) || data.Len() > 1024 {
						continue
					}
					m := g.Match(v, nil)
					for rest := data.Bytes(); len(rest) > 0; tokens++ {
						began := spent()
						mask := m.Mask()
						took := spent() - began
						id, size := greedy(b, m, v, mask, rest)
						if id < 0 {
							b.Fatalf("%s: no token for %.80s", e.Name, rest)
						}
						began = spent()
						m.Accept(id)
						took += spent() - began
						if rest = rest[size:]; tokens < 50 {
							first = append(first, took)
							continue
						}
						later, sum, n = append(later, took), sum+took, n+1
						worst[e.Name] = max(worst[e.Name], took)
					}
				}
			}
			if n > 0 {
				means = append(means, sum/time.Duration(n))
			}
		}
		report := func(name string, list []time.Duration) {
			slices.Sort(list)
			at := func(q float64) float64 { return float64(list[int(q*float64(len(list)-1))].Nanoseconds()) / 1000 }
			b.Logf("%s: %d, p50 %.1f µs, p90 %.1f, p99 %.1f, p99.9 %.1f, max %.1f", name, len(list), at(0.5), at(0.9), at(0.99), at(0.999), at(1))
		}
		report("first 50 tokens of a schema", first)
		report("later tokens", later)
		report("means of schemas over later tokens", means)
		names := slices.Collect(func(yield func(string) bool) {
			for n := range worst {
				if !yield(n) {
					return
				}
			}
		})
		slices.SortFunc(names, func(x, y string) int { return int(worst[y] - worst[x]) })
		for _, n := range names[:min(12, len(names))] {
			b.Logf("%s: %v", n, worst[n])
		}
	}
}

// kinds are grammars of each kind whose texts are long, many of them with many states.
var kinds = []struct{ name, notation, text string }{
	{"any JSON", "schema", `{"type": "array", "minItems": 60}`},
	{"length", "schema", `{"type": "array", "items": {"type": "string", "minLength": 300, "maxLength": 900}, "minItems": 9}`},
	{"enum", "schema", enumOf(400)},
	{"names", "schema", namesOf(200)},
	{"numbers", "schema", `{"type": "array", "items": {"type": "number", "minimum": -73.25, "maximum": 1e6, "multipleOf": 0.35}, "minItems": 90}`},
	{"formats", "schema", `{"type": "array", "items": {"anyOf": [{"format": "email"}, {"format": "uri"}, {"format": "date-time"}, {"format": "hostname"}, {"format": "ipv6"}, {"format": "duration"}], "type": "string"}, "minItems": 90}`},
	{"counted class", "schema", `{"type": "array", "items": {"type": "string", "pattern": "^[a-z ]{200,600}$"}, "minItems": 9}`},
	{"counted words", "schema", `{"type": "array", "items": {"type": "string", "pattern": "^([a-z]{1,9} ){20,90}$"}, "minItems": 9}`},
	{"pattern and length", "schema", `{"type": "array", "items": {"type": "string", "pattern": "^[A-Za-z][a-z0-9 ._-]*$", "minLength": 100, "maxLength": 700}, "minItems": 9}`},
	{"unanchored", "schema", `{"type": "array", "items": {"type": "string", "pattern": "(password|secret)[0-9]{3}.*token", "maxLength": 300}, "minItems": 9}`},
	{"letters of any script", "schema", `{"type": "array", "items": {"type": "string", "pattern": "^[à-ɏ a-z]{100,400}$"}, "minItems": 9}`},
	{"ambiguous", "schema", `{"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}], "$defs": {"a": {"type": "array", "items": {"anyOf": [{"$ref": "#/$defs/a"}, {"type": "string", "maxLength": 40}]}, "minItems": 9}, "b": {"type": "array", "items": {"anyOf": [{"$ref": "#/$defs/b"}, {"type": "string", "pattern": "^[a-z]"}]}, "minItems": 9}}}`},
	{"expression", "regex", `([A-Z][a-z]{2,12} [a-z]+[.!?] ){20,60}`},
	{"grammar", "gbnf", "root ::= (line \"\\n\"){60,}\nline ::= term ([-+*/] term){2,9}\nterm ::= [a-z]+ | [0-9]+ | \"(\" line \")\""},
}

func enumOf(n int) string {
	r := rand.New(rand.NewPCG(11, 1))
	var list []string
	for range n {
		word := make([]byte, 4+r.IntN(20))
		for i := range word {
			word[i] = byte('a' + min(r.IntN(26), r.IntN(26)))
		}
		list = append(list, string(word))
	}
	data, _ := json.Marshal(map[string]any{"type": "array", "items": map[string]any{"enum": list}, "minItems": 90})
	return string(data)
}

func namesOf(n int) string {
	var names []string
	props := map[string]any{}
	for i := range n {
		names = append(names, fmt.Sprintf("%c%x_field_%d", 'a'+i%26, i*7919, i))
		props[names[i]] = map[string]any{"type": []string{"integer", "null", "boolean"}}
	}
	data, _ := json.Marshal(map[string]any{"type": "object", "properties": props, "required": names, "additionalProperties": false})
	return string(data)
}

// TestKindMasks: the masks of each kind of grammar have the tokens whose bytes may come one after
// the other, and no others.
func TestKindMasks(t *testing.T) {
	defer constrain.ShareAll()()
	v, all := words(t, 3000), slices.Clone(kinds)
	for _, pattern := range []string{ // bytes of a class lead to several sets, of which some end before others, or take other bytes
		"^(p[a-z]{1,6}|[a-oq-z][a-z]{1,3})$", "^([a-m][t-z]|[n-z][g-k])[a-z ]{1,5}$", "^([ap][a-m]{1,3}|[b-oq-z][g-z]{1,2}) ?[a-z]{2,6}$", "^([a-m][a-m]?|[n-z][n-z]?|[à-é]{2}[e-z])( [a-z]|[ê-ü])?$",
	} {
		text, _ := json.Marshal(map[string]any{"type": "array", "items": map[string]any{"pattern": pattern, "type": "string"}, "minItems": 90})
		k := kinds[0]
		k.name, k.text = pattern, string(text)
		all = append(all, k)
	}
	for _, k := range all {
		g := compiled(t, k.notation, k.text)
		m, r := g.Match(v, nil), rand.New(rand.NewPCG(3, 37))
		for i := range 90 {
			mask := m.Mask()
			if walked := m.Walked(); !slices.Equal(mask, walked) {
				for id := range walked {
					if mask[id] != walked[id] {
						t.Errorf("%s: token %d: the tokens from %d are %032b, and %032b one by one", k.name, i, 32*id, uint32(mask[id]), uint32(walked[id]))
						break
					}
				}
				break
			}
			if id := pick(mask, r); id < 0 || m.Accept(id) {
				m = g.Match(v, nil)
			}
		}
	}
}

// BenchmarkKindMasks draws texts of each kind of grammar with a vocabulary of 262,000 tokens, and
// reports the processor time per token of masks and steps after a grammar's first 50 tokens.
func BenchmarkKindMasks(b *testing.B) {
	v := large(b)
	v.Prime()
	for _, k := range kinds {
		b.Run(k.name, func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			for b.Loop() {
				list := drawn(b, v, k.notation, k.text, 50+500)[50:]
				var sum time.Duration
				for _, took := range list {
					sum += took
				}
				slices.Sort(list)
				b.ReportMetric(float64(sum.Nanoseconds())/1000/float64(len(list)), "mean-µs")
				b.ReportMetric(float64(list[len(list)*99/100].Nanoseconds())/1000, "p99-µs")
				b.ReportMetric(float64(list[len(list)-1].Nanoseconds())/1000, "max-µs")
			}
		})
	}
}

// drawn draws n tokens of texts of a grammar, each one of those allowed, and returns the processor
// time of each.
func drawn(t testing.TB, v *constrain.Vocabulary, notation, text string, n int) (list []time.Duration) {
	t.Helper()
	g := compiled(t, notation, text)
	r := rand.New(rand.NewPCG(5, 37))
	m := g.Match(v, nil)
	for len(list) < n {
		began := spent()
		mask := m.Mask()
		took := spent() - began
		id := pick(mask, r)
		if id < 0 {
			m = g.Match(v, nil)
			continue
		}
		began = spent()
		last := m.Accept(id)
		list = append(list, took+spent()-began)
		if last {
			m = g.Match(v, nil)
		}
	}
	return list
}

// compiled is a grammar.
func compiled(t testing.TB, notation, text string) (g *constrain.Grammar) {
	t.Helper()
	var err error
	switch notation {
	case "schema":
		g, err = constrain.Compile([]byte(text))
	case "regex":
		g, err = constrain.Regex(text)
	default:
		g, err = constrain.GBNF(text)
	}
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// pick draws one of the bits of a mask; -1: it has none.
func pick(mask []int32, r *rand.Rand) int {
	for range 2000 {
		if id := r.IntN(32 * len(mask)); mask[id/32]>>(id%32)&1 != 0 {
			return id
		}
	}
	var all []int
	for i, bits := range mask {
		for b := range 32 {
			if bits>>b&1 != 0 {
				all = append(all, 32*i+b)
			}
		}
	}
	if all == nil {
		return -1
	}
	return all[r.IntN(len(all))]
}

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

// large is a vocabulary of 262,000 tokens: bytes, words of letters with and without a space before
// them, digits, and JSON's punctuation joined to itself and to words.
func large(t testing.TB) *constrain.Vocabulary {
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
	for len(list) < 262_000 {
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
	v, err := constrain.NewVocabulary(262_000, func(id int) []byte { return []byte(list[id]) })
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

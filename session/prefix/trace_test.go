package prefix

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestTokens: however tokens come, runs or one by one, they are the same sequence.
func TestTokens(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 11))
		var ids []int32
		var list []string
		longest := 1 + rng.IntN(12)
		for range rng.IntN(12) {
			first, n := int32(rng.IntN(4)), 1+rng.IntN(longest)
			if rng.IntN(2) == 0 && len(ids) > 0 {
				first = ids[len(ids)-1] + 1 // goes on
			}
			for i := range n {
				ids = append(ids, first+int32(i))
			}
			if n == 1 && rng.IntN(2) == 0 {
				list = append(list, fmt.Sprint(first))
			} else {
				list = append(list, fmt.Sprintf("[%d, %d]", first, n))
			}
		}
		var b Builder
		if err := readTokens([]byte("["+strings.Join(list, ",")+"]"), &b); err != nil {
			t.Fatal(err)
		}
		got := b.Tokens()
		for i, id := range ids {
			if got.At(i) != id {
				t.Fatalf("seed %d: token %d of %v is %d", seed, i, ids, got.At(i))
			}
		}
		if got.Len() != len(ids) || 2*len(got.ids)+2*len(got.ends) > 2*max(len(ids), 1) {
			t.Fatalf("seed %d: %d tokens in %d and %d numbers, want %d", seed, got.Len(), len(got.ids), len(got.ends), len(ids))
		}
		// Another sequence, which is the same up to a place.
		cut := rng.IntN(len(ids) + 1)
		for _, id := range append(slices.Clone(ids[:cut]), 1<<20, 1<<20+1, 1<<20+2, 1<<20+3, 1<<20+9) {
			b.Append(id, 1)
		}
		other := b.Tokens()
		for from := range cut + 1 {
			if at := agree(got, other, from, min(got.Len(), other.Len())); at != cut {
				t.Fatalf("seed %d: %v agrees from %d to %d, want %d", seed, ids, from, at, cut)
			}
			if at := agree(got.Prefix(cut), other, from, cut); at != cut {
				t.Fatalf("seed %d: the first %d of %v agree to %d", seed, cut, ids, at)
			}
		}
	}
}

// TestReadTrace: all ways to write a request.
func TestReadTrace(t *testing.T) {
	trace, err := ReadTrace(strings.NewReader("\ufeff\n" + `{"at":0,"input":[1,2,3,7],"output":[]}` + "\r\n\n" +
		` { "output" : [ [ 5 , 2 ] , 9 ] , "input" : [ [ 1 , 3 ] , 7 ] , "at" : 1.5e0 } ` + "\n" +
		`{"at":1.5,"input":[2147483647],"output":[[2147483646,2]]}`))
	if err != nil || len(trace) != 3 {
		t.Fatal(trace, err)
	}
	for i, want := range [][]int32{{1, 2, 3, 7}, {1, 2, 3, 7, 5, 6, 9}, {math.MaxInt32, math.MaxInt32 - 1, math.MaxInt32}} {
		var got []int32
		for j := range trace[i].Tokens.Len() {
			got = append(got, trace[i].Tokens.At(j))
		}
		if !slices.Equal(got, want) || trace[i].InputLen != []int{4, 4, 1}[i] || trace[i].At != []float64{0, 1.5, 1.5}[i] {
			t.Errorf("request %d is %+v, %v", i, trace[i], got)
		}
	}
}

// TestBadTraces: errors name the line.
func TestBadTraces(t *testing.T) {
	const good = `{"at":1,"input":[1],"output":[2]}` + "\n"
	for bad, want := range map[string]string{
		`{"at":2,"input":[1],"output":[2]`:    "inside the request",
		`{"at":2,"input":[1,],"output":[2]}`:  "line 2: ",
		`{"at":2,"input":[1 2],"output":[2]}`: "line 2: ",
		`[1,2]`:                               "line 2: ",
		`null`:                                `a request has "at"`,
		`x`:                                   "line 2: ",
		good[:len(good)-1] + ` {}`:            "a line is one request",
		`{"at":2,"input":[1]}`:                `a request has "at"`,
		`{"input":[1],"output":[2]}`:          `a request has "at"`,
		`{"at":2,"input":[1],"output":[],"session":7}`:             `"session"`,
		`{"at":-1,"input":[1],"output":[2]}`:                       `"at" is -1`,
		`{"at":1.7e12,"input":[1],"output":[2]}`:                   "times are seconds, at most 9e+09",
		`{"at":0.5,"input":[1],"output":[2]}`:                      "before that of line 1",
		`{"at":1e999,"input":[1],"output":[2]}`:                    "line 2: ",
		`{"at":"2","input":[1],"output":[2]}`:                      "line 2: ",
		`{"at":2,"input":[],"output":[2]}`:                         `"input" is empty`,
		`{"at":2,"input":null,"output":[2]}`:                       `a request has "at"`,
		`{"at":2,"input":"a","output":[2]}`:                        "cannot unmarshal string",
		`{"at":2,"input":1,"output":[2]}`:                          "cannot unmarshal number",
		`{"at":2,"input":[1,,2],"output":[2]}`:                     "element 1: ",
		`{"at":2,"input":[[1,2][3,4]],"output":[2]}`:               "after element 0 there is no comma",
		`{"at":2,"input":[1],"output":[2]]}`:                       "line 2: ",
		`{"at":2,"input":[[1],"output":[2]}`:                       "inside the request",
		`{"at":2,"input":["]"],"output":[2]}`:                      "line 2: ",
		`{"at":2,"input":[-1],"output":[2]}`:                       "element 0: token id -1",
		`{"at":2,"input":[1],"output":[3,2147483648]}`:             `"output": element 1: token id 2147483648`,
		`{"at":2,"input":[99999999999999999999],"output":[2]}`:     "is not a token id",
		`{"at":2,"input":[1.5],"output":[2]}`:                      "1.5 is not a token id",
		`{"at":2,"input":[1e3],"output":[2]}`:                      "1e3 is not a token id",
		`{"at":2,"input":["a"],"output":[2]}`:                      "is not a token id",
		`{"at":2,"input":[null],"output":[2]}`:                     "is not a token id",
		`{"at":2,"input":[{"a":1}],"output":[2]}`:                  "is not a token id",
		`{"at":2,"input":[[1]],"output":[2]}`:                      "[1] is not a run",
		`{"at":2,"input":[[1,2,3]],"output":[2]}`:                  "[1,2,3] is not a run",
		`{"at":2,"input":[[]],"output":[2]}`:                       "[] is not a run",
		`{"at":2,"input":[[1,[2]]],"output":[2]}`:                  "is not a run",
		`{"at":2,"input":[[1,0]],"output":[2]}`:                    "it has at least one token",
		`{"at":2,"input":[[1,-4]],"output":[2]}`:                   "it has at least one token",
		`{"at":2,"input":[[2147483640,9]],"output":[2]}`:           "goes past token id",
		`{"at":2,"input":[[1,16777216]],"output":[2]}`:             "more than 16777216 tokens",
		`{"at":2,"input":[[1,9223372036854775807]],"output":[2]}`:  "more than 16777216 tokens",
		`{"at":2,"input":[[1,16777216],[1,16777216]],"output":[]}`: "more than 16777216 tokens",
	} {
		_, err := ReadTrace(strings.NewReader(good + bad + "\n" + good))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "line 2: ") {
			t.Errorf("%s: %v, want %q", bad, err, want)
		}
	}
	for bad, want := range map[string]string{"": "no requests", "\n \n": "no requests", "\x1f\x8b\x08": "compressed by gzip", "PK\x03\x04": "zip"} {
		if _, err := ReadTrace(strings.NewReader(bad)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", bad, err, want)
		}
	}
}

// FuzzTrace: any text is a trace or an error.
func FuzzTrace(f *testing.F) {
	f.Add(`{"at":1,"input":[1,[2,3]],"output":[]}`)
	f.Add(`{"at":1,"input":[[1 ,2 ] ],"output":[-1]}`)
	f.Fuzz(func(t *testing.T, text string) {
		trace, err := ReadTrace(strings.NewReader(text))
		if (err == nil) != (len(trace) > 0) {
			t.Fatal(trace, err)
		}
	})
}

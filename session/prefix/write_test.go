package prefix

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

// TestWriteTrace: what is written is read again.
func TestWriteTrace(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 13))
		trace := traceOf(seed, 5)
		for i := range trace {
			trace[i].At = rng.Float64() + float64(i)
		}
		var text bytes.Buffer
		if err := WriteTrace(&text, trace); err != nil {
			t.Fatal(err)
		}
		got, err := ReadTrace(bytes.NewReader(text.Bytes()))
		if err != nil || !reflect.DeepEqual(got, trace) {
			t.Fatalf("seed %d: %v\n%s", seed, err, text.String())
		}
	}
	for _, name := range goldens {
		trace := readGolden(t, name)
		var text bytes.Buffer
		if err := WriteTrace(&text, trace); err != nil {
			t.Fatal(err)
		}
		got, err := ReadTrace(&text)
		if err != nil || !reflect.DeepEqual(got, trace) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var text strings.Builder
	b := Builder{}
	b.Append(7, 1)
	b.Append(1, 10)
	b.Append(9, 1)
	r := Request{At: 0.25, Tokens: b.Tokens(), InputLen: 5}
	if err := WriteTrace(&text, []Request{r}); err != nil || text.String() != `{"at": 0.25, "input": [7, [1, 4]], "output": [[5, 6], 9]}`+"\n" {
		t.Error(err, text.String())
	}
}

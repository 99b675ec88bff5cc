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

	"github.com/krait-ml/krait/internal/goldens"
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
	if !goldens.All() {
		all = all[:200]
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
			value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
			if err == nil {
				err = valid.Validate(value)
			}
			if n++; err != nil {
				t.Errorf("%s, seed %d: %.500s: %v", e.Name, seed, text, err)
				break
			}
		}
	}
	t.Logf("%d texts are checked, and %d did not end; the validator does not read %d of the schemas", n, endless, unread)
}

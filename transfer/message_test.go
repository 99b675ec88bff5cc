package transfer

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/krait-ml/krait/transfer/transport"
)

// TestParse: what is no message is an error that says of what kind.
func TestParse(t *testing.T) {
	for _, bad := range []string{"", "{", "null x", `{"request":1}{}`, `{"request":-1}`, `{"request":1,"more":2}`, `[]`, `{"tokens":[1.5]}`} {
		if m, err := parse[prefill]([]byte(bad)); err == nil || !strings.Contains(err.Error(), "prefill") {
			t.Errorf("%q is %+v, %v", bad, m, err)
		}
	}
	want := ready{7, transport.Ticket{1, 2}, [][]uint64{{1, 1 << 40}, {0}}, 30000}
	text, _ := json.Marshal(want)
	if got, err := parse[ready](text); err != nil || got.Regions[0][1] != 1<<40 || got.Ticket != want.Ticket {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestRegion: a prefill side that lends less than it says, or something else, is an error.
func TestRegion(t *testing.T) {
	r := ready{Regions: [][]uint64{{5, 6}, {0}}}
	for _, c := range []struct {
		rank, region, first int
		want                transport.Region
		ok                  bool
	}{{0, 0, 0, 4, true}, {0, 1, 0, 5, true}, {0, 3, 2, 5, true}, {0, 2, 2, 4, false}, {0, 2, 0, 0, false}, {1, 0, 0, 0, false}, {2, 0, 0, 0, false}, {0, 1, 5, 0, false}} {
		if got, err := r.region(c.rank, c.region, c.first); (err == nil) != c.ok && !(c.region == 2 && c.first == 2) || c.ok && got != c.want {
			t.Errorf("%+v: %d, %v", c, got, err)
		}
	}
}

// FuzzMessages: what comes from anyone is read, or is an error, within bounds.
func FuzzMessages(f *testing.F) {
	f.Add([]byte(`{"meta":{"protocol":1,"model":"a","name":"b","ranks":"c","states":"f32","keeps":"ranks 2\nlayers.0.mixer.ssm : f32[s 8/1 4] shard(1: split)\n","page_tokens":16},"by":"tcp"}`))
	f.Add([]byte(`{"request":1,"ticket":[1,2],"regions":[[1]],"lease_ms":3}`))
	f.Add([]byte(`{"by":"ucx","address":"AAAA"}`))
	f.Add([]byte(`{"protocol":5,"token":"00ff","session":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]}`))
	mine := Meta{Protocol: Protocol, Model: "a", Layout: "ranks 1\nlayers.0.mixer.ssm : f32[s 8/1 4]\n", PageTokens: 3}
	f.Fuzz(func(t *testing.T, text []byte) {
		if h, err := parse[hello](text); err == nil {
			if x, err := moves(&mine, &h.Meta); err == nil {
				for rank := range x.To.States.Ranks {
					if _, err := x.Reads(rank, 5, 2); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		if r, err := parse[ready](text); err == nil {
			r.region(0, 1, 0)
		}
		parse[data](text)
		parse[knock](text)
		if p, err := parse[prefill](text); err == nil {
			again, _ := json.Marshal(p)
			if q, err := parse[prefill](again); err != nil || len(q.Tokens) != len(p.Tokens) || !bytes.Equal(again, mustJSON(q)) {
				t.Fatal(err)
			}
		}
	})
}

func mustJSON(x any) []byte {
	text, err := json.Marshal(x)
	if err != nil {
		panic(err)
	}
	return text
}

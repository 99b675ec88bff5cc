package lowering

import (
	"reflect"
	"strings"
	"testing"

	"github.com/krait-ml/krait/internal/prop"
	"pgregory.net/rapid"

	"github.com/krait-ml/krait/graph"
)

// TestParse: random schedules are read back as they are, polynomials included.
func TestParse(t *testing.T) {
	prop.Check(t, func(t *rapid.T) {
		for _, s := range drawSchedules(t) {
			back, err := ParseSchedule(s.String())
			if err != nil {
				t.Fatalf("%v\n%s", err, s)
			}
			if !reflect.DeepEqual(back, s) {
				t.Fatalf("read back as\n%s\nwritten\n%s", back, s)
			}
		}
	})
}

// TestParsePart: a buffer that is a field of a model's state says so in text.
func TestParsePart(t *testing.T) {
	g, err := graph.Parse(`graph "g" stage=fused ranks=2
input %x : f32[t 4/1] shard(1: split)
input %seg : i32[s 3]
param @w : f32[4/1 2] shard(0: split)
state %c.x : f32[s 4/1 1] shard(1: split) field(1: x) of %c : f32[s x:4/1|B:2/1 1]
%y %n = conv1d %x @w %c.x %seg
%all = all_gather %y
output y = %all
`)
	if err != nil {
		t.Fatal(err)
	}
	list, err := Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		back, err := ParseSchedule(s.String())
		if err != nil || !reflect.DeepEqual(back, s) {
			t.Errorf("%v\n%s\nread back as\n%s", err, s, back)
		}
		for i := range s.Buffers {
			b := &s.Buffers[i]
			if b.Space != State {
				continue
			}
			name, typ := b.State()
			p := s.Pieces(b)
			if name != "c" || typ.String() != "f32[s x:4/1|B:2/1 1]" || len(p.List) != 1 || p.List[0] != (graph.Stretch{Whole: 2 * s.Rank, N: 2}) {
				t.Errorf("rank %d: %s is %s of type %s, at %v", s.Rank, b.Name, name, typ, p)
			}
		}
	}
}

func TestParseRefuses(t *testing.T) {
	const head = "schedule \"g\" rank=0 ranks=1\n"
	const x = head + "buffer x token+0 8 bytes : f32[t 2]\n"
	for text, want := range map[string]string{
		"":                                          "no schedule: the text must begin with",
		"region token 4 bytes":                      "line 1: the first line, and no other",
		head + head:                                 "line 2: the first line, and no other",
		"schedule g rank=0 ranks=1":                 "expected a quoted name",
		"schedule \"g\" rank=1 ranks=1":             "there is no rank 1 of 1",
		"schedule \"g\" rank=0 ranks=1 x":           "expected",
		head + "region heap 4 bytes":                "expected one of param, state",
		head + "region token four bytes":            `expected "N bytes", found "four bytes"`,
		head + "buffer x token+0 8 bytes":           `line 2: unknown dtype ""`,
		head + "buffer x token+0 8 : f32[t]":        `expected "N N bytes", found "0 8"`,
		head + "buffer /x token+0 8 bytes : f32[t]": `"/x" is not a name for a value`,
		x + "buffer x token+0 8 bytes : f32[t]":     "line 3: x is defined already",
		x + "view y = z[0:2] : f32[t 2]":            `there is no tensor "z"`,
		x + "view y = x[0] : f32[t 2]":              `expected "N:N]"`,
		x + "compute x = silu y":                    `there is no tensor "y"`,
		x + "compute x = fly x":                     `no operation is called "fly"`,
		x + "compute x = state":                     "state is not a step of a schedule",
		x + "compute x = clamp x":                   "attribute",
		x + "compute x = matmul x, x, x":            "the operands do not fit",
		x + "compute silu x":                        "expected a result and an operation",
		x + "gpu x = silu x":                        "expected one of compute, comm",
		x + "wait 1 on gpu":                         "expected one of compute, comm",
		x + "wait one on comm":                      `expected "N", found "one"`,
		x + "output y":                              `there is no tensor ""`,
		x + "output y = x\noutput y = x":            `output "y" has no name, or one that is taken`,
	} {
		if _, err := ParseSchedule(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want an error with %q", text, err, want)
		}
	}
}

// FuzzParse: no text makes reading or checking fail in a way of its own, and
// what can be read is written the same again.
func FuzzParse(f *testing.F) {
	for _, s := range lower(f, twoRanks) {
		f.Add(s.String())
	}
	f.Add(lower(f, text)[0].String())
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSchedule(text)
		if err != nil {
			return
		}
		_ = s.Check()
		once := s.String()
		back, err := ParseSchedule(once)
		if err != nil {
			t.Fatalf("%v\n%s", err, once)
		}
		if twice := back.String(); twice != once {
			t.Fatalf("written as\n%s\nthen as\n%s", once, twice)
		}
	})
}

package constrain

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestMarkers: texts with, without and unlike a marker are what package strings says.
func TestMarkers(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	draw := func(least, most int) string {
		b := make([]rune, least+r.IntN(most-least+1))
		for i := range b {
			b[i] = []rune("ab<é")[r.IntN(4)]
		}
		return string(b)
	}
	found := 0
	for range 3000 {
		marker, text := draw(1, 4), draw(0, 9)
		at := strings.Index(text, marker)
		if at >= 0 {
			found++
		}
		for name, c := range map[string]struct{ got, want bool }{
			"until": {until(marker).has(text), at >= 0 && at+len(marker) == len(text)}, "without": {without(marker).has(text), at < 0}, "unlike": {unlike(marker).has(text), !strings.HasPrefix(text, marker)},
		} {
			if c.got != c.want {
				t.Fatalf("%s %q accepts %q: %v", name, marker, text, c.got)
			}
		}
	}
	if found < 100 {
		t.Errorf("only %d texts have their marker", found)
	}
}

// TestBuilder: a grammar within another allows byte by byte what it allows alone; texts around it
// come before and behind.
func TestBuilder(t *testing.T) {
	v, err := NewVocabulary(256, func(id int) []byte { return []byte{byte(id)} })
	if err != nil {
		t.Fatal(err)
	}
	for _, schema := range []string{`{"type": "object", "properties": {"a": {"type": "string", "maxLength": 5}, "b": {"type": "array", "items": {"type": "integer"}}}, "required": ["a"], "additionalProperties": false}`, `{"enum": ["x", 1, null]}`, `{}`} {
		alone, err := Compile([]byte(schema))
		if err != nil {
			t.Fatal(err)
		}
		for name, part := range map[string]func(b *Builder) Part{"grammar": func(b *Builder) Part { return b.Grammar(alone) }, "schema": func(b *Builder) Part { return b.Schema([]byte(schema)).Value() }} {
			within, err := Build(JSON, func(b *Builder) Part {
				b.Schema([]byte(`{"type": "string", "maxLength": 3}`)).Value() // so that numbers differ
				return b.Seq(b.Until("<<"), part(b), b.Times(b.Text("!"), 2, 2))
			})
			if err != nil {
				t.Fatal(err)
			}
			r := rand.New(rand.NewPCG(3, 4))
			for range 20 {
				inner, outer := alone.Match(v, nil), within.Match(v, nil)
				for _, b := range []byte("a<b<<") {
					outer.Accept(int(b))
				}
				for range 60 {
					want, got := inner.Mask(), slices.Clone(outer.Mask())
					if got['!'/32]>>('!'%32)&1 == 1 && want['!'/32]>>('!'%32)&1 == 0 { // it may end
						got['!'/32] &^= 1 << ('!' % 32)
					}
					if !slices.Equal(got, want) {
						t.Fatalf("%s %s: other bytes may come", schema, name)
					}
					var ids []int
					for id := range 256 {
						if want[id/32]>>(id%32)&1 == 1 {
							ids = append(ids, id)
						}
					}
					if len(ids) == 0 {
						break
					}
					id := ids[r.IntN(len(ids))]
					inner.Accept(id)
					outer.Accept(id)
				}
			}
		}
	}
	bare, err := Build(Python, func(b *Builder) Part {
		s := b.Schema([]byte(`{"properties": {"s": {"type": "string", "minLength": 2, "maxLength": 3, "pattern": "^[a<]*$"}, "w": {"enum": [true, null, [false]]}}}`))
		return b.Seq(s.Property("s").Bare("<<"), b.Text("."), s.Property("w").Value())
	})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{"a<.True": true, "aa.None": true, "<a<.[False]": true, "<<.True": false, "a.True": false, "aaaa.True": false, "aa.true": false, "a\".None": false} {
		m, ok := bare.Match(v, nil), true
		for i := 0; i < len(text) && ok; i++ {
			if ok = m.Mask()[text[i]/32]>>(text[i]%32)&1 == 1; ok {
				m.Accept(int(text[i]))
			}
		}
		if ok != want {
			t.Errorf("%q: %v", text, ok)
		}
	}
	if _, err := Build(JSON, func(b *Builder) Part { return b.Schema([]byte(`{"type": "object"}`)).Bare("x") }); err == nil || !strings.Contains(err.Error(), "no strings") {
		t.Errorf("%v", err)
	}
}

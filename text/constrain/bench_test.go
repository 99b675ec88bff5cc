package constrain_test

import (
	"fmt"
	"testing"

	"github.com/krait-ml/krait/text/constrain"
)

// BenchmarkMask makes the masks of a text from nothing, for a vocabulary of 262,000 tokens.
func BenchmarkMask(b *testing.B) {
	v, err := constrain.NewVocabulary(262_000, func(id int) []byte {
		if id < 256 {
			return []byte{byte(id)}
		}
		return fmt.Appendf(nil, " %x%c%x", id*7919%4099, 'g'+id%20, id%13)
	})
	if err != nil {
		b.Fatal(err)
	}
	const text = `{"name":"Adam","tags":["a","b"],"age":930}`
	for _, c := range []struct{ name, schema string }{
		{"bounded", `{"properties": {"name": {"type": "string", "minLength": 2, "maxLength": 40}, "tags": {"type": "array", "items": {"type": "string", "maxLength": 9}, "maxItems": 5}, "age": {"type": "integer", "minimum": 0, "maximum": 969}}, "required": ["name"], "additionalProperties": false}`},
		{"any", `{"type": "object"}`},
		{"schema", `{"properties": {"name": {"type": "string", "maxLength": 40}, "tags": {"type": "array", "items": {"type": "string"}}, "age": {"type": "integer"}}}`},
		{"ambiguous", `{"anyOf": [{"type": "object", "additionalProperties": {"$ref": "#/$defs/a"}}, {"type": "object", "additionalProperties": {"$ref": "#/$defs/a"}}], "$defs": {"a": {"anyOf": [{"$ref": "#"}, {"type": "array", "items": {"$ref": "#/$defs/a"}}, {"type": "array", "items": {"$ref": "#/$defs/a"}}, {}, {"type": "string"}, {"type": "integer"}]}}}`},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				g, err := constrain.Compile([]byte(c.schema))
				if err != nil {
					b.Fatal(err)
				}
				m := g.Match(v, nil)
				for i := range len(text) {
					m.Mask()
					m.Accept(int(text[i]))
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*len(text)), "µs/token")
		})
	}
}

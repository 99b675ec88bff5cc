package jinja

import (
	"bytes"
	"encoding/json"

	"github.com/krait-ml/krait/internal/bail"
)

// FromJSON is a JSON text as templates have it, keys in their order.
func FromJSON(text []byte) (_ any, err error) {
	var whole json.RawMessage // one value, and nothing behind it
	if err := json.Unmarshal(text, &whole); err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(whole))
	d.UseNumber()
	defer bail.Catch(&err)
	return decode(d, 0), nil
}

func decode(d *json.Decoder, depth int) any {
	if depth > deepest {
		panic(errDepth)
	}
	token := func() json.Token { return bail.Of(d.Token()) }
	switch t := token(); t {
	case json.Delim('['):
		list := []any{}
		for d.More() {
			list = append(list, decode(d, depth+1))
		}
		token()
		return list
	case json.Delim('{'):
		dict := NewDict()
		for d.More() {
			k := token().(string)
			dict.Set(k, decode(d, depth+1))
		}
		token()
		return dict
	default:
		return of(t, 0)
	}
}

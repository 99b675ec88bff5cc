package jinja

import (
	"bytes"
	"encoding/json"
)

// FromJSON is a JSON text as templates have it, keys in their order.
func FromJSON(text []byte) (any, error) {
	var whole json.RawMessage // one value, and nothing behind it
	if err := json.Unmarshal(text, &whole); err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(whole))
	d.UseNumber()
	return decode(d, 0)
}

func decode(d *json.Decoder, depth int) (any, error) {
	if depth > deepest {
		return nil, errDepth
	}
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t {
	case json.Delim('['):
		list := []any{}
		for d.More() {
			v, err := decode(d, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err = d.Token()
		return list, err
	case json.Delim('{'):
		dict := NewDict()
		for d.More() {
			k, err := d.Token()
			if err != nil {
				return nil, err
			}
			v, err := decode(d, depth+1)
			if err != nil {
				return nil, err
			}
			dict.Set(k.(string), v)
		}
		_, err = d.Token()
		return dict, err
	}
	return Of(t)
}

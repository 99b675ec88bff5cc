package jinja

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// FromJSON is a JSON text as templates have it, keys in their order.
func FromJSON(text []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	v, err := decode(d, 0)
	if err == nil && d.More() {
		err = fmt.Errorf("there is more behind the value")
	}
	return v, err
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

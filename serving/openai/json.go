package openai

import (
	"bytes"
	"encoding/json"
	"iter"
)

// Values are found in valid JSON without copies, since bodies are large.

// spaces are JSON's white space.
const spaces = " \t\r\n"

// begins reports whether the first byte after white space is c.
func begins(data []byte, c byte) bool {
	data = bytes.TrimLeft(data, spaces)
	return len(data) > 0 && data[0] == c
}

// members yields the names and values of an object, in valid JSON.
func members(data []byte) iter.Seq2[string, json.RawMessage] {
	return func(yield func(string, json.RawMessage) bool) {
		name, named := "", false
		for raw := range values(data) {
			if !named {
				if json.Unmarshal(raw, &name) != nil {
					panic("BUG: a member without a name in valid JSON")
				}
			} else if !yield(name, raw) {
				return
			}
			named = !named
		}
	}
}

// values yields the values of an array, or alternately the names and values of an object, in valid
// JSON.
func values(data []byte) iter.Seq[json.RawMessage] {
	return func(yield func(json.RawMessage) bool) {
		data := bytes.TrimLeft(data, spaces)[1:]
		for {
			data = bytes.TrimLeft(data, spaces+",:")
			if data[0] == ']' || data[0] == '}' {
				return
			}
			n := valueLen(data)
			if !yield(json.RawMessage(data[:n:n])) {
				return
			}
			data = data[n:]
		}
	}
}

// valueLen returns the length of the first value of valid JSON.
func valueLen(data []byte) int {
	depth := 0
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '"':
			for i++; data[i] != '"'; i++ {
				if data[i] == '\\' {
					i++
				}
			}
			if depth == 0 {
				return i + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			} else if depth < 0 {
				return i
			}
		case ',', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return i
			}
		}
	}
	return len(data)
}

package openai

import (
	"bytes"
	"encoding/json"
	"iter"
)

// Values are found in JSON that was checked, without a copy: bodies are large.

// spaces are those that JSON has between tokens.
const spaces = " \t\r\n"

// begins reports whether the first byte that is no space is c.
func begins(data []byte, c byte) bool {
	data = bytes.TrimLeft(data, spaces)
	return len(data) > 0 && data[0] == c
}

// members are the names and values of an object, in valid JSON.
func members(data []byte) iter.Seq2[string, json.RawMessage] {
	return func(yield func(string, json.RawMessage) bool) {
		name, named := "", false
		for raw := range values(data) {
			if !named {
				if json.Unmarshal(raw, &name) != nil {
					panic("BUG: a member without a name in JSON that was checked")
				}
			} else if !yield(name, raw) {
				return
			}
			named = !named
		}
	}
}

// values are the values of an array, or the names and values of an object in turn, in valid JSON.
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

// valueLen is the length of the value that valid JSON begins with.
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

package reply

// jsonWords are Python's words, as JSON has them.
var jsonWords = map[string]string{"True": "true", "False": "false", "None": "null"}

// speller turns Python's literals into JSON: they differ in three words.
type speller struct {
	quoted, escape bool
	word           []byte // letters outside strings, which may go on
}

// spell takes the next piece of a value; ended says that it is the last.
func (s *speller) spell(text string, ended bool) string {
	var out []byte
	for i := range len(text) {
		c := text[i]
		letter := !s.quoted && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z')
		if letter {
			s.word = append(s.word, c)
			continue
		}
		out = append(s.flush(out), c)
		switch {
		case s.quoted:
			s.quoted = c != '"' || s.escape
			s.escape = c == '\\' && !s.escape
		case c == '"':
			s.quoted = true
		}
	}
	if ended {
		out = s.flush(out)
	}
	return string(out)
}

func (s *speller) flush(out []byte) []byte {
	word, ok := jsonWords[string(s.word)]
	if !ok {
		word = string(s.word)
	}
	s.word = s.word[:0]
	return append(out, word...)
}

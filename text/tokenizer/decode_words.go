package tokenizer

import "strings"

// Decoders that are known from other models than byte-level BPE.

// A lastToken rewrites each token, and the last one differently. It holds one back.
type lastToken struct {
	rewrite func(token string, last bool) string
	next    sink
	held    *string
}

func (l *lastToken) push(token string) {
	if l.held != nil {
		l.next.push(l.rewrite(*l.held, false))
	}
	l.held = &token
}

func (l *lastToken) flush() {
	if l.held != nil {
		l.next.push(l.rewrite(*l.held, true))
	}
	l.held = nil
	l.next.flush()
}

// readBPEDecoder reads the decoder of vocabularies with an end_of_word_suffix.
func readBPEDecoder(o *object) decoder {
	suffix := o.text("suffix")
	o.grows(2)
	rewrite := func(token string, last bool) string {
		if last {
			return strings.ReplaceAll(token, suffix, "")
		}
		return strings.ReplaceAll(token, suffix, " ")
	}
	return newDecoder(func(next sink) sink { return &lastToken{rewrite: rewrite, next: next} })
}

// readWordPiece reads the decoder of vocabularies with a continuing_subword_prefix.
func readWordPiece(o *object) decoder {
	prefix, tidy := o.text("prefix"), o.flag("cleanup")
	o.grows(2)
	return eachToken(func(i int, token string) string {
		if i > 0 {
			rest, inside := strings.CutPrefix(token, prefix)
			if token = rest; !inside {
				token = " " + token
			}
		}
		if tidy {
			token = cleanup(token)
		}
		return token
	})
}

// cleanupRules are applied in turn.
var cleanupRules = [][2]string{
	{" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"}, {" n't", "n't"},
	{" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
}

// cleanup takes out spaces that English does not write.
func cleanup(token string) string {
	for _, rule := range cleanupRules {
		token = strings.ReplaceAll(token, rule[0], rule[1])
	}
	return token
}

// readCTC reads the decoder that takes a token once if it comes several times.
func readCTC(o *object) decoder {
	pad, delimiter := o.text("pad_token"), o.text("word_delimiter_token")
	tidy := o.flag("cleanup")
	o.grows(2)
	rewrite := func(token string) string {
		token = strings.ReplaceAll(token, pad, "")
		if tidy {
			token = strings.ReplaceAll(cleanup(token), delimiter, " ")
		}
		return token
	}
	return newDecoder(func(next sink) sink { return &dedup{rewrite: rewrite, next: next} })
}

type dedup struct {
	rewrite func(token string) string
	next    sink
	last    *string
}

func (d *dedup) push(token string) {
	if d.last != nil && *d.last == token {
		return
	}
	d.last = &token
	if text := d.rewrite(token); text != "" {
		d.next.push(text)
	}
}

func (d *dedup) flush() {
	d.last = nil
	d.next.flush()
}

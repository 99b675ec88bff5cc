package tokenizer

import "encoding/json"

// A normalizer rewrites a text before it is cut into pieces.
type normalizer func(m *meter, text string) string

var normalizers = component[normalizer]{
	field:    "normalizers",
	sequence: func(_ *object, parts []normalizer) normalizer { return normalizeInTurn(parts) },
	read: map[string]func(o *object) normalizer{
		"NFC":     nfc.read,
		"NFD":     nfd.read,
		"NFKC":    nfkc.read,
		"NFKD":    nfkd.read,
		"Prepend": readPrepend,
		"Replace": readReplaceNormalizer,
	},
}

func parseNormalizer(raw json.RawMessage, parts *chain) (normalizer, error) {
	if raw == nil {
		return normalizeInTurn(nil), nil
	}
	return normalizers.parse("normalizer", raw, parts)
}

func normalizeInTurn(parts []normalizer) normalizer {
	return func(m *meter, text string) string {
		for _, part := range parts {
			text = part(m, text)
		}
		return text
	}
}

func readPrepend(o *object) normalizer {
	prefix := o.text("prepend")
	o.grows(1 + len(prefix))
	o.rewrites()
	return func(m *meter, text string) string {
		if text == "" {
			return ""
		}
		m.write(len(prefix) + len(text))
		return prefix + text
	}
}

func readReplaceNormalizer(o *object) normalizer {
	pattern, content := o.replacement()
	return func(m *meter, text string) string { return replaceAll(m, text, pattern, content) }
}

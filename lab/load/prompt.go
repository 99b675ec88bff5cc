package load

import (
	"strings"

	"github.com/krait-ml/krait/internal/splitmix"
	"github.com/krait-ml/krait/session/prefix"
)

// prompt returns token ids below vocab for the first n tokens, or a text if vocab is 0.
func prompt(tokens prefix.Tokens, n, vocab int, salt uint64) any {
	if vocab > 0 {
		ids := make([]int, n)
		for i := range ids {
			ids[i] = int(splitmix.Mix(salt^uint64(tokens.At(i))) % uint64(vocab))
		}
		return ids
	}
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(word(splitmix.Mix(salt ^ uint64(tokens.At(i)))))
	}
	return b.String()
}

// word returns one of 10,000 words of two syllables.
func word(h uint64) string {
	const consonants, vowels = "bcdfghjklmnpqrstvwxz", "aeiou"
	w := make([]byte, 0, 4)
	for range 2 {
		w = append(w, consonants[h%20], vowels[h/20%5])
		h /= 100
	}
	return string(w)
}

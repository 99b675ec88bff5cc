package tokenizer

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/internal/prop"
	"pgregory.net/rapid"
)

// naiveMerge is byte pair encoding as it is defined: merge the pair of the
// lowest rank, the leftmost of those, and start again.
func naiveMerge(m *bpe, tokens []tokenID) []int {
	tokens = slices.Clone(tokens)
	for {
		best, bestRank := -1, uint32(noMerge)
		for i := range len(tokens) - 1 {
			rank, ok := m.merges.ranks[pairKey(tokens[i], tokens[i+1])]
			if ok && rank < bestRank {
				best, bestRank = i, rank
			}
		}
		if best < 0 {
			break
		}
		tokens = slices.Replace(tokens, best, best+2, m.merges.products[bestRank])
	}
	ids := []int{}
	for _, id := range tokens {
		ids = append(ids, int(id))
	}
	return ids
}

func checkMerge(t interface{ Fatalf(string, ...any) }, m *bpe, piece string) {
	var w word
	m.spell(piece, &w)
	var start []tokenID
	for _, token := range w.tokens {
		start = append(start, token.id)
	}
	if got, want := m.encode(nil, piece, &w), naiveMerge(m, start); !slices.Equal(got, want) {
		t.Fatalf("encode(%q) = %v, want %v", piece, got, want)
	}
}

// randomModel has the letters a to c and random merges of what exists so far,
// in a random order of ranks.
func randomModel(t *rapid.T) *bpe {
	m := &bpe{vocab: map[string]tokenID{"a": 0, "b": 1, "c": 2}, unk: noID}
	pieces := []string{"a", "b", "c"}
	var pairs []merge
	for range rapid.IntRange(1, 30).Draw(t, "merges") {
		part := rapid.SampledFrom(pieces)
		pair := merge{part.Draw(t, "left"), part.Draw(t, "right")}
		pairs = append(pairs, pair)
		product := pair[0] + pair[1]
		if _, ok := m.vocab[product]; !ok && len(product) < 20 {
			m.vocab[product] = tokenID(len(m.vocab))
			pieces = append(pieces, product)
		}
	}
	pairs = rapid.Permutation(pairs).Draw(t, "ranks")
	m.merges = mergeTable{ranks: map[uint64]uint32{}, products: make([]tokenID, len(pairs))}
	for rank, pair := range pairs {
		if _, ok := m.vocab[pair[0]+pair[1]]; ok {
			if err := m.addMerge(uint32(rank), pair); err != nil {
				t.Fatal(err)
			}
		}
	}
	m.index()
	return m
}

func TestMergeIsNaiveMerge(t *testing.T) {
	prop.Check(t, func(t *rapid.T) {
		m := randomModel(t)
		checkMerge(t, m, rapid.StringMatching("[a-c]{0,40}").Draw(t, "piece"))
	})
}

func TestMergeIsNaiveMergeOnGoldens(t *testing.T) {
	for _, name := range []string{"neox", "llama", "llama-unk", "merge-order"} {
		tok, file := loadGolden(t, "testdata/golden/"+name)
		for _, c := range file.Cases {
			piece := c.Text[:min(len(c.Text), 300)]
			checkMerge(t, tok.model, strings.ToValidUTF8(spellBytes(piece), ""))
			checkMerge(t, tok.model, strings.ToValidUTF8(piece, ""))
		}
	}
}

// A queue that looked at all pairs for each merge would not end.
func TestMergeLongWord(t *testing.T) {
	for _, name := range []string{"neox", "llama", "llama3", "merge-order"} {
		tok, err := Load("testdata/golden/" + name)
		if err != nil {
			t.Fatal(err)
		}
		long := 1 << 19
		if goldens.Few(t) {
			long = 1 << 17
		}
		for _, n := range []int{5000, long} {
			text := strings.Repeat("abcd", n/4)
			ids := encode(t, tok, text, false)
			if got := tok.Decode(ids, false); got != text {
				t.Errorf("%s: a word of %d characters becomes %d", name, n, len(got))
			}
		}
	}
}

func TestSpell(t *testing.T) {
	vocab := map[string]tokenID{
		"a": 0, "b": 1, "?": 2, "<0xC3>": 3, "<0xA9>": 4, "<0xE4>": 5, "##b": 6, "b</w>": 7, "##b</w>": 8, "é": 9,
	}
	for _, test := range []struct {
		name, piece string
		model       bpe
		want        []int
	}{
		{"unknown dropped", "axb", bpe{unk: noID}, []int{0, 1}},
		{"unknown", "xayyb", bpe{unk: 2}, []int{2, 0, 2, 2, 1}},
		{"fused unknown", "xayyb", bpe{unk: 2, fuseUnk: true}, []int{2, 0, 2, 1}},
		{"known character before bytes", "é", bpe{unk: 2, byteFallback: true}, []int{9}},
		{"bytes", "aé\u00ffê", bpe{unk: 2, byteFallback: true}, []int{0, 9, 2, 2}},
		{"bytes missing one", "ä", bpe{unk: 2, byteFallback: true}, []int{2}},
		{"prefix and suffix", "abb", bpe{unk: 2, prefix: "##", suffix: "</w>"}, []int{0, 6, 8}},
		{"suffix alone", "b", bpe{unk: 2, prefix: "##", suffix: "</w>"}, []int{7}},
	} {
		m := test.model
		m.vocab = vocab
		m.index()
		if got := m.encode(nil, test.piece, &word{}); !slices.Equal(got, test.want) {
			t.Errorf("%s: encode(%q) = %v, want %v", test.name, test.piece, got, test.want)
		}
	}
	// Bytes overtake an unknown token that waits, as they do in the library.
	m := bpe{vocab: map[string]tokenID{"?": 2, "<0xC3>": 3, "<0xA9>": 4}, unk: 2, byteFallback: true}
	m.index()
	if got := fmt.Sprint(m.encode(nil, "xé", &word{})); got != "[3 4 2]" {
		t.Errorf("bytes after an unknown token = %s, want [3 4 2]", got)
	}
}

func TestMergeForms(t *testing.T) {
	const vocab = `"vocab": {"a": 0, "b": 1, "ab": 2, "ba": 3, "#version": 4, "#versiona": 5}`
	for merges, want := range map[string]string{
		`["#version: 0.2", "b a", "a b"]`: "[0 3]",
		`[["b", "a"], ["a", "b"]]`:        "[0 3]",
		`["a b", "b a"]`:                  "[2 0]",
		`["a b", "b a", "a b"]`:           "[0 3]", // the last one counts
		`[]`:                              "[0 1 0]",
		`[["#version", "a"], ["b", "a"]]`: "[0 3]",
	} {
		tok, err := Parse([]byte(`{"model": {` + vocab + `, "merges": ` + merges + `}}`))
		if err != nil {
			t.Errorf("%s: %v", merges, err)
			continue
		}
		if got := fmt.Sprint(encode(t, tok, "aba", false)); got != want {
			t.Errorf("%s: %s, want %s", merges, got, want)
		}
	}
}

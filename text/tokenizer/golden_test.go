package tokenizer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// The goldens are small tokenizers in the forms that Hugging Face writes, with
// the ids and the text that its Rust library 0.23.2 gives.

type goldenFile struct {
	Cases       []goldenCase
	DecodeCases []goldenCase `json:"decode_cases"`
}

type goldenCase struct {
	Name       string
	Text       string
	IDs        []int
	IDsSpecial []int `json:"ids_special"`
	Tokens     []string

	Decoded     string
	DecodedSkip string `json:"decoded_skip"`

	// Optional cases depend on the version of Unicode.
	Optional bool
}

// goldenNames are all of them: one that is gone must not pass.
var goldenNames = []string{"added", "falcon", "llama", "llama-metaspace", "llama-unk", "llama3", "merge-order", "neox", "neox-pairs", "qwen2", "tekken"}

func goldenFolders(t testing.TB) []string {
	files, err := filepath.Glob("testdata/golden/*/tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	var folders, found []string
	for _, name := range goldenNames {
		folders = append(folders, filepath.Join("testdata/golden", name))
	}
	for _, file := range files {
		found = append(found, filepath.Dir(file))
	}
	if !slices.Equal(found, folders) {
		t.Fatalf("there are the goldens %q, want %q", found, folders)
	}
	return folders
}

func loadGolden(t testing.TB, folder string) (*Pipeline, goldenFile) {
	data, err := os.ReadFile(filepath.Join(folder, "cases.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file goldenFile
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	tok, err := Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	return tok, file
}

func TestGolden(t *testing.T) {
	for _, folder := range goldenFolders(t) {
		t.Run(filepath.Base(folder), func(t *testing.T) {
			tok, file := loadGolden(t, folder)
			optional, failed := 0, 0
			for _, c := range file.Cases {
				report, reported := t.Errorf, false
				if c.Optional {
					optional++
					report = func(format string, args ...any) { reported = true; t.Logf(format, args...) }
				}
				checkEncode(t, tok, c, report)
				checkDecode(tok, c, c.IDsSpecial, report)
				checkStream(t, tok, c.IDs, false)
				checkStream(t, tok, c.IDsSpecial, true)
				if reported {
					failed++
				}
			}
			for _, c := range file.DecodeCases {
				checkDecode(tok, c, c.IDs, t.Errorf)
				checkStream(t, tok, c.IDs, false)
				checkStream(t, tok, c.IDs, true)
			}
			t.Logf("%d cases (%d of %d optional ones pass), %d decode cases", len(file.Cases), optional-failed, optional, len(file.DecodeCases))
		})
	}
}

func checkEncode(t *testing.T, tok *Pipeline, c goldenCase, report func(string, ...any)) {
	if got := encode(t, tok, c.Text, false); !slices.Equal(got, c.IDs) {
		report("%s: Encode(%.200q)\n got %v\nwant %v", c.Name, c.Text, got, c.IDs)
	}
	got := encode(t, tok, c.Text, true)
	if !slices.Equal(got, c.IDsSpecial) {
		report("%s: Encode with special tokens\n got %v\nwant %v\nthat is %q", c.Name, got, c.IDsSpecial, c.Tokens)
	}
	for i, want := range c.Tokens {
		id := c.IDsSpecial[i]
		piece, ok := tok.Piece(id)
		// For added tokens the goldens have the text that was found.
		if _, added := tok.addedIDs[piece]; !ok || !added && piece != want {
			report("%s: Piece(%d) = %q, want %q", c.Name, id, piece, want)
		}
		if back, _ := tok.ID(piece); back != id {
			report("%s: ID(%q) = %d, want %d", c.Name, piece, back, id)
		}
	}
}

func checkDecode(tok *Pipeline, c goldenCase, ids []int, report func(string, ...any)) {
	if got := tok.Decode(ids, false); got != c.Decoded {
		report("%s: Decode\n got %.300q\nwant %.300q", c.Name, got, c.Decoded)
	}
	if got := tok.Decode(ids, true); got != c.DecodedSkip {
		report("%s: Decode without special tokens\n got %.300q\nwant %.300q", c.Name, got, c.DecodedSkip)
	}
}

// encode is the ids of a text.
func encode(t interface{ Fatalf(string, ...any) }, tok Tokenizer, text string, special bool) []int {
	ids, err := tok.Encode(text, special)
	if err != nil {
		t.Fatalf("%.100q: %v", text, err)
	}
	return ids
}

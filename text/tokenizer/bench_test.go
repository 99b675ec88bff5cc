package tokenizer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// benchmarkTexts returns 1 MB of prose, of code, and of one word.
func benchmarkTexts(b *testing.B) map[string]string {
	prose, err := os.ReadFile("testdata/prose.txt")
	if err != nil {
		b.Fatal(err)
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		b.Fatal(err)
	}
	var code strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			b.Fatal(err)
		}
		code.Write(text)
	}
	return map[string]string{
		"prose":    megabyte(string(prose)),
		"code":     megabyte(code.String()),
		"one-word": megabyte("pneumonoultramicroscopicsilicovolcanoconiosis"),
	}
}

func megabyte(text string) string {
	return strings.Repeat(text, 1<<20/len(text)+1)[:1<<20]
}

func BenchmarkEncode(b *testing.B) {
	texts := benchmarkTexts(b)
	for _, name := range []string{"neox", "llama", "llama3", "falcon"} {
		tok, err := Load(filepath.Join("testdata/golden", name))
		if err != nil {
			b.Fatal(err)
		}
		for _, kind := range []string{"prose", "code", "one-word"} {
			b.Run(name+"/"+kind, func(b *testing.B) {
				b.SetBytes(int64(len(texts[kind])))
				b.ReportAllocs()
				for b.Loop() {
					encode(b, tok, texts[kind], true)
				}
			})
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	text := benchmarkTexts(b)["prose"]
	for _, name := range []string{"neox", "llama", "llama3"} {
		tok, err := Load(filepath.Join("testdata/golden", name))
		if err != nil {
			b.Fatal(err)
		}
		ids := encode(b, tok, text, true)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				tok.Decode(ids, false)
			}
		})
	}
}

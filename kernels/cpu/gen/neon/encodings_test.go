package main

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestNEONEncodings compares words with what an assembler makes of their texts: every instruction
// that the generators know, with registers whose numbers differ in all bits, and every word of the
// files.
func TestNEONEncodings(t *testing.T) {
	var texts []string
	var want []uint32
	for name, word := range encodings {
		for _, numbers := range [][]int{{21, 10, 19}, {10, 21, 12}} {
			n := strings.Count(armText(name), "%d")
			values := make([]any, n)
			for i := range values {
				values[i] = numbers[i]
			}
			texts, want = append(texts, fmt.Sprintf(armText(name), values...)), append(want, encoded(word, numbers[:n]))
		}
	}
	files, err := filepath.Glob("../../*_arm64.s")
	if err != nil || len(files) != len(generators) {
		t.Fatalf("%d files of %d generators: %v", len(files), len(generators), err)
	}
	for _, file := range files {
		assembly, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\tWORD \$(\S+) // (.*)\n`).FindAllStringSubmatch(string(assembly), -1) {
			var word uint32
			if _, err := fmt.Sscan(m[1], &word); err != nil {
				t.Fatal(err)
			}
			texts, want = append(texts, m[2]), append(want, word)
		}
	}
	for i, got := range assembled(t, texts) {
		if got != want[i] {
			t.Errorf("%s is %08x, want %08x", texts[i], want[i], got)
		}
	}
}

// assembled are the words that clang makes of instructions.
func assembled(t *testing.T, texts []string) (words []uint32) {
	clang, err := exec.LookPath("clang-19")
	if err != nil {
		t.Skip("there is no clang-19")
	}
	object := filepath.Join(t.TempDir(), "words.o")
	cmd := exec.Command(clang, "--target=aarch64-linux-gnu", "-c", "-x", "assembler", "-o", object, "-")
	cmd.Stdin = strings.NewReader(strings.Join(texts, "\n") + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	file, err := elf.Open(object)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	code, err := file.Section(".text").Data()
	if err != nil || len(code) != 4*len(texts) {
		t.Fatalf("%d bytes for %d instructions: %v", len(code), len(texts), err)
	}
	for i := range texts {
		words = append(words, binary.LittleEndian.Uint32(code[4*i:]))
	}
	return words
}

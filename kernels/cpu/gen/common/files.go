// Package common has what the generators of kernels/cpu share.
package common

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// Main runs those generators that the arguments name, or all of them.
func Main[G any](generators map[string]G, run func(name string, generate G, check bool) error) {
	check := flag.Bool("check", false, "compare with the files, and write nothing")
	flag.Parse()
	for name, generate := range generators {
		if flag.NArg() > 0 && !slices.Contains(flag.Args(), name) {
			continue
		}
		if err := run(name, generate, *check); err != nil {
			fmt.Fprintln(os.Stderr, "gen:", err)
			os.Exit(1)
		}
	}
}

// Wrapped is a doc comment in lines of 100 columns, with the slashes before them.
func Wrapped(doc string) (lines []string) {
	line := "//"
	for word := range strings.FieldsSeq(doc) {
		if utf8.RuneCountInString(line+" "+word) > 100 {
			lines, line = append(lines, line[3:]), "//"
		}
		line += " " + word
	}
	return append(lines, line[3:])
}

// Write writes a file, or compares it with what is there.
func Write(text []byte, name string, check bool) error {
	if !check {
		return os.WriteFile(name, text, 0o666)
	}
	old, err := os.ReadFile(name)
	if err == nil && !bytes.Equal(old, text) {
		err = fmt.Errorf("%s is not what its generator gives: run it in kernels/cpu/gen", filepath.Base(name))
	}
	return err
}

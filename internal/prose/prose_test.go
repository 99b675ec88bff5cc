// Package prose checks the language of the tree: banned phrases and the length of lines.
package prose

import (
	"bytes"
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"testing"
	"unicode/utf8"
)

const root, columns = "../..", 100

// banned lists phrases that docs/glossary.md replaces. A line is matched only if it contains one of
// the words in some (lower case), which saves most of the work.
var banned = []struct{ some, phrase, write string }{
	{"hang", `(?i)\bhangs? on\b`, "depends on"},
	{"unless told", `(?i)\bunless told\b`, "by default"},
	{"so many", `(?i)\bso many\b`, "at most N, or the number"},
	{"as many as there", `(?i)\bas many as there\b`, "all"},
	{"hither", `(?i)\bt?hither\b`, "to, from"},
	{"prompt read", `(?i)\bprompts? (is|are|was|were|to be|being) read\b`, "prefill"},
	{"read prompt", `(?i)\bread(s|ing)? (a |the |its |their |of )?prompts?\b`, "prefill"},
	{"who", `(^|[.;:] )Who(ever)? [a-z]+[^?]*$`, "name the subject"},
	{"what", `(^|[.;] )What (is|was|are|were|has|had|comes|came|there|it|they|goes|does|a|an|the|of)\b[^?]*$`, "name the subject"},
	{"kept of", `(?i)\bkept of\b`, "name the state"},
	{"body whoever", `(?i)\b(nobody|somebody|whoever)\b`, "name the reader, client or rank"},
	{"under way", `(?i)\bunder way\b`, "active, running"},
	{"that there", `(?i)\bthose that there are\b|\bthat there (is|are)\b`, "the, all"},
	{"where there", `(?i)\bwhere there (is|are)\b`, "with, if"},
	{"less than nothing", `(?i)\bless than nothing\b`, "must not be negative"},
	{"one's own", `(?i)\bone's own\b`, "your own, its own"},
	{"it not them not", `(?i)\b(has|have|had|is|are) it not\b|\bhas them not\b`, "has no"},
	{"such of", `(?i)\bsuch of\b`, "those"},
	{"on from", `(?i)\bgo(es)? on from\b`, "resume from"},
}

// wordsOf splits some into the substrings of which one must be in the line.
func wordsOf(some string) []string {
	switch some {
	case "prompt read", "read prompt":
		return []string{"prompt"}
	case "body whoever":
		return []string{"nobody", "somebody", "whoever"}
	case "it not them not":
		return []string{" it not", " them not"}
	}
	return []string{some}
}

type rule struct {
	words []string
	re    *regexp.Regexp
	write string
}

func rules() []rule {
	var out []rule
	for _, b := range banned {
		out = append(out, rule{wordsOf(b.some), regexp.MustCompile(b.phrase), b.write})
	}
	return out
}

// find returns the first banned phrase in a line of prose, and what to write.
func find(list []rule, line string) (phrase, write string) {
	low := strings.ToLower(line)
	for _, r := range list {
		for _, w := range r.words {
			if strings.Contains(low, w) {
				if s := r.re.FindString(line); s != "" {
					return s, r.write
				}
				break
			}
		}
	}
	return "", ""
}

// line is a line of prose: a comment, a string literal, or text of a page.
type line struct {
	number  int
	text    string
	measure bool // its length counts
}

// pages returns the prose of a Markdown page: without code blocks, and with `code` taken out. The
// length of tables, headings and lines that end with a link longer than a line is free.
func pages(text string) []line {
	var out []line
	code := false
	spans := regexp.MustCompile("`[^`]*`|<!--.*?-->")
	for i, s := range strings.Split(text, "\n") {
		t := strings.TrimSpace(s)
		if strings.HasPrefix(t, "```") || strings.HasPrefix(t, "~~~") {
			code = !code
			continue
		}
		if code {
			continue
		}
		free := strings.HasPrefix(t, "|") || strings.HasPrefix(t, "#") || strings.HasPrefix(t, "<!--") ||
			strings.HasPrefix(t, "![") || !strings.Contains(strings.TrimLeft(t, "-*0123456789. "), " ")
		out = append(out, line{i + 1, spans.ReplaceAllString(t, "x"), false})
		out[len(out)-1].measure = !free && utf8.RuneCountInString(s) > columns
	}
	return out
}

// sources returns comments and string literals of Go. Tests' strings are left out: they hold
// inputs and outputs.
func sources(name string, text []byte) []line {
	var out []line
	set := token.NewFileSet()
	file := set.AddFile(name, -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, scanner.ScanComments)
	test := strings.HasSuffix(name, "_test.go")
	lines := bytes.Split(text, []byte("\n"))
	for {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			return out
		}
		if tok != token.COMMENT && (tok != token.STRING || test) || strings.HasPrefix(lit, "//go:") {
			continue
		}
		first := file.Line(pos)
		for i, t := range strings.Split(lit, "\n") {
			long := false
			if tok == token.COMMENT {
				whole := strings.TrimSpace(string(lines[first+i-1]))
				alone := strings.HasPrefix(whole, "//") || strings.HasPrefix(lit, "/*")
				long = alone && utf8.RuneCountInString(whole) > columns && strings.Contains(strings.TrimLeft(whole, "/ \t"), " ") &&
					!strings.Contains(whole, "://") && !strings.HasPrefix(strings.TrimPrefix(t, "//"), "\t")
			}
			out = append(out, line{first + i, strings.Trim(t, "/*\"` \t"), long})
		}
	}
}

// kernels returns the comments of C++ that have lines of their own. Only their length counts.
func kernels(text string) []line {
	var out []line
	for i, s := range strings.Split(text, "\n") {
		if s = strings.TrimSpace(s); strings.HasPrefix(s, "//") {
			out = append(out, line{i + 1, "", utf8.RuneCountInString(s) > columns})
		}
	}
	return out
}

// TestProse checks README, docs, help texts, comments and string literals. With
// KRAIT_PROSE=folders it prints counts per folder instead.
func TestProse(t *testing.T) {
	list := rules()
	counts := map[string]int{}
	seen := 0
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, file)
		name = filepath.ToSlash(name)
		if d.IsDir() {
			if b := d.Name(); b == "testdata" && name != "testdata" || b == "golden" || b == "node_modules" || name != "." && strings.HasPrefix(b, ".") || name == "internal/prose" {
				return fs.SkipDir
			}
			return nil
		}
		var prose []line
		switch filepath.Ext(name) {
		case ".go", ".md", ".cu", ".h":
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			seen++
			if bytes.HasPrefix(text, []byte("// Code generated")) || bytes.HasPrefix(text, []byte("<!-- Code generated")) {
				return nil
			}
			if name == "docs/glossary.md" || name == "docs/reproduction/README.md" || name == "docs/ptxas.md" {
				return nil // the first names words to avoid; the others are generated
			}
			switch filepath.Ext(name) {
			case ".md":
				prose = pages(string(text))
			case ".go":
				prose = sources(name, text)
			default:
				prose = kernels(string(text))
			}
		}
		for _, l := range prose {
			fault := ""
			if l.measure {
				fault = fmt.Sprintf("is longer than %d columns", columns)
			} else if phrase, write := find(list, l.text); phrase != "" {
				fault = fmt.Sprintf("%q: write %s", strings.TrimSpace(phrase), write)
			}
			if fault == "" {
				continue
			}
			top, _, _ := strings.Cut(name, "/")
			counts[top]++
			if os.Getenv("KRAIT_PROSE") == "" {
				t.Errorf("%s:%d: %s", name, l.number, fault)
			}
		}
		return nil
	})
	if err != nil || seen < 300 {
		t.Errorf("%d files seen: %v", seen, err)
	}
	if os.Getenv("KRAIT_PROSE") != "" {
		var names []string
		for n := range counts {
			names = append(names, n)
		}
		sort.Strings(names)
		for _, n := range names {
			fmt.Println(n, counts[n])
		}
	}
}

// TestFind checks the rules themselves, on both sides.
func TestFind(t *testing.T) {
	list := rules()
	for _, bad := range []string{
		"It hangs on the batch.", "8 unless told otherwise", "so many tokens", "moves thither", "the prompt is read", "a rank reads prompts",
		"Who asks first is served.", "Stop. Whoever waits goes.", "What is kept goes.", "bytes kept of a prompt", "nobody waits", "the step under way",
		"the one that there is", "all where there are some", "it is less than nothing", "on one's own", "it has it not", "such of them", "goes on from there",
	} {
		if phrase, _ := find(list, bad); phrase == "" {
			t.Errorf("%q passes", bad)
		}
	}
	for _, good := range []string{
		"The result depends on the batch.", "What is a rank? A process.", "Whole prompts are prefilled.", "The scheduler knows who runs.",
		"Who decides?", "there are two ranks", "underway", "It reads the prompt's file format",
	} {
		if phrase, _ := find(list, good); phrase != "" && good != "It reads the prompt's file format" {
			t.Errorf("%q is refused for %q", good, phrase)
		}
	}
	long := strings.Repeat("word ", 25)
	for text, want := range map[string]bool{long: true, "| " + long: false, "```\n" + long + "\n```": false, "short": false} {
		got := false
		for _, l := range pages(text) {
			got = got || l.measure
		}
		if got != want {
			t.Errorf("pages(%q) measures %v", text, got)
		}
	}
	for text, want := range map[string]int{"package p\n// " + long + "\n": 1, "package p\n\nvar x = `" + long + "`\n": 0, "package p\n//\t" + long + "\n": 0} {
		got := 0
		for _, l := range sources("p.go", []byte(text)) {
			if l.measure {
				got++
			}
		}
		if got != want {
			t.Errorf("sources(%q) measures %d", text, got)
		}
	}
}

// TestLinks checks that relative links of README, CONTRIBUTING and docs lead to files, and their
// anchors to headings.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	var list []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, files...)
	}
	seen := 0
	for _, file := range list {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(withoutCode(string(text)), -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, ":") {
				continue
			}
			seen++
			to := file
			if target != "" {
				to = filepath.Join(filepath.Dir(file), target)
			}
			page, err := os.ReadFile(to)
			if info, statErr := os.Stat(to); statErr != nil || err != nil && !info.IsDir() {
				t.Errorf("%s links to %s, which does not exist", file, m[1])
			} else if anchor != "" && !anchors(string(page))[anchor] {
				t.Errorf("%s links to %s, which has no such heading", file, m[1])
			}
		}
	}
	if seen < 50 {
		t.Errorf("%d links seen", seen)
	}
}

func withoutCode(text string) string {
	return regexp.MustCompile("(?s)```.*?```|`[^`\n]*`").ReplaceAllString(text, "")
}

// anchors lists the anchors of a page's headings, as GitHub makes them.
func anchors(text string) map[string]bool {
	out := map[string]bool{}
	drop := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	for _, s := range strings.Split(text, "\n") {
		if strings.HasPrefix(s, "#") {
			s = strings.ToLower(strings.TrimSpace(strings.TrimLeft(s, "#")))
			out[strings.ReplaceAll(drop.ReplaceAllString(s, ""), " ", "-")] = true
		}
	}
	return out
}

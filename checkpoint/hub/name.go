package hub

import (
	"cmp"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Name is the name of a published model: org/name[@revision], or org/name[@revision]/FILE.gguf for
// one of its files.
type Name struct {
	Repo     string // org/name
	Revision string // a branch, a tag or a commit; "": main
	File     string // a GGUF file, by its path in the repository; "": the model of the repository
}

const main = "main"

func (n Name) revision() string { return cmp.Or(n.Revision, main) }

// String returns the name as [Parse] reads it.
func (n Name) String() string {
	s := n.Repo
	if n.Revision != "" {
		s += "@" + n.Revision
	}
	if n.File != "" {
		s += "/" + n.File
	}
	return s
}

// component is an organization, the name of a repository, or a part of a revision.
var component = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]*$`)

// commit is the full name of a commit; hashes of files have the same form, or 64 digits.
var commit = regexp.MustCompile(`^[0-9a-f]{40}([0-9a-f]{24})?$`)

// Parse reads a name, and reports whether text is one. Names of local files, such as
// folder/FILE.gguf, are none.
func Parse(text string) (Name, bool) {
	org, rest, _ := strings.Cut(text, "/")
	end := strings.IndexAny(rest, "/@")
	if end < 0 {
		end = len(rest)
	}
	n := Name{Repo: org + "/" + rest[:end]}
	rest = rest[end:]
	if strings.HasPrefix(rest, "@") {
		n.Revision, rest = rest[1:], ""
		if path.Ext(n.Revision) == ".gguf" {
			n.Revision, n.File, _ = strings.Cut(n.Revision, "/")
		}
		if !isRevision(n.Revision) {
			return Name{}, false
		}
	} else if rest != "" {
		n.File = rest[1:]
	}
	if n.File != "" && (path.Ext(n.File) != ".gguf" || !isSafe(n.File)) || rest == "/" {
		return Name{}, false
	}
	return n, isRepo(n.Repo)
}

// isRepo reports whether text is org/name. A path such as folder/x.gguf is that of a file.
func isRepo(text string) bool {
	org, name, _ := strings.Cut(text, "/")
	fileLike := slices.Contains([]string{".gguf", ".ir", ".safetensors", ".json", ".jsonl", ".txt", ".bin"}, strings.ToLower(path.Ext(name)))
	return component.MatchString(org) && component.MatchString(name) && len(text) <= 200 && !fileLike &&
		!strings.Contains(text, "--") && !strings.Contains(text, "..")
}

func isRevision(text string) bool {
	for _, part := range strings.Split(text, "/") {
		if !component.MatchString(part) || strings.Contains(part, "..") {
			return false
		}
	}
	return len(text) <= 200
}

// isSafe reports whether the path of a file in a repository stays inside a folder on every system.
func isSafe(name string) bool {
	for _, part := range strings.Split(name, "/") {
		if part == "" || part == "." || part == ".." {
			return false
		}
	}
	return len(name) <= 500 && !strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\\' })
}

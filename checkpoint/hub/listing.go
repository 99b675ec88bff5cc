package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/krait-ml/krait/checkpoint/folder"
	"github.com/krait-ml/krait/checkpoint/gguf"
	"github.com/krait-ml/krait/internal/files"
)

// listing is the files of a commit.
type listing struct {
	Commit string `json:"sha"`
	Files  []file `json:"siblings"`
}

// file is a file of a repository. Large ones (LFS) are known by their SHA-256, others by git's
// SHA-1.
type file struct {
	Path string `json:"rfilename"`
	Size int64  `json:"size"`
	Blob string `json:"blobId"`
	LFS  *struct {
		SHA256 string `json:"sha256"`
		Size   int64  `json:"size"`
	} `json:"lfs"`
}

// mostListing bounds a listing, in bytes.
const mostListing = 32 << 20

// list asks the endpoint for the files of a revision.
func (h *Hub) list(ctx context.Context, n Name) (l *listing, err error) {
	err = h.retry(ctx, func() (bool, error) {
		resp, err := h.get(ctx, "api/models/"+n.Repo+"/revision/"+url.PathEscape(n.revision()), "blobs=true", 0)
		if err != nil {
			return false, err
		}
		if resp.StatusCode != http.StatusOK {
			return false, h.refusal(n, resp)
		}
		defer resp.Body.Close()
		data, err := io.ReadAll(io.LimitReader(resp.Body, mostListing+1))
		if err != nil {
			return false, temporary{error: err}
		}
		l, err = parseListing(data)
		return false, err
	})
	if err != nil {
		return nil, err
	}
	if commit.MatchString(n.Revision) && l.Commit != n.Revision {
		return nil, fmt.Errorf("%s: %s answers with the commit %s", n, h.Host(), l.Commit)
	}
	for _, f := range l.Files {
		if !isSafe(f.Path) {
			return nil, fmt.Errorf("%s lists the file %s, whose name leads out of its folder: refused", n.Repo, files.Quote(f.Path))
		}
	}
	return l, nil
}

func parseListing(data []byte) (*listing, error) {
	l := &listing{}
	if len(data) > mostListing {
		return nil, fmt.Errorf("the list of files is larger than %d MiB", mostListing>>20)
	}
	if err := json.Unmarshal(data, l); err != nil {
		return nil, fmt.Errorf("the list of files is malformed: %w", err)
	}
	if !commit.MatchString(l.Commit) {
		return nil, fmt.Errorf("the list of files names the commit %s, which is no hash", files.Quote(l.Commit))
	}
	for i := range l.Files {
		if f := &l.Files[i]; f.LFS != nil {
			f.Blob, f.Size = f.LFS.SHA256, f.LFS.Size
		}
		if f := l.Files[i]; !commit.MatchString(f.Blob) || f.LFS != nil && len(f.Blob) != 64 || f.Size < 0 {
			return nil, fmt.Errorf("the list of files gives %s no size and hash", files.Quote(f.Path))
		}
	}
	return l, nil
}

func (l *listing) file(path string) (file, bool) {
	i := slices.IndexFunc(l.Files, func(f file) bool { return f.Path == path })
	if i < 0 {
		return file{}, false
	}
	return l.Files[i], true
}

// formats are the forms of weights in a folder, the preferred one first.
var formats = []struct{ single, index string }{
	{"model.safetensors", "model.safetensors.index.json"},
	{"pytorch_model.bin", "pytorch_model.bin.index.json"},
}

// weights returns the file with the weights of a folder, or the index of several.
func (l *listing) weights() (f file, index, ok bool) {
	for _, format := range formats {
		if f, ok := l.file(format.single); ok {
			return f, false, true
		}
		if f, ok := l.file(format.index); ok {
			return f, true, true
		}
	}
	return file{}, false, false
}

// companions returns the files of a folder that are not weights, as far as the part needs them.
func (l *listing) companions(part Part) (out []file) {
	for _, f := range l.Files {
		if f.Path == configName || f.Path == quantName || part != Config && !strings.Contains(f.Path, "/") && folder.IsCompanion(f.Path) && f.Size <= files.Tokenizer {
			out = append(out, f)
		}
	}
	return out
}

// ggufs returns the GGUF file that the name or a pattern selects, with its other parts.
func (l *listing) ggufs(n Name, pattern string) ([]file, error) {
	var all, found []string
	for _, f := range l.Files {
		if !isGGUF(f.Path) {
			continue
		}
		all = append(all, f.Path)
		if n.File == f.Path || n.File == "" && matches(pattern, f.Path) {
			found = append(found, f.Path)
		}
	}
	switch {
	case len(all) == 0 && pattern == "" && n.File == "":
		return nil, fmt.Errorf("%s has no weights that Krait reads: %s or %s, whole or with an index, or a GGUF file", n, formats[0].single, formats[1].single)
	case len(found) == 0 && n.File != "":
		return nil, fmt.Errorf("%s has no file %s; its GGUF files are: %s", n.Repo, files.Quote(n.File), some(all))
	case len(found) == 0:
		return nil, fmt.Errorf("%s has no GGUF file that matches %q; it has: %s", n, pattern, some(all))
	case len(found) > 1:
		return nil, fmt.Errorf("%s: several GGUF files match: %s; select one with krait pull --gguf PATTERN, or by its name: %s/%s", n, some(found), n, found[0])
	}
	var out []file
	for _, name := range parts(found[0]) {
		f, ok := l.file(name)
		if !ok {
			return nil, fmt.Errorf("%s lacks %s, a part of %s", n, name, found[0])
		}
		out = append(out, f)
	}
	return out, nil
}

// isGGUF reports whether a file is a model, or the first of its parts. Readers of pictures are not.
func isGGUF(name string) bool {
	number, _, part := gguf.Part(name)
	return path.Ext(name) == ".gguf" && (!part || number == 1) && !strings.HasPrefix(path.Base(name), "mmproj")
}

// parts returns the files of a GGUF model, by the name of its first one.
func parts(first string) []string {
	_, of, ok := gguf.Part(first)
	if !ok {
		return []string{first}
	}
	head := first[:len(first)-len("00001-of-00001.gguf")]
	out := make([]string, of)
	for i := range out {
		out[i] = fmt.Sprintf("%s%05d-of-%05d.gguf", head, i+1, of)
	}
	return out
}

// matches reports whether a GGUF file is one that a pattern of --gguf selects: a part of its name,
// or a pattern with * and ? for all of it or for its path. Case does not count.
func matches(pattern, name string) bool {
	pattern, name = strings.ToLower(pattern), strings.ToLower(name)
	if !strings.ContainsAny(pattern, "*?[") {
		return strings.Contains(name, pattern)
	}
	whole, _ := path.Match(pattern, name) // checkPattern has parsed it
	last, _ := path.Match(pattern, path.Base(name))
	return whole || last
}

func checkPattern(pattern string) error {
	if _, err := path.Match(pattern, ""); err != nil {
		return errors.New("the pattern is malformed; it is a part of a file's name, or has * and ?")
	}
	return nil
}

// some writes the first names of a list.
func some(names []string) string {
	const most = 6
	if len(names) == 0 {
		return "none"
	}
	text := strings.Join(names[:min(most, len(names))], ", ")
	if more := len(names) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

package hub

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/krait-ml/krait/checkpoint/safetensors"
)

// Part is how much of a model a command needs.
type Part int

// The parts of a model. A GGUF file is always needed whole.
const (
	Weights   Part = iota // all of it
	Tokenizer             // what is beside the weights
	Config                // config.json
)

// ErrMissing is the error of a model that is not in the cache, or of which a part is missing there.
var ErrMissing = errors.New("not in the cache")

const configName = "config.json"

// quantName is where ModelOpt says how weights are quantized.
const quantName = "hf_quant_config.json"

// folder is the folder of a repository: blobs has files by their hashes, snapshots/COMMIT links to
// them by their names, and refs/REVISION has the commit of a branch or tag.
func (h *Hub) folder(repo string) string {
	return filepath.Join(h.Cache, "models--"+strings.ReplaceAll(repo, "/", "--"))
}

// Find returns the path of a model in the cache: a folder, or a GGUF file. The error is
// [ErrMissing] if the part is not all there.
func (h *Hub) Find(n Name, part Part) (string, error) {
	dir := h.folder(n.Repo)
	id := n.revision()
	if !commit.MatchString(id) {
		text, err := os.ReadFile(filepath.Join(dir, "refs", filepath.FromSlash(id)))
		if err != nil {
			return "", ErrMissing
		}
		if id = strings.TrimSpace(string(text)); !commit.MatchString(id) {
			return "", ErrMissing
		}
	}
	return find(filepath.Join(dir, "snapshots", id), n, part)
}

// find is Find in a snapshot.
func find(dir string, n Name, part Part) (string, error) {
	here := func(name string) bool {
		info, err := os.Stat(filepath.Join(dir, filepath.FromSlash(name)))
		return err == nil && info.Mode().IsRegular()
	}
	whole := func(first string) bool {
		return !slices.ContainsFunc(parts(first), func(name string) bool { return !here(name) })
	}
	if n.File != "" {
		if !whole(n.File) {
			return "", ErrMissing
		}
		return filepath.Join(dir, filepath.FromSlash(n.File)), nil
	}
	if here(configName) && (part == Config || part == Tokenizer && here("tokenizer.json") || hasWeights(dir, here)) {
		return dir, nil
	}
	found := slices.DeleteFunc(ggufsIn(dir), func(name string) bool { return !whole(name) })
	switch len(found) {
	case 0:
		return "", ErrMissing
	case 1:
		return filepath.Join(dir, filepath.FromSlash(found[0])), nil
	}
	return "", fmt.Errorf("%s has %d GGUF files in the cache; name one: %s/%s", n, len(found), n, strings.Join(found, " or "+n.String()+"/"))
}

// hasWeights reports whether the weights of a folder are all there.
func hasWeights(dir string, here func(string) bool) bool {
	for _, format := range formats {
		if here(format.single) {
			return true
		}
		if here(format.index) {
			shards, err := shardsOf(filepath.Join(dir, format.index))
			return err == nil && !slices.ContainsFunc(shards, func(name string) bool { return !here(name) })
		}
	}
	return false
}

// shardsOf returns the files that an index names, in order.
func shardsOf(index string) ([]string, error) {
	tensors, err := safetensors.ReadIndex(index)
	var names []string
	for _, name := range tensors {
		names = append(names, filepath.ToSlash(name))
	}
	slices.Sort(names)
	return slices.Compact(names), err
}

// ggufsIn returns the GGUF files of a snapshot, of each model the first, in order.
func ggufsIn(dir string) (names []string) {
	fs.WalkDir(os.DirFS(dir), ".", func(name string, _ fs.DirEntry, err error) error {
		if err == nil && isGGUF(name) {
			names = append(names, name)
		}
		return nil
	})
	return names
}

// Cached is a snapshot in the cache, or what there is of a repository that has none.
type Cached struct {
	Name    Name   // its revision is the branch or tag, else the commit
	Path    string // of the folder or the GGUF file; "": there are no weights
	Bytes   int64  // of the files of the snapshot
	Partial int64  // bytes of interrupted downloads of the repository
}

// List returns the models in the cache, in the order of its folders.
func (h *Hub) List() (all []Cached, err error) {
	entries, err := os.ReadDir(h.Cache)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		repo, ok := strings.CutPrefix(e.Name(), "models--")
		if repo = strings.Replace(repo, "--", "/", 1); ok && isRepo(repo) {
			all = append(all, h.snapshots(repo)...)
		}
	}
	return all, err
}

// snapshots returns those of a repository.
func (h *Hub) snapshots(repo string) (all []Cached) {
	dir := h.folder(repo)
	named := map[string]string{} // a branch or tag of each commit, main before others
	fs.WalkDir(os.DirFS(filepath.Join(dir, "refs")), ".", func(name string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() && isRevision(name) {
			text, _ := os.ReadFile(filepath.Join(dir, "refs", filepath.FromSlash(name)))
			if id := strings.TrimSpace(string(text)); named[id] != main {
				named[id] = name
			}
		}
		return nil
	})
	interrupted, _ := filepath.Glob(filepath.Join(dir, "blobs", "*"+incomplete))
	partial := sizeOf(interrupted...)
	entries, _ := os.ReadDir(filepath.Join(dir, "snapshots"))
	for _, e := range entries {
		if !commit.MatchString(e.Name()) {
			continue
		}
		c := Cached{Name: Name{Repo: repo, Revision: cmp.Or(named[e.Name()], e.Name())}, Partial: partial}
		if c.Name.Revision == main {
			c.Name.Revision = ""
		}
		snapshot := filepath.Join(dir, "snapshots", e.Name())
		c.Path, _ = find(snapshot, c.Name, Weights)
		c.Bytes = treeSize(snapshot)
		all = append(all, c)
	}
	if len(all) == 0 && partial > 0 {
		all = append(all, Cached{Name: Name{Repo: repo}, Partial: partial})
	}
	return all
}

// treeSize returns the bytes of the files of a snapshot, to which it has links.
func treeSize(dir string) (bytes int64) {
	filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			bytes += sizeOf(path)
		}
		return nil
	})
	return bytes
}

func sizeOf(paths ...string) (bytes int64) {
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			bytes += info.Size()
		}
	}
	return bytes
}

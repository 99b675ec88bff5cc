package hub

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/krait-ml/krait/checkpoint/folder"
)

// Options of [Hub.Pull].
type Options struct {
	Part  Part
	GGUF  string                       // part of the name of a GGUF file, or a pattern with * and ?; "": none is preferred
	Begin func(files int, bytes int64) // called before a download that has bytes to fetch
	Tell  func(done, total int64)      // progress in bytes, one call at a time
}

// Pulled describes a model that is in the cache now.
type Pulled struct {
	Path    string // of the folder or the GGUF file
	Commit  string
	Files   int
	Bytes   int64
	Fetched int64 // bytes that were downloaded now
}

// atOnce is how many files are downloaded at the same time.
const atOnce = 4

// Pull asks the endpoint for the files of a model, downloads those that the cache lacks, and links
// them into a snapshot. The next call continues what an interrupted one has downloaded. Files are
// checked by size and hash. Several processes may pull one model at the same time.
func (h *Hub) Pull(ctx context.Context, n Name, o Options) (*Pulled, error) {
	if h.Offline {
		return nil, fmt.Errorf("%s: HF_HUB_OFFLINE is set; unset it to download", n)
	}
	if err := checkPattern(o.GGUF); err != nil {
		return nil, fmt.Errorf("--gguf %q: %w", o.GGUF, err)
	}
	l, err := h.list(ctx, n)
	if err != nil {
		return nil, err
	}
	p := &pull{Hub: h, ctx: ctx, name: n, o: o, list: l}
	if err := p.open(); err != nil {
		return nil, err
	}
	defer p.root.Close()
	if p.files, err = p.choose(); err != nil {
		return nil, err
	}
	if err := p.fetchAll(); err != nil {
		return nil, err
	}
	if err := p.link(); err != nil {
		return nil, err
	}
	return &Pulled{Path: p.path(), Commit: l.Commit, Files: len(p.files), Bytes: p.total, Fetched: p.fetched.Load()}, nil
}

// pull is a model that is downloaded.
type pull struct {
	*Hub
	ctx     context.Context
	name    Name
	o       Options
	list    *listing
	gguf    bool
	files   []file // weights last
	root    *os.Root
	total   int64
	fetched atomic.Int64
	mu      sync.Mutex
	done    int64
}

// choose returns the files of one checkpoint.
func (p *pull) choose() ([]file, error) {
	weights, index, ok := p.list.weights()
	if p.gguf = p.name.File != "" || p.o.GGUF != "" || !ok; p.gguf {
		return p.list.ggufs(p.name, p.o.GGUF)
	}
	if _, ok := p.list.file(configName); !ok {
		return nil, fmt.Errorf("%s has %s but no %s, without which Krait cannot read it", p.name, weights.Path, configName)
	}
	out := p.list.companions(p.o.Part)
	if p.o.Part != Weights {
		return out, nil
	}
	out = append(out, weights)
	if index {
		shards, err := p.shards(weights)
		if err != nil {
			return nil, err
		}
		out = append(out, shards...)
	}
	return out, nil
}

// shards downloads an index, and returns the files that it names.
func (p *pull) shards(index file) (out []file, err error) {
	if err := p.fetch(p.ctx, index); err != nil {
		return nil, err
	}
	names, err := shardsOf(filepath.Join(p.root.Name(), blobPath(index)))
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", p.name, index.Path, err)
	}
	for _, name := range names {
		f, ok := p.list.file(name)
		if !ok {
			return nil, fmt.Errorf("%s: %s names %s, which is no file of the repository", p.name, index.Path, name)
		}
		out = append(out, f)
	}
	return out, nil
}

// open makes the repository's folder. Files are made through it as a root, which no link leaves.
func (p *pull) open() (err error) {
	dir := p.folder(p.name.Repo)
	if err = os.MkdirAll(filepath.Join(dir, "blobs"), 0o755); err == nil {
		p.root, err = os.OpenRoot(dir)
	}
	return err
}

// fetchAll downloads all files, several at once. The first error ends it.
func (p *pull) fetchAll() error {
	p.done, p.total = 0, 0
	missing := 0
	for _, f := range p.files {
		p.total += f.Size
		have := p.have(f)
		if p.done += have; have < f.Size {
			missing++
		}
	}
	if rest := p.total - p.done; rest > 0 {
		if free, ok := folder.FreeBytes(p.root.Name()); ok && free < rest {
			return fmt.Errorf("%s needs %d MB more in %s, and its disk has %d MB free", p.name, rest/1e6, p.Cache, free/1e6)
		}
		if p.o.Begin != nil {
			p.o.Begin(missing, rest)
		}
	}
	ctx, stop := context.WithCancelCause(p.ctx)
	defer stop(nil)
	var wait sync.WaitGroup
	turns := make(chan struct{}, atOnce)
	for _, f := range p.files {
		turns <- struct{}{}
		wait.Go(func() {
			defer func() { <-turns }()
			if err := p.fetch(ctx, f); err != nil {
				stop(err)
			}
		})
	}
	wait.Wait()
	return context.Cause(ctx)
}

// count adds to the progress; the bytes of a file that begins anew are subtracted.
func (p *pull) count(bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done += bytes; p.o.Tell != nil && p.total > 0 {
		p.o.Tell(p.done, p.total)
	}
}

// have returns how many bytes of a file the cache has.
func (p *pull) have(f file) int64 {
	if p.complete(f) {
		return f.Size
	}
	info, err := p.root.Stat(blobPath(f) + incomplete)
	if err != nil || info.Size() > f.Size {
		return 0
	}
	return info.Size()
}

// link makes the snapshot: companions first, so that one with weights is complete, and then the
// revision. Until then what the revision named before stays in use.
func (p *pull) link() error {
	for _, f := range p.files {
		if err := p.linkFile(f); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	if p.name.Revision == p.list.Commit {
		return nil
	}
	ref := path.Join("refs", p.name.revision())
	if err := p.root.MkdirAll(path.Dir(ref), 0o755); err != nil {
		return err
	}
	temporary := fmt.Sprintf("%s.%s.tmp", ref, rand.Text()) // processes of several hosts may share the cache
	err := p.root.WriteFile(temporary, []byte(p.list.Commit), 0o644)
	if err == nil {
		err = p.root.Rename(temporary, ref)
	}
	if err != nil {
		p.root.Remove(temporary)
	}
	return err
}

// linkFile links a name of the snapshot to its blob; Windows may permit no symbolic links, and the
// name is another one of the same file then.
func (p *pull) linkFile(f file) error {
	name := path.Join("snapshots", p.list.Commit, f.Path)
	to := strings.Repeat("../", strings.Count(name, "/")) + blobPath(f)
	if now, err := p.root.Readlink(name); err == nil && now == to {
		return nil
	}
	if err := p.root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	if err := p.root.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	err := p.root.Symlink(to, name)
	if err != nil && runtime.GOOS == "windows" {
		err = p.root.Link(blobPath(f), name)
	}
	if errors.Is(err, os.ErrExist) { // another process was faster
		return nil
	}
	return err
}

// path returns where the model is.
func (p *pull) path() string {
	dir := filepath.Join(p.root.Name(), "snapshots", p.list.Commit)
	if p.gguf {
		return filepath.Join(dir, filepath.FromSlash(p.files[0].Path))
	}
	return dir
}

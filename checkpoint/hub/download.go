package hub

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// incomplete is the suffix of a blob that is being downloaded.
const incomplete = ".incomplete"

func blobPath(f file) string { return path.Join("blobs", f.Blob) }

// complete reports whether the cache has a file. It was checked before it got its name.
func (p *pull) complete(f file) bool {
	info, err := p.root.Stat(blobPath(f))
	return err == nil && info.Mode().IsRegular() && info.Size() == f.Size
}

// fetch downloads a file unless the cache has it. Of several processes one downloads, and the
// others wait for it.
func (p *pull) fetch(ctx context.Context, f file) error {
	if p.complete(f) || ctx.Err() != nil {
		return ctx.Err()
	}
	before := p.have(f)
	unlock, err := lock(ctx, filepath.Join(p.Cache, ".locks", filepath.Base(p.root.Name()), f.Blob+".lock"))
	if err != nil {
		return err
	}
	defer unlock()
	if p.complete(f) {
		p.count(f.Size - before)
		return nil
	}
	b, err := p.resume(ctx, f)
	if err != nil {
		return err
	}
	defer b.file.Close()
	p.count(b.size - before)
	for again := b.size > 0; ; again = false {
		if err := p.retry(ctx, func() (bool, error) { return p.attempt(ctx, b) }); err != nil {
			return fmt.Errorf("%s: %w", f.Path, err)
		}
		err := b.finish()
		if err == nil {
			return nil
		}
		if e := b.restart(); e != nil || !again { // the bytes of an earlier download may be of another file
			return errors.Join(err, e)
		}
	}
}

// blob is a file that is being downloaded.
type blob struct {
	p    *pull
	of   file
	file *os.File
	size int64 // bytes that it has
	most int64 // that it ever had: only more of them are progress
	sum  hash.Hash
}

// resume opens a blob, and hashes what an earlier download has left of it.
func (p *pull) resume(ctx context.Context, f file) (*blob, error) {
	file, err := p.root.OpenFile(blobPath(f)+incomplete, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	b := &blob{p: p, of: f, file: file}
	b.begin()
	left := readerFunc(func(to []byte) (int, error) {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		return file.Read(to)
	})
	if b.size, err = io.Copy(b.sum, left); err == nil && b.size > f.Size {
		err = b.truncate()
	}
	b.most = b.size
	if err != nil {
		file.Close()
		return nil, err
	}
	return b, nil
}

// begin starts the hash by which the file is known.
func (b *blob) begin() {
	if len(b.of.Blob) == sha256.Size*2 {
		b.sum = sha256.New()
		return
	}
	b.sum = sha1.New()
	fmt.Fprintf(b.sum, "blob %d\x00", b.of.Size) // as git begins it
}

func (b *blob) truncate() error {
	b.size = 0
	b.begin()
	return b.file.Truncate(0)
}

// restart drops what there is.
func (b *blob) restart() error {
	b.p.count(-b.size)
	return b.truncate()
}

func (b *blob) Write(data []byte) (int, error) {
	n, err := b.file.WriteAt(data, b.size)
	b.sum.Write(data[:n])
	b.size += int64(n)
	b.p.fetched.Add(int64(n))
	b.p.count(int64(n))
	return n, err
}

// finish checks the hash, and gives the blob its name.
func (b *blob) finish() error {
	if sum := hex.EncodeToString(b.sum.Sum(nil)); sum != b.of.Blob {
		return fmt.Errorf("%s: the %d bytes that %s sent have the hash %s, not %s; the download was deleted", b.of.Path, b.size, b.p.Host(), sum, b.of.Blob)
	}
	if err := b.file.Sync(); err != nil {
		return err
	}
	b.file.Close() // Windows renames no open file
	return b.p.root.Rename(blobPath(b.of)+incomplete, blobPath(b.of))
}

// attempt requests what is missing of a blob, and reports whether it got some of it.
func (p *pull) attempt(ctx context.Context, b *blob) (progress bool, err error) {
	if b.size == b.of.Size {
		return false, nil
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	stalled := temporary{error: fmt.Errorf("%s sends nothing for %s", p.Host(), p.stall)}
	watch := time.AfterFunc(p.stall, func() { stop(stalled) })
	defer watch.Stop()
	resp, err := p.get(ctx, p.name.Repo+"/resolve/"+p.list.Commit+"/"+escape(b.of.Path), "", b.size)
	if context.Cause(ctx) == stalled {
		return false, stalled
	}
	if errors.Is(err, errRedirect) {
		return false, err
	}
	if err != nil {
		return false, temporary{error: err}
	}
	defer resp.Body.Close()
	if err := p.accept(resp, b); err != nil {
		return false, err
	}
	body := readerFunc(func(to []byte) (int, error) {
		n, err := resp.Body.Read(to)
		watch.Reset(p.stall)
		return n, err
	})
	_, err = io.Copy(b, io.LimitReader(body, b.of.Size-b.size))
	var disk *os.PathError
	progress, b.most = b.size > b.most, max(b.size, b.most)
	switch {
	case b.size == b.of.Size:
		return progress, nil
	case errors.As(err, &disk):
		return progress, err
	case context.Cause(ctx) == stalled:
		return progress, stalled
	}
	return progress, temporary{error: fmt.Errorf("%s sent %d of %d bytes", resp.Request.URL.Host, b.size, b.of.Size)}
}

// accept checks that a response continues the blob, or begins it anew.
func (p *pull) accept(resp *http.Response, b *blob) error {
	switch resp.StatusCode {
	case http.StatusOK: // all of it
		if b.size > 0 {
			return b.restart()
		}
		return nil
	case http.StatusPartialContent:
		if strings.HasPrefix(resp.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", b.size)) {
			return nil
		}
	case http.StatusRequestedRangeNotSatisfiable:
	default:
		return p.refusal(p.name, resp)
	}
	err := temporary{error: fmt.Errorf("%s answers %s to a request for bytes from %d on", resp.Request.URL.Host, resp.Status, b.size)}
	if e := b.restart(); e != nil {
		return e
	}
	return err
}

// escape writes the path of a file for a URL.
func escape(name string) string {
	parts := strings.Split(name, "/")
	for i, part := range parts {
		parts[i] = url.PathEscape(part)
	}
	return strings.Join(parts, "/")
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(to []byte) (int, error) { return f(to) }

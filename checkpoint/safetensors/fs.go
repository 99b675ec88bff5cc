package safetensors

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"github.com/krait-ml/krait/internal/files"
)

// OpenFS is [OpenDir] for the root of a file system, such as an [embed.FS] or an archive. Files
// that are files of the system, as those of [os.DirFS] are, are mapped; others are read into
// memory, whole.
func OpenFS(fsys fs.FS) (*Set, error) {
	open := func(name string) (*File, error) { return openIn(fsys, filepath.ToSlash(name)) }
	if _, err := fs.Stat(fsys, singleName); !errors.Is(err, fs.ErrNotExist) {
		f, err := open(singleName)
		if err != nil {
			return nil, err
		}
		return SetOf(f), nil
	}
	data, err := files.ReadFS(fsys, indexName, maxHeader)
	if errors.Is(err, fs.ErrNotExist) {
		entries, err := fs.ReadDir(fsys, ".")
		if err != nil {
			return nil, err
		}
		return nil, noWeights("the file system", entries)
	}
	if err != nil {
		return nil, err
	}
	weightMap, err := parseIndex(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", indexName, err)
	}
	return openShards("", indexName, weightMap, open)
}

// openIn opens a file of a file system.
func openIn(fsys fs.FS, name string) (*File, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = fmt.Errorf("%s: is not a regular file (%s)", name, info.Mode().Type())
	case info.Size() > math.MaxInt:
		err = fmt.Errorf("%s: %d bytes are more than this system can address", name, info.Size())
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	if file, ok := f.(*os.File); ok {
		m, err := files.MapFile(file)
		if err != nil {
			file.Close()
			return nil, err
		}
		return parseMapped(name, m)
	}
	defer f.Close()
	data := make([]byte, info.Size())
	if _, err := io.ReadFull(f, data); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return Parse(name, data)
}

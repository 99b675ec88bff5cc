package cache

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/krait-ml/krait/exec/state"
	"github.com/krait-ml/krait/exec/state/statefile"
	"github.com/krait-ml/krait/internal/files"
	"github.com/krait-ml/krait/session/prefix"
)

// folder stores the host tier between processes: a file per node of its tree, named by its
// contents, so that existing files are not written again. Modification times are those of the
// nodes' last use.
type folder struct {
	dir      string
	origin   statefile.Origin
	codecs   string
	family   string          // prefix of the names of this model's files
	known    map[string]bool // names of valid files, and whether they are exact
	warnings []string
}

// suffix is the extension of the files.
const suffix = ".prefix"

func newFolder(dir string, o statefile.Origin, codecs string) (*folder, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := protect(dir); err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(o.Model + o.Layout + codecs))
	return &folder{dir: dir, origin: o, codecs: codecs, family: hex.EncodeToString(sum[:6]), known: map[string]bool{}}, nil
}

// protect restricts a folder to its owner, since it reveals prompts. A folder with other files is
// an error.
func protect(dir string) error {
	info, err := os.Stat(dir)
	if err != nil || !files.Exposed(info) {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if n := e.Name(); !strings.HasSuffix(n, suffix) && !strings.HasSuffix(n, ".tmp") {
			return fmt.Errorf("%s is accessible to others than its owner (%s) and has files other than a prefix cache, such as %s: give another folder, or run chmod 700 %[1]s",
				dir, info.Mode(), n)
		}
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return fmt.Errorf("%s is accessible to others than its owner (%s), and that cannot be changed: %w; give a folder that you own", dir, info.Mode(), err)
	}
	return nil
}

// name returns the name of a node's file.
func (f *folder) name(salt string, ids []int32, from int, state bool) string {
	sum := sha256.New()
	if salt != "" {
		fmt.Fprintf(sum, "%q\n", salt)
	}
	fmt.Fprintln(sum, from, state)
	_ = binary.Write(sum, binary.LittleEndian, ids) // a hash never fails
	return f.family + "-" + hex.EncodeToString(sum.Sum(nil)[:16]) + suffix
}

// stored is the contents of a file: KV pages of an edge, and possibly the states after it.
type stored struct {
	*state.Export
	last time.Time // of its use
}

func (s stored) rows(from, to int) (*state.HostKV, error) { return cutRows(s.KV[0], from, to), nil }
func (s stored) states() (*state.HostState, error)        { return s.State, nil }
func (s stored) exact(from, _ int) bool                   { return s.Exact && from >= s.KV[0].From }

// read loads the folder into the host tier, the most recently used files first, up to its capacity.
func (f *folder) read(h *host) error {
	list, err := f.list()
	if err != nil {
		return err
	}
	var found []stored
	var foreign, encoded, bad []string
	for room := h.o.Host; len(list) > 0 && room > 0; list = list[1:] {
		name := list[0].Name()
		k, err := f.open(name)
		if other := (*statefile.OriginError)(nil); errors.As(err, &other) {
			foreign = append(foreign, name)
			continue
		} else if errors.Is(err, errCodecs) {
			encoded = append(encoded, name)
			continue
		} else if err != nil {
			bad = append(bad, fmt.Sprintf("%s (%v)", name, err))
			continue
		}
		found = append(found, stored{k, list[0].ModTime()})
		room -= h.o.HostModel.Bytes(k.Tokens-k.KV[0].From, k.State != nil)
	}
	f.warn("are of another model or another layout over ranks, and are ignored", foreign)
	f.warn(fmt.Sprintf("are in other codecs than %s, and are ignored", cmp.Or(f.codecs, "none")), encoded)
	f.warn("cannot be used", bad)
	return f.plant(h, found)
}

// list lists the folder's files, the most recently used first.
func (f *folder) list() ([]fs.FileInfo, error) {
	entries, err := os.ReadDir(f.dir)
	var list []fs.FileInfo
	for _, e := range entries {
		if !e.Type().IsRegular() || !strings.HasSuffix(e.Name(), suffix) {
			continue
		}
		if info, err := e.Info(); err == nil { // otherwise it was removed meanwhile
			list = append(list, info)
		}
	}
	slices.SortStableFunc(list, func(a, b fs.FileInfo) int { return b.ModTime().Compare(a.ModTime()) })
	return list, err
}

// errCodecs is the error of a file in other codecs: to convert it would round twice.
var errCodecs = errors.New("it is in other codecs")

// open reads a file, and restricts it to its owner.
func (f *folder) open(name string) (*state.Export, error) {
	file, err := os.Open(filepath.Join(f.dir, name))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err == nil && files.Exposed(info) {
		err = file.Chmod(0o600)
	}
	if err != nil {
		return nil, err
	}
	k, err := statefile.Read(bufio.NewReaderSize(file, 1<<16), f.origin)
	if err != nil {
		return nil, err
	}
	if k.Codecs != f.codecs {
		return nil, errCodecs
	}
	if len(k.KV) != 1 || k.KV[0].To != k.Tokens || len(k.IDs) != k.Tokens || k.Tokens == k.KV[0].From {
		return nil, errors.New("it is not a file of a prefix cache")
	}
	if f.name(k.Salt, k.IDs, k.KV[0].From, k.State != nil) == name {
		f.known[name] = k.Exact
	}
	return k, nil
}

// plant adds files to the host tier, parents before their children.
func (f *folder) plant(h *host, found []stored) error {
	slices.SortStableFunc(found, func(a, b stored) int {
		return cmp.Or(cmp.Compare(a.Salt, b.Salt), slices.Compare(a.IDs, b.IDs), cmp.Compare(a.KV[0].From, b.KV[0].From))
	})
	orphans := 0
	now := h.o.Now()
	for _, s := range found {
		tokens := tokensOf(s.Salt, s.IDs)
		if h.tree.Matched(tokens.Prefix(s.KV[0].From)) < s.KV[0].From {
			orphans++
			continue
		}
		if err := h.take(tokens, s.State != nil, now-time.Since(s.last).Seconds(), s); err != nil {
			return err
		}
	}
	if orphans > 0 {
		f.warnings = append(f.warnings, fmt.Sprintf("%s: %d files cannot be used, since files of shorter prefixes are missing", f.dir, orphans))
	}
	return nil
}

// warn adds a warning that names files.
func (f *folder) warn(what string, names []string) {
	const most = 5
	if len(names) == 0 {
		return
	}
	text := strings.Join(names[:min(most, len(names))], ", ")
	if len(names) > most {
		text += fmt.Sprintf(" and %d more", len(names)-most)
	}
	f.warnings = append(f.warnings, fmt.Sprintf("%s: %s %s", f.dir, text, what))
}

// write writes the host tier, and removes this model's other files.
func (f *folder) write(h *host) error {
	held := h.tree.Entries()
	names := make([]string, len(held))
	stays := map[string]bool{}
	for i, x := range held {
		names[i] = f.name(x.Tokens.Salt(), idsOf(x.Tokens), x.From, x.State)
		stays[names[i]] = true
	}
	if err := f.sweep(stays); err != nil {
		return err
	}
	now := h.o.Now()
	for i, x := range held {
		path, last := filepath.Join(f.dir, names[i]), time.Now().Add(time.Duration((x.Last-now)*float64(time.Second)))
		n := h.nodes[x.Node]
		if exact, ok := f.known[names[i]]; ok && exact == n.exact && os.Chtimes(path, last, last) == nil {
			continue
		}
		if n.refused {
			continue // longer prefixes are orphans, unless another node has the same tokens
		}
		err := f.put(path, &state.Export{Tokens: x.Tokens.Len(), Codecs: f.codecs, Salt: x.Tokens.Salt(), IDs: idsOf(x.Tokens), Exact: n.exact, State: n.states, KV: []*state.HostKV{n.rows}})
		if err = cmp.Or(err, os.Chtimes(path, last, last)); err != nil {
			return err
		}
	}
	return nil
}

// put writes a file, completely or not at all.
func (f *folder) put(path string, k *state.Export) error {
	var b bytes.Buffer
	if err := statefile.Write(&b, f.origin, k); err != nil {
		return err
	}
	return files.WritePrivate(path, b.Bytes())
}

// sweep removes this model's files but those that stay, and temporary files of killed processes.
func (f *folder) sweep(stays map[string]bool) error {
	entries, err := os.ReadDir(f.dir)
	for _, e := range entries {
		name := e.Name()
		left := strings.HasPrefix(name, "."+f.family+"-") && strings.HasSuffix(name, ".tmp") && old(e)
		if left || strings.HasPrefix(name, f.family+"-") && strings.HasSuffix(name, suffix) && !stays[name] {
			if e := os.Remove(filepath.Join(f.dir, name)); e != nil && !errors.Is(e, fs.ErrNotExist) {
				err = cmp.Or(err, e)
			}
		}
	}
	return err
}

// old reports whether a file was last written more than an hour ago.
func old(e fs.DirEntry) bool {
	info, err := e.Info()
	return err == nil && time.Since(info.ModTime()) > time.Hour
}

func idsOf(t prefix.Tokens) []int32 {
	ids := make([]int32, t.Len())
	for i := range ids {
		ids[i] = t.At(i)
	}
	return ids
}

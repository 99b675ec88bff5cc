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

// folder is where the host's memory outlives the process: a file for each node of its
// tree, whose name says what it holds, so that what is there already is not written again.
// Files are as old as what they hold was used last.
type folder struct {
	dir      string
	origin   statefile.Origin
	codecs   string
	family   string          // what names of files of this model begin with
	known    map[string]bool // names of files that were read, and are whole
	warnings []string
}

// suffix is what names of files end with.
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

// protect takes from others the right to use a folder, since it tells what prompts were. A folder
// that is in other use, too, is an error.
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
			return fmt.Errorf("%s may be used by others than its owner (%s), and has more than a prefix cache, such as %s: give a folder of its own, or run chmod 700 %[1]s",
				dir, info.Mode(), n)
		}
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return fmt.Errorf("%s may be used by others than its owner (%s), and that cannot be changed: %w; give a folder of your own", dir, info.Mode(), err)
	}
	return nil
}

// name is that of the file of a node.
func (f *folder) name(salt string, ids []int32, from int, state bool) string {
	sum := sha256.New()
	if salt != "" {
		fmt.Fprintf(sum, "%q\n", salt)
	}
	fmt.Fprintln(sum, from, state)
	_ = binary.Write(sum, binary.LittleEndian, ids) // a sum takes all
	return f.family + "-" + hex.EncodeToString(sum.Sum(nil)[:16]) + suffix
}

// stored is what a file has: rows from a token on, up to the last, and maybe the states there.
type stored struct {
	*state.Export
	last time.Time // when it was used
}

func (s stored) rows(from, to int) (*state.HostKV, error) { return cutRows(s.KV[0], from, to), nil }
func (s stored) states() (*state.HostState, error)        { return s.State, nil }

// read brings what the folder has to the host's memory, what was used last first, as far
// as there is room.
func (f *folder) read(h *host) error {
	list, err := f.list()
	if err != nil {
		return err
	}
	var found []stored
	var foreign, others, bad []string
	for room := h.o.Host; len(list) > 0 && room > 0; list = list[1:] {
		name := list[0].Name()
		k, err := f.open(name)
		if other := (*statefile.OriginError)(nil); errors.As(err, &other) {
			foreign = append(foreign, name)
			continue
		} else if errors.Is(err, errCodecs) {
			others = append(others, name)
			continue
		} else if err != nil {
			bad = append(bad, fmt.Sprintf("%s (%v)", name, err))
			continue
		}
		found = append(found, stored{k, list[0].ModTime()})
		room -= h.o.HostModel.Bytes(k.Tokens-k.KV[0].From, k.State != nil)
	}
	f.warn("are of another model, or lie otherwise over ranks, and are left alone", foreign)
	f.warn(fmt.Sprintf("are in other codecs than %s, and are left alone", cmp.Or(f.codecs, "none")), others)
	f.warn("cannot be used", bad)
	return f.plant(h, found)
}

// list lists the folder's files, what was used last first.
func (f *folder) list() ([]fs.FileInfo, error) {
	entries, err := os.ReadDir(f.dir)
	var list []fs.FileInfo
	for _, e := range entries {
		if !e.Type().IsRegular() || !strings.HasSuffix(e.Name(), suffix) {
			continue
		}
		if info, err := e.Info(); err == nil { // or else it went meanwhile
			list = append(list, info)
		}
	}
	slices.SortStableFunc(list, func(a, b fs.FileInfo) int { return b.ModTime().Compare(a.ModTime()) })
	return list, err
}

// errCodecs is the error of a file that holds things otherwise than they are held here: to bring
// them over would round them twice.
var errCodecs = errors.New("it is in other codecs")

// open reads a file, which afterwards only its owner may read and write.
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
		return nil, errors.New("it is no part of a prefix cache")
	}
	if f.name(k.Salt, k.IDs, k.KV[0].From, k.State != nil) == name {
		f.known[name] = true
	}
	return k, nil
}

// plant makes nodes of what was found: each after those that it goes on from.
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
		f.warnings = append(f.warnings, fmt.Sprintf("%s: %d files go on from others that are missing, and cannot be used", f.dir, orphans))
	}
	return nil
}

// warn names files.
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

// write writes what the host's memory has, and removes this model's files of all else.
func (f *folder) write(h *host) error {
	held := h.tree.Held()
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
		if f.known[names[i]] && os.Chtimes(path, last, last) == nil {
			continue
		}
		n := h.nodes[x.Node]
		if n.refused {
			continue // what goes on from it is an orphan, unless its states are another's
		}
		err := f.put(path, &state.Export{Tokens: x.Tokens.Len(), Codecs: f.codecs, Salt: x.Tokens.Salt(), IDs: idsOf(x.Tokens), State: n.states, KV: []*state.HostKV{n.rows}})
		if err = cmp.Or(err, os.Chtimes(path, last, last)); err != nil {
			return err
		}
	}
	return nil
}

// put writes a file, which is whole or not there.
func (f *folder) put(path string, k *state.Export) error {
	var b bytes.Buffer
	if err := statefile.Write(&b, f.origin, k); err != nil {
		return err
	}
	return files.WritePrivate(path, b.Bytes())
}

// sweep removes this model's files, but for some, and what a process left that was ended
// while it wrote one.
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

// old reports whether nobody has written to a file for an hour.
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

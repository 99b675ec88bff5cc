package torchfile

import (
	"archive/zip"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/krait-ml/krait/internal/files"
)

// Bounds of what is read, far above what is written anywhere.
const (
	maxProgram = 64 << 20 // bytes
	maxTensors = 1 << 18
	maxEntries = 1 << 18
)

// parse reads the archive: its program, and the storages that this names.
func parse(data []byte) (map[string]Tensor, error) {
	if err := files.CheckDownload(data); err != nil {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(data, []byte{0x80, 2, 0x8a, 10, 0x6c, 0xfc}):
		return nil, errors.New("the file is in the form that PyTorch wrote before version 1.6, which Krait does not read; load and save it with a newer PyTorch")
	case !bytes.HasPrefix(data, []byte("PK")):
		return nil, errors.New("the file is not a zip archive, as torch.save writes them")
	}
	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, fmt.Errorf("the archive is damaged or cut: %w", err)
	}
	if len(z.File) > maxEntries {
		return nil, fmt.Errorf("the archive has %d files", len(z.File))
	}
	a := &archive{data: data, files: map[string]*zip.File{}, used: map[string][2]int64{}}
	for _, f := range z.File {
		if _, ok := a.files[f.Name]; ok {
			return nil, fmt.Errorf("the archive has two files %s", files.Quote(f.Name))
		}
		a.files[f.Name] = f
		if root, ok := strings.CutSuffix(f.Name, "data.pkl"); ok && (root == "" || strings.Count(root, "/") == 1) {
			if a.found {
				return nil, errors.New("the archive has two data.pkl")
			}
			a.root, a.found = root, true
		}
	}
	if !a.found {
		return nil, errors.New("the archive has no data.pkl: torch.save did not write it")
	}
	order, ok, err := a.entry("byteorder")
	if err == nil && ok && string(order) != "little" {
		err = fmt.Errorf("the bytes of numbers are in the order %s; Krait reads little-endian files", files.Quote(string(order)))
	}
	if err != nil {
		return nil, err
	}
	program, _, err := a.entry("data.pkl")
	if err != nil {
		return nil, err
	}
	if len(program) > maxProgram {
		return nil, fmt.Errorf("data.pkl has %d bytes; the most that Krait reads is %d", len(program), maxProgram)
	}
	return a.tensors(program)
}

// archive finds the files that lie beside data.pkl.
type archive struct {
	data  []byte
	root  string
	found bool
	files map[string]*zip.File
	used  map[string][2]int64 // from where to where they lie
}

// entry is a view of a file of the archive, which must not be compressed.
func (a *archive) entry(name string) (data []byte, ok bool, err error) {
	f, ok := a.files[a.root+name]
	if !ok {
		return nil, false, nil
	}
	at, err := f.DataOffset()
	size := f.UncompressedSize64
	switch {
	case err != nil:
		return nil, true, fmt.Errorf("%s of the archive: %w", files.Quote(name), err)
	case f.Method != zip.Store || size != f.CompressedSize64:
		return nil, true, fmt.Errorf("%s of the archive is compressed, which torch.save does not do", files.Quote(name))
	case at < 0 || at > int64(len(a.data)) || size > uint64(int64(len(a.data))-at):
		return nil, true, fmt.Errorf("%s of the archive has %d bytes from byte %d on, and the file ends at %d: it is truncated; download it again", files.Quote(name), size, at, len(a.data))
	}
	a.used[name] = [2]int64{at, at + int64(size)}
	return a.data[at : at+int64(size) : at+int64(size)], true, nil
}

// tensors runs the program, and takes the tensors of what it makes.
func (a *archive) tensors(program []byte) (map[string]Tensor, error) {
	m := &machine{program: program, storage: a.storage, memo: map[uint32]any{}}
	top, err := m.run()
	if err != nil {
		return nil, fmt.Errorf("data.pkl, at byte %d: %w", m.at, err)
	}
	d, ok := top.(*dict)
	if !ok {
		return nil, fmt.Errorf("data.pkl makes %s; a checkpoint is a dict of tensors", kind(top))
	}
	if err := a.apart(); err != nil {
		return nil, err
	}
	out := map[string]Tensor{}
	return out, collect(out, "", d, 0, map[*dict]bool{})
}

// apart fails where files of the archive that were used lie in each other.
func (a *archive) apart() error {
	names := slices.SortedFunc(maps.Keys(a.used), func(x, y string) int {
		return cmp.Or(cmp.Compare(a.used[x][0], a.used[y][0]), cmp.Compare(a.used[x][1], a.used[y][1]), cmp.Compare(x, y))
	})
	for i := 1; i < len(names); i++ {
		if before, x := a.used[names[i-1]], a.used[names[i]]; x[0] < before[1] {
			return fmt.Errorf("%s and %s of the archive overlap", files.Quote(names[i-1]), files.Quote(names[i]))
		}
	}
	return nil
}

// maxDeep is how deep dicts may lie in dicts.
const maxDeep = 8

// collect takes the tensors of a dict, by the names that lead to them.
func collect(out map[string]Tensor, prefix string, d *dict, deep int, seen map[*dict]bool) error {
	if seen[d] || deep > maxDeep {
		return fmt.Errorf("the dict %s is in two places, or more than %d deep in others", files.Quote(prefix), maxDeep)
	}
	seen[d] = true
	for _, p := range d.pairs {
		key, ok := p.key.(string)
		if !ok {
			return fmt.Errorf("%s is a key; names of tensors are texts", kind(p.key))
		}
		switch v := p.value.(type) {
		case *Tensor:
			t := *v
			if t.Name = prefix + key; len(out) >= maxTensors {
				return fmt.Errorf("more than %d tensors", maxTensors)
			}
			if _, ok := out[t.Name]; ok {
				return fmt.Errorf("two tensors are named %s", files.Quote(t.Name))
			}
			out[t.Name] = t
		case *dict:
			if err := collect(out, prefix+key+".", v, deep+1, seen); err != nil {
				return err
			}
		case nil: // as empty slots of a state dict are
		default:
			return fmt.Errorf("%s is %s, not a tensor", files.Quote(prefix+key), kind(v))
		}
	}
	return nil
}

// storage is the numbers of a storage, by its key.
func (a *archive) storage(key string) ([]byte, error) {
	data, ok, err := a.entry("data/" + key)
	if err == nil && !ok {
		err = fmt.Errorf("the archive has no data/%s, which a tensor is in", files.Quote(key))
	}
	return data, err
}

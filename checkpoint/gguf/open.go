package gguf

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"github.com/krait-ml/krait/internal/files"
)

// maxParts bounds the files of one model.
const maxParts = 10_000

// Open maps the file at path into memory, read-only, and parses it like [Parse]. Of a model in
// parts (NAME-00001-of-00005.gguf) path is the first one, which has the metadata of the model; the
// others must lie beside it. Pages are read from disk when they are first touched; a file that is
// cut or written to while it is open is an error for those who ask Intact.
func Open(path string) (*File, error) {
	f, err := openPart(path)
	if err != nil {
		return nil, err
	}
	if err := f.join(); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func openPart(path string) (*File, error) {
	m, err := files.OpenMap(path, "GGUF")
	if err != nil {
		return nil, err
	}
	f, err := files.ParseMap(m, path, Parse)
	if err != nil {
		return nil, err
	}
	f.maps = []*files.Map{m}
	return f, nil
}

// partName is the name of a part: what is before, its number, and how many there are.
var partName = regexp.MustCompile(`^(.*)-(\d{5})-of-(\d{5})\.gguf$`)

// Part reports whether a file name is that of a part of a model, and which.
func Part(path string) (number, of int, ok bool) {
	m := partName.FindStringSubmatch(filepath.Base(path))
	if m == nil {
		return 0, 0, false
	}
	number, _ = strconv.Atoi(m[2])
	of, _ = strconv.Atoi(m[3])
	return number, of, true
}

// join opens the other parts of a model, and takes their tensors.
func (f *File) join() error {
	count, err := value[uint16](f, "split.count", "the number of parts")
	if err != nil || count <= 1 {
		return err
	}
	number, err := value[uint16](f, "split.no", "the number of this part")
	if err != nil {
		return err
	}
	m := partName.FindStringSubmatch(filepath.Base(f.name))
	switch {
	case number != 0:
		return fmt.Errorf("%s: is part %d of %d; open the first part, which has the metadata of the model", f.name, number+1, count)
	case count > maxParts:
		return fmt.Errorf("%s: split.count is %d; the most parts that Krait reads is %d", f.name, count, maxParts)
	case m == nil || m[2] != "00001" || m[3] != fmt.Sprintf("%05d", count):
		return fmt.Errorf("%s: is the first of %d parts, and must have the name NAME-00001-of-%05d.gguf, by which the others are found", f.name, count, count)
	}
	for i := 2; i <= int(count); i++ {
		path := filepath.Join(filepath.Dir(f.name), fmt.Sprintf("%s-%05d-of-%s.gguf", m[1], i, m[3]))
		if err := f.add(path, uint16(i-1), count); err != nil {
			return err
		}
	}
	slices.Sort(f.names)
	total, err := value[int32](f, "split.tensors.count", "the number of tensors in all parts")
	if err == nil && total != 0 && int(total) != len(f.names) {
		err = fmt.Errorf("%s: split.tensors.count is %d, and the %d parts have %d tensors", f.name, total, count, len(f.names))
	}
	return err
}

// add takes the tensors of another part.
func (f *File) add(path string, number, count uint16) error {
	p, err := openPart(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is the first of %d parts, and %s is missing; download it: %w", f.name, count, path, err)
	}
	if err != nil {
		return err
	}
	f.maps = append(f.maps, p.maps...)
	if n, err := value[uint16](p, "split.no", "the number of this part"); err != nil || n != number {
		return errors.Join(err, fmt.Errorf("%s: split.no is %d, and its name says part %d", path, n, number+1))
	}
	for _, name := range p.names {
		if other, ok := f.owner[name]; ok {
			return fmt.Errorf("tensor %s is in two parts, %s and %s", files.Quote(name), other, path)
		}
		f.tensors[name], f.owner[name] = p.tensors[name], path
		f.names = append(f.names, name)
	}
	if len(f.names) > maxTensors {
		return fmt.Errorf("%s: the parts up to %s have more than %d tensors, which is the most that Krait reads", f.name, path, maxTensors)
	}
	return nil
}

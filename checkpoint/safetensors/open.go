package safetensors

import "github.com/krait-ml/krait/internal/files"

// Open maps the file at path into memory, read-only, and parses it like Parse.
// Pages are read from disk when they are first touched. A file that is cut or written
// to while it is open is an error for those who read it in [files.Guard] or ask
// Intact; replacing it by renaming another, as WriteFile does, is safe.
//
// It is an error when the path does not exist (errors.Is reports fs.ErrNotExist), is a directory or
// another thing that is not a regular file, and in every case in which Parse fails.
func Open(path string) (*File, error) {
	m, err := files.OpenMap(path, "safetensors")
	if err != nil {
		return nil, err
	}
	return parseMapped(path, m)
}

// parseMapped is the file that a map has.
func parseMapped(name string, m *files.Map) (*File, error) {
	f, err := files.ParseMap(m, name, Parse)
	if err != nil {
		return nil, err
	}
	f.mapping = m
	return f, nil
}

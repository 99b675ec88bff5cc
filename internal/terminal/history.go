package terminal

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/krait-ml/krait/internal/files"
)

// History is the messages that a user has typed, oldest first, in memory and in a file.
type History struct {
	path    string // empty: no file
	entries []string
}

const (
	mostEntries  = 1000
	longestEntry = 16 << 10 // in the file, in bytes
	historyBytes = 2 * mostEntries * longestEntry
)

// OpenHistory reads a history, which need not exist; an empty path is one in memory only. Each line
// of the file is a Go string. If the file cannot be used, the history is in memory only.
func OpenHistory(path string) (*History, error) {
	h := &History{path: path}
	if path == "" {
		return h, nil
	}
	data, err := files.Read(path, historyBytes)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		h.path = ""
		return h, err
	}
	lines := strings.Split(string(data), "\n")
	for _, line := range lines[max(0, len(lines)-1-mostEntries):] {
		if text, err := strconv.Unquote(line); err == nil {
			h.entries = append(h.entries, text)
		}
	}
	if err = os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
		err = h.append("")
	}
	if err == nil && len(lines) > 2*mostEntries {
		err = h.rewrite()
	}
	if err != nil {
		h.path = ""
	}
	return h, err
}

// rewrite drops what is too old.
func (h *History) rewrite() error {
	var b strings.Builder
	for _, text := range h.entries {
		b.WriteString(strconv.Quote(text) + "\n")
	}
	return files.WritePrivate(h.path, []byte(b.String()))
}

// add takes a message, unless it is the last one again. Several programs may append to the file.
func (h *History) add(text string) {
	if n := len(h.entries); text == "" || n > 0 && h.entries[n-1] == text {
		return
	}
	h.entries = append(h.entries, text)
	if h.path != "" && len(text) <= longestEntry && h.append(strconv.Quote(text)+"\n") != nil {
		h.path = "" // the disk is full, say
	}
}

func (h *History) append(text string) error {
	f, err := os.OpenFile(h.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// folded stands for the ends of lines in a message that is one line on the screen.
const folded = "⏎"

// recall lets term.Terminal take messages of a history, which the editor adds.
type recall struct{ *History }

func (recall) Add(string) {}
func (r recall) Len() int { return len(r.entries) }
func (r recall) At(i int) string {
	return filled(strings.ReplaceAll(r.entries[len(r.entries)-1-i], "\n", folded))
}

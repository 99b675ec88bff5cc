// Package terminal is what programs do on a terminal and nowhere else: progress of long work,
// editing of lines with a history, and text wrapped to the width of the window.
package terminal

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode"

	"golang.org/x/term"
)

// Is reports whether a reader or writer is a terminal.
func Is(v any) bool {
	f, ok := v.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Moves reports whether it is a terminal that can move its cursor.
func Moves(v any) bool { return Is(v) && os.Getenv("TERM") != "dumb" }

// widthOf returns the columns of a terminal, or 80 if it does not say.
func widthOf(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 0 {
			return n
		}
	}
	return 80
}

// plain reports whether the user wants no colours and styles (no-color.org).
func plain() bool { return os.Getenv("NO_COLOR") != "" }

// Dim returns text in dim characters, or as it is if NO_COLOR is set.
func Dim(text string) string {
	if text == "" || plain() {
		return text
	}
	return "\x1b[2m" + text + "\x1b[0m"
}

// StateFolder returns the folder in which programs keep what they remember of their user:
// XDG_STATE_HOME, by default ~/.local/state.
func StateFolder() (string, error) {
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "krait"), nil
	}
	home, err := os.UserHomeDir()
	return filepath.Join(home, ".local", "state", "krait"), err
}

// Home returns a path with ~ for the user's home.
func Home(path string) string {
	home, err := os.UserHomeDir()
	if rest, ok := strings.CutPrefix(path, home+string(filepath.Separator)); ok && err == nil && home != "" {
		return filepath.Join("~", rest)
	}
	return path
}

// columns returns how many columns a terminal gives a character: 2 to wide ones of East Asia and
// to pictures, 0 to marks on the one before.
func columns(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	case unicode.In(r, wide):
		return 2
	}
	return 1
}

// wide are the blocks of characters of two columns (Unicode's EastAsianWidth W and F, by blocks).
var wide = &unicode.RangeTable{
	R16: []unicode.Range16{{0x1100, 0x115f, 1}, {0x2e80, 0x303e, 1}, {0x3041, 0xa4cf, 1}, {0xa960, 0xa97f, 1}, {0xac00, 0xd7a3, 1},
		{0xf900, 0xfaff, 1}, {0xfe30, 0xfe6f, 1}, {0xff00, 0xff60, 1}, {0xffe0, 0xffe6, 1}},
	R32: []unicode.Range32{{0x16fe0, 0x18d08, 1}, {0x1aff0, 0x1b2fb, 1}, {0x1f300, 0x1f64f, 1}, {0x1f680, 0x1f6ff, 1}, {0x1f900, 0x1f9ff, 1}, {0x1fa70, 0x1faff, 1}, {0x20000, 0x3fffd, 1}},
}

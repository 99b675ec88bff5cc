package checkpoint

import (
	"path/filepath"
	"strings"
)

// NameOf returns what a checkpoint is called: the last element of its path, or org/name for a
// snapshot in a Hugging Face cache (models--org--name/snapshots/COMMIT), followed by the path of a
// file in it.
func NameOf(path string) string {
	full, err := filepath.Abs(path)
	if err != nil {
		return filepath.Base(path)
	}
	parts := strings.Split(filepath.ToSlash(full), "/")
	for i := len(parts) - 3; i >= 0; i-- {
		repo, ok := strings.CutPrefix(parts[i], "models--")
		if ok && parts[i+1] == "snapshots" {
			return strings.Join(append([]string{strings.ReplaceAll(repo, "--", "/")}, parts[i+3:]...), "/")
		}
	}
	return filepath.Base(full)
}

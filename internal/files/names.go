package files

import (
	"bytes"
	"errors"
	"fmt"
)

// CheckDownload returns an error if data is not a complete download: an empty file, or a Git LFS
// pointer in place of the weights.
func CheckDownload(data []byte) error {
	switch {
	case len(data) == 0:
		return errors.New("the file is empty; download it again")
	case bytes.HasPrefix(data, []byte("version https://git-lfs")):
		return errors.New("this is a Git LFS pointer, not the weights; run git lfs pull")
	}
	return nil
}

// Quote quotes a name of a file for an error text, cut to 200 bytes.
func Quote(s string) string {
	const most = 200
	if len(s) > most {
		return fmt.Sprintf("%q...", s[:most])
	}
	return fmt.Sprintf("%q", s)
}

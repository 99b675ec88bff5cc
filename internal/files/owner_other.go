//go:build !unix

package files

import "io/fs"

// Exposed is not known here: permissions are no part of a file's mode.
func Exposed(fs.FileInfo) bool { return false }

// Owned is not known here.
func Owned(fs.FileInfo) bool { return true }

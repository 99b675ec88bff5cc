//go:build !linux || (!amd64 && !arm64) || static

package mpi

import (
	"context"
	"errors"

	"github.com/krait-ml/krait/exec/comm"
)

// Variable names the library to load.
const Variable = "KRAIT_MPI"

// Link is none on this system.
type Link struct{ comm.Link }

// Name is that of no library.
func (l *Link) Name() string { return "" }

// Join is an error on this system.
func Join(context.Context) (*Link, error) {
	return nil, errors.New("MPI is used on Linux alone, on amd64 and arm64, and not by programs built with the tag static; --comm tcp needs no library")
}

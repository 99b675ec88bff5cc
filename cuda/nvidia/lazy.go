//go:build linux && (amd64 || arm64)

package nvidia

import (
	"fmt"
	"sync"

	"github.com/krait-ml/krait/cuda/driver"
)

// onceLibrary is a library that is opened when it is first needed.
type onceLibrary struct {
	once    sync.Once
	lib     library
	version string
	err     error
}

// get opens the library once.
func (o *onceLibrary) get(open func() (library, string, error)) (*library, error) {
	o.once.Do(func() { o.lib, o.version, o.err = open() })
	if o.err != nil {
		return nil, o.err
	}
	return &o.lib, nil
}

// missing is the error for a library that cannot be used.
func missing(library, hint, format string, args ...any) error {
	return &driver.Error{Call: "open " + library, Text: fmt.Sprintf(format, args...), Hint: hint, Kind: driver.ErrMissingLibrary}
}

// describe is a line of Versions.
func (o *onceLibrary) describe(name string, err error) driver.Version {
	return driver.Version{Name: name, Version: o.version, Path: o.lib.path, Missing: err}
}

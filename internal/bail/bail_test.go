package bail

import (
	"errors"
	"runtime"
	"testing"
)

// TestCatch: errors come back with where they happened; panics of the runtime and others go on.
func TestCatch(t *testing.T) {
	cause := errors.New("no")
	call := func(f func()) (rest any, err error) {
		defer func() { rest = recover() }()
		return nil, func() (err error) {
			defer Catch(&err)
			defer In(func() string { return "here" })
			f()
			return nil
		}()
	}
	if rest, err := call(func() { Of(1, cause) }); rest != nil || !errors.Is(err, cause) || err.Error() != "here: no" {
		t.Errorf("an error: %v, and a panic %v", err, rest)
	}
	if rest, err := call(func() { If(nil) }); err != nil || rest != nil {
		t.Errorf("none: %v, and a panic %v", err, rest)
	}
	var list []int
	if rest, _ := call(func() { list[0]++ }); rest == nil {
		t.Error("an index out of range is no panic any more")
	} else if _, ok := rest.(runtime.Error); !ok {
		t.Errorf("an index out of range panics with %v", rest)
	}
	if rest, _ := call(func() { panic("BUG") }); rest != "BUG" {
		t.Errorf("another panic goes on as %v", rest)
	}
}
